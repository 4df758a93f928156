"""What ends a command that runs until it is told to."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ps2stream.commands.output import on_interrupt


@pytest.fixture(params=[signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    before = signal.getsignal(request.param)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_is_heard_within_the_block_and_forgotten_behind_it(number: int) -> None:
    def of_before(*_: object) -> None:
        """Somebody else's."""

    signal.signal(number, of_before)
    told = threading.Event()
    with on_interrupt(told.set):
        os.kill(os.getpid(), number)
        assert told.wait(60)
    assert signal.getsignal(number) is of_before


def test_nohup_outlives_the_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with on_interrupt(lambda: None):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
