"""A log that is trimmed later: whoever wants it does not wait, and close does."""

from __future__ import annotations

import threading

import pytest

from ps2stream.cluster.later_trims import TrimmedLater
from ps2stream.errors import Unavailable
from tests.support.memory_log import MemoryLog


class SlowLog(MemoryLog):
    """A log that takes its time to trim."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.began = threading.Event()
        self.trims: list[int] = []

    def trim(self, before: int) -> None:
        self.began.set()
        assert self.go_on.wait(60)
        self.trims.append(before)
        super().trim(before)


def test_nobody_waits_for_a_trim_but_close() -> None:
    inner = SlowLog()
    log = TrimmedLater(inner)
    for _ in range(4):
        log.append(b"12345678")
    log.sync()
    log.trim(8)
    assert inner.began.wait(60)
    log.trim(16)
    log.trim(24)
    log.trim(16)  # wanted already
    assert (log.first, inner.trims) == (0, [])
    assert log.read(8) == b"12345678"
    threading.Timer(0.1, inner.go_on.set).start()
    log.close()
    assert inner.trims == [8, 24]  # the one in between was overtaken
    assert [at for at, _ in log.scan()] == [24]


def test_a_trim_that_fails_is_left_to_what_comes_after(caplog: pytest.LogCaptureFixture) -> None:
    inner = MemoryLog()
    problems: list[Exception] = [Unavailable("the disk is gone"), ValueError("a bug")]

    def fail(before: int) -> None:
        raise problems.pop(0)

    inner.trim = fail  # type: ignore[method-assign]
    log = TrimmedLater(inner)
    log.trim(1)
    log.trim(2)
    log.close()
    assert "a bug" in caplog.text or problems  # the first may have been overtaken
    assert "the disk is gone" not in caplog.text
