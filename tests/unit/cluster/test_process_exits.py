"""The exit of a process is noticed at once, and once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ps2stream.cluster.process_exits import ProcessExits


@pytest.fixture
def exits() -> Iterator[ProcessExits]:
    with closing(ProcessExits()) as made:
        yield made


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def count_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.parametrize("is_reaped", [False, True])
def test_an_exit_ends_the_wait_and_is_reported_once(exits: ProcessExits, is_reaped: bool) -> None:
    """A zombie has ended, too: whoever started it may not wait for it."""
    with sleeper() as first, sleeper() as second:
        exits.watch({first.pid, second.pid})
        assert exits.wait(0) == set()
        os.kill(first.pid, signal.SIGKILL)
        if is_reaped:
            first.wait()
        assert exits.wait(60) == {first.pid}
        assert exits.wait(0) == set()
        second.kill()
        first.kill()


def test_what_is_watched_no_longer_is_not_reported(exits: ProcessExits) -> None:
    before = count_descriptors()
    with sleeper() as process:
        exits.watch({process.pid})
        exits.watch(set())
        process.kill()
    assert exits.wait(0) == set()
    assert count_descriptors() == before


def test_a_process_that_is_gone_is_not_watched(exits: ProcessExits) -> None:
    with sleeper() as process:
        process.kill()
    exits.watch({process.pid})
    assert exits.wait(0) == set()


def test_it_is_woken_while_it_waits_and_before(exits: ProcessExits) -> None:
    waiting = threading.Thread(target=exits.wait, args=(600,))
    waiting.start()
    exits.wake()
    waiting.join(60)
    assert not waiting.is_alive()
    assert exits.wait(600) == set()
    exits.wake()
