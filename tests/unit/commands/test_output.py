"""What ends a command that runs until it is told to."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from ps2stream.commands.output import on_interrupt, wait_for_interrupt


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


def test_a_signal_that_another_thread_takes_is_heard(number: int) -> None:
    told, over = threading.Event(), threading.Event()
    late = []

    def wait_and_note() -> None:
        late.append(not told.wait(30))
        told.set()

    other = threading.Thread(target=over.wait)
    other.start()
    with on_interrupt(told.set):
        watch = threading.Thread(target=wait_and_note)
        watch.start()
        sending = threading.Timer(0.2, signal.pthread_kill, (other.ident, number))
        sending.start()
        wait_for_interrupt(told)
    over.set()
    for thread in (other, sending, watch):
        thread.join()
    assert late == [False]


def test_nohup_outlives_the_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with on_interrupt(lambda: None):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
