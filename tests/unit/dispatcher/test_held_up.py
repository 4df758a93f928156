"""Which batches silent workers hold up, and how many of them between two ticks."""

from __future__ import annotations

from typing import Any

from ps2stream.dispatcher.gathering import NO_OBJECTS
from ps2stream.dispatcher.held_up import EARLY, HeldUpBatches
from ps2stream.dispatcher.open_batch import LEAST_BYTES, OpenBatch


def batch(*workers: int) -> OpenBatch:
    shares: Any = dict.fromkeys(workers)
    return OpenBatch(1, NO_OBJECTS, 0, shares, suspect=False)


def test_a_batch_is_held_up_only_if_all_that_owe_an_answer_are_silent() -> None:
    held_up, open_ = HeldUpBatches(), {0: batch(0), 1: batch(0, 1), 2: batch(1), 3: batch()}
    held_up.find_all(open_, {0})
    assert (len(held_up), held_up.size) == (1, LEAST_BYTES)
    held_up.add_early(1, open_[1], {0})
    assert len(held_up) == 1
    del open_[1].shares[1]
    held_up.add_early(1, open_[1], {0})
    held_up.add_early(1, open_[1], {0})
    assert (len(held_up), held_up.size) == (2, 2 * LEAST_BYTES)
    for number in (0, 1, 2):
        held_up.discard(number, open_[number])
    assert (len(held_up), held_up.size) == (0, 0)


def test_what_a_merger_must_keep_holds_up_nothing() -> None:
    held_up, open_ = HeldUpBatches(), batch(0)
    open_.releases.add(7)
    held_up.find_all({0: open_}, {0})
    assert len(held_up) == 0
    open_.releases.clear()
    held_up.add_early(0, open_, {0})
    assert len(held_up) == 1


def test_between_two_ticks_there_is_a_limit() -> None:
    held_up, open_ = HeldUpBatches(), {n: batch(0) for n in range(2 * EARLY)}
    for number, each in open_.items():
        held_up.add_early(number, each, {0})
    assert len(held_up) == EARLY
    held_up.find_all(open_, {0})
    assert len(held_up) == 2 * EARLY, "all of them, at a tick"
