"""The yardstick: another program's engine on one core, run beside our own on the same machine.

It is a Python script that takes the number of queries and prints one line, such as
`443454 tuples/s min 430389 max 457669 m/o 9.57`. Its folder may be read-only.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from ps2stream.cluster.private_folder import PrivateFolder
from ps2stream.errors import invalid

_LINE = re.compile(r"([\d.]+) tuples/s min ([\d.]+) max ([\d.]+) m/o ([\d.]+)")
_FIELDS = ("tuples_per_second", "min", "max", "matches_per_object")
_SHOWN = 300  # characters of an output that is not understood


class YardstickRuns:
    """Runs of the yardstick's engine `path` with `queries` queries, each in a process of its own.
    What Numba compiles for one run is in `cache` for the next."""

    def __init__(self, path: str, queries: int, cache: Path) -> None:
        self._script = Path(path).resolve()
        self._queries = queries
        self._cache = cache
        self.rates: list[dict[str, float]] = []

    def run(self) -> dict[str, float]:
        """Runs it once more, and returns what it printed. Raises InvalidArgument if it failed or
        printed something else."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        done = subprocess.run(
            [sys.executable, "-B", str(self._script), str(self._queries)],
            cwd=self._script.parent,
            env=environment | {"NUMBA_CACHE_DIR": str(self._cache)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        found = _LINE.search(done.stdout)
        if done.returncode or found is None or not float(found[1]):
            output = (done.stdout + done.stderr)[-_SHOWN:].strip()
            problem = f"ended with code {done.returncode}" if done.returncode else "printed no rate"
            raise invalid("against", f"{self._script} {problem}: {output}")
        rate = dict(zip(_FIELDS, map(float, found.groups()), strict=True))
        self.rates.append(rate)
        return rate


class YardstickSpeed(NamedTuple):
    """The speed of the yardstick in a sitting: the median rate of its runs, and their mean time a
    tuple."""

    tuples_per_second: float
    us_per_tuple: float


@contextlib.contextmanager
def open_yardstick(path: str, queries: int) -> Iterator[YardstickRuns]:
    """Yields the runs of a yardstick, with a new cache that is removed afterwards."""
    with PrivateFolder() as cache:
        yield YardstickRuns(path, queries, cache.path)


def measure_speed(runs: YardstickRuns) -> YardstickSpeed:
    """Returns the speed over all runs so far."""
    rates = [rate["tuples_per_second"] for rate in runs.rates]
    return YardstickSpeed(median(rates), mean(1e6 / rate for rate in rates))


def describe_runs(runs: YardstickRuns) -> dict[str, Any]:
    """Returns the first and the last run and the mean time a tuple, JSON-able."""
    return {
        "before": runs.rates[0],
        "after": runs.rates[-1],
        "us_per_tuple": measure_speed(runs).us_per_tuple,
    }
