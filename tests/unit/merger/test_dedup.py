"""The window of a dispatcher's batches: what is pending, done, withdrawn and reported."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.merger.dedup import SILENT_TICKS, DedupWindow
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


def ready_pairs(window: DedupWindow, batch: int) -> list[tuple[int, int]]:
    """The rows and handles of a batch that can be processed."""
    [content] = window.ready(5, batch)
    row, handle, _ = window.pairs(content)
    return list(zip(row.tolist(), handle.tolist(), strict=True))


def test_equal_pairs_of_two_workers_collapse_and_are_counted_once_done() -> None:
    window = DedupWindow()
    window.payload(payload(0, 4, 5, expected=2))
    window.answer(matches(0, [(3, 1, 1), (0, 2, 1)], worker=0))
    window.answer(matches(0, [(0, 2, 1), (0, 1, 1)], worker=1))
    assert ready_pairs(window, 0) == [(0, 1), (0, 2), (3, 1)]
    assert window.collapsed == 0
    window.finish(0, 4)
    assert (window.collapsed, len(window)) == (1, 0)


def test_only_the_first_answer_of_a_worker_counts() -> None:
    window = DedupWindow()
    window.payload(payload(0, 4, 5))
    window.answer(matches(0, [(0, 1, 1)]))
    window.answer(matches(0, [(0, 1, 1), (1, 1, 1)]))
    assert ready_pairs(window, 0) == [(0, 1)]


def test_what_was_reported_is_not_found_again_until_its_objects_are_done() -> None:
    window = DedupWindow()
    window.tell(np.array([5, 7]), np.array([1, 2]))
    window.payload(payload(4, 4, 5))
    window.answer(matches(4, [(1, 1, 1), (1, 2, 1), (3, 2, 1)]))
    assert ready_pairs(window, 4) == [(1, 2)]
    window.finish(4, 6)
    assert window.in_part
    window.finish(6, 8)
    assert not window.in_part


def test_objects_that_are_done_have_no_pairs_again() -> None:
    window = DedupWindow()
    window.finish(0, 2)
    window.payload(payload(0, 4, 5))
    window.answer(matches(0, [(1, 1, 1), (2, 1, 1)]))
    assert ready_pairs(window, 0) == [(2, 1)]


def test_a_match_outside_of_its_batch_is_refused() -> None:
    window = DedupWindow()
    window.payload(payload(0, 4, 5))
    window.answer(matches(0, [(4, 1, 1)]))
    [content] = window.ready(5)
    with pytest.raises(ValueError, match="row 4 of a batch of 4"):
        window.pairs(content)


def test_a_batch_that_lacks_a_silent_worker_is_ready_in_part_once() -> None:
    window = DedupWindow()
    window.payload(payload(0, 4, 5, expected=2))
    window.answer(matches(0, [(0, 1, 1)], worker=0))
    for _ in range(SILENT_TICKS - 1):
        window.tick()
    assert window.ready_in_part(5) == []
    window.tick()
    assert window.ready_in_part(4) == []
    assert [p.batch for p in window.ready_in_part(5)] == [0]
    window.mark_processed(0)
    assert window.ready_in_part(5) == []
    window.answer(matches(0, [], worker=1))
    assert window.ready_in_part(5) == []
    assert [p.batch for p in window.ready(5)] == [0]
