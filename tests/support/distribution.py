"""The distribution of test files over processes: the longest first, Spark's and Kafka's each in one
process."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

LONGEST = (
    "tests/ray/test_chaos.py",
    "tests/hosts",
    "tests/packaging",
    "tests/spark",
    "tests/map/test_page.py",
    "tests/sim/test_moves.py",
    "tests/service/test_experiments.py",
    "tests/ray/test_service.py",
    "tests/properties/test_partitions.py",
    "tests/connectors/test_kafka.py",
    "tests/sim/test_faults.py",
    "tests/sim",
    "tests/kafka",
    "tests/fuzz",
    "tests/spark/test_submit.py",
    "tests/transcripts",
    "tests/ray",
    "tests/service",
    "tests/connectors",
    "tests/postgres",
)
"""Files and folders of tests by the time that they take. The rest, many short ones, come last and
fill the processes evenly."""
SHARED = ("tests/kafka", "tests/spark")
"""Folders of which the files share what is slow to start."""
ALONE = ("tests/spark/test_submit.py",)
SCATTERED = ("tests/sim/test_seeds.py",)
"""Files of which each test may run in another process: they take longest, and share nothing."""


def scope_of(path: str, test: str = "") -> str:
    """Returns the name of what runs in one process with this file, or with this test of it."""
    if path in SCATTERED:
        return f"{path}::{test}"
    folder = next((name for name in SHARED if path.startswith(f"{name}/")), path)
    return path if path in ALONE else folder


def rank_of(path: str) -> int:
    """Returns the place of a file in the order: that of the longest name which begins it."""
    begun = [name for name in LONGEST if path == name or path.startswith(f"{name}/")]
    return LONGEST.index(max(begun, key=len)) if begun else len(LONGEST)


class ScopeScheduling(LoadFileScheduling):  # type: ignore[misc]
    """Gives each process a file after the other, and all files of a scope at once."""

    def _split_scope(self, nodeid: str) -> str:
        path, _, test = nodeid.partition("::")
        return scope_of(path, test)
