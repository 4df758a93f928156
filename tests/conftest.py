"""Shared fixtures: where the real data lies, and what happens where it does not."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from ps2stream.cluster.kernel_cache import KernelCache
from tests.support.compiling import compile_each_kernel_once
from tests.support.distribution import ScopeScheduling, rank_of, scope_of
from tests.support.kafka_broker import Broker, broker
from tests.support.postgres_server import Server, installed, server
from tests.support.reruns import list_reruns, mark_reruns
from tests.support.shortening import IS_SHORT, describe, keep_turn, leave_out

# An example may take as long as the machine likes: what is judged is the answer.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

if "PYTEST_XDIST_WORKER" in os.environ:
    compile_each_kernel_once()
else:  # the first process of a run; kernels of another version may expect other frames
    KernelCache(()).discard_stale()
    if IS_SHORT:
        keep_turn()  # before those that play parts of it are started

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take long begin first, so that processes end together; some tests may be tried a
    second time, and CI leaves some out."""
    leave_out(config, items)

    def order(item: pytest.Item) -> tuple[int, str]:
        path = item.path.relative_to(config.rootpath).as_posix()
        return rank_of(path), scope_of(path)

    items.sort(key=order)
    mark_reruns(config, items)


def pytest_report_header() -> list[str]:
    """What CI leaves out is told."""
    return describe()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was tried a second time is told, as it may be a bug that shows now and then."""
    if lines := list_reruns(terminalreporter):
        terminalreporter.write_sep("=", f"tried a second time: {len(lines)}", yellow=True)
        for line in lines:
            terminalreporter.write_line(line)


def pytest_collection_finish() -> None:
    """Objects that stay, of modules and collected tests, are not looked through again and again;
    what tests leave behind is looked for less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ScopeScheduling | None:
    """Files that share a session of Spark run in one process."""
    return ScopeScheduling(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT


def _data_directory() -> Path:
    given = os.environ.get("PS2STREAM_DATA")
    return Path(given) if given else ROOT.parent / "shared" / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    """The directory of real data. Absent: skipped loudly, and a failure where CI=true."""
    directory = _data_directory()
    if not (directory / "tweets_us_2021_2022.parquet").is_file():
        complaint = f"the real data is not in {directory}; set PS2STREAM_DATA"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(complaint)
        pytest.skip(complaint)
    return directory


@pytest.fixture(scope="session")
def tweets(data: Path) -> Path:
    """140,155 posts: id, ts, lat, lon, text."""
    return data / "tweets_us_2021_2022.parquet"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server that runs as long as the tests; absent: skipped loudly."""
    programs = installed()
    if programs is None:
        pytest.skip("there is no PostgreSQL here (Debian: apt-get install postgresql)")
    with server(programs) as found:
        yield found


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A Kafka broker that runs as long as the tests; it cannot be fetched: skipped loudly."""
    with broker() as found:
        yield found
