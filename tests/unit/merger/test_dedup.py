"""The window of a dispatcher's batches: what is pending, done, withdrawn and reported."""

from __future__ import annotations

import pytest

from ps2stream.merger.dedup import DedupWindow
from tests.support.merging import matches, payload


def test_a_window_refuses_what_is_done_or_given_up() -> None:
    window = DedupWindow()
    assert window.payload(payload(0, 1, 5, expected=0))
    assert window.payload(payload(9, 1, 6, expected=0))
    for done in window.ready(9):
        window.finish(done.batch, done.batch + 1)
    assert window.payload(payload(4, 1, 5))
    window.answer(matches(6, []))
    window.advance(6)
    window.advance(5)
    assert window.watermark == 6
    assert len(window) == 1  # it may be of LSN 6
    assert not window.payload(payload(4, 1, 5))
    assert window.done.items() == [(0, 1), (9, 10)]
    window.advance(6, oldest=9)
    assert len(window) == 0
    assert window.done.items() == [(0, 10)]


def test_answers_alone_are_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.merger.dedup.EARLY", 8)
    window = DedupWindow()
    for batch in range(100):
        window.answer(matches(batch, []))
    assert len(window) == 8
    for batch in range(100):
        window.payload(payload(batch, 1, 5))
        window.answer(matches(batch, []))
    assert len(window.ready(5)) == 100


def test_a_higher_attempt_takes_the_place_of_a_lower_one() -> None:
    window = DedupWindow()
    window.payload(payload(0, 4, 5, expected=2))
    window.answer(matches(0, [(0, 1, 1)], worker=0))
    window.answer(matches(0, [(1, 1, 1)], worker=1, attempt=1))
    assert not window.ready(5)
    window.answer(matches(0, [(2, 1, 1)], worker=1))  # of the first attempt
    window.payload(payload(0, 4, 5, expected=1))
    assert not window.ready(5)
    window.payload(payload(0, 4, 5, expected=1, attempt=1))
    [done] = window.ready(5)
    assert window.pairs(done)[0].tolist() == [1]


def test_a_withdrawn_batch_is_given_up_and_its_first_part_is_not() -> None:
    window = DedupWindow()
    window.payload(payload(0, 4, 5))
    window.withdraw(0, 3)
    window.answer(matches(0, [(3, 1, 1)], attempt=3))
    assert len(window) == 0
    window.answer(matches(0, [(1, 1, 1)], attempt=4))
    window.withdraw(0, 3)  # which the part's answer overtook
    window.payload(payload(0, 2, 5, attempt=4))
    assert len(window.ready(5)) == 1
