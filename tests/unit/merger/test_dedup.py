"""The window of a dispatcher's batches: what is pending, done and reported in part."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ps2stream.merger.dedup import DedupWindow
from ps2stream.protocol.messages.objects import MatchRelease
from tests.support.merging import release

Pairs = list[tuple[int, int, int]]  # row, handle, session


def batches(ready: list[MatchRelease]) -> list[int]:
    return [each.batch for each in ready]


def find_pairs(window: DedupWindow, batch: int, size: int, pairs: Pairs) -> list[tuple[int, int]]:
    """The rows and handles that are new in a release."""
    row, handle, _ = window.find_new(release(batch, size, 5, pairs))
    return list(zip(row.tolist(), handle.tolist(), strict=True))


def test_a_window_refuses_what_is_done_or_given_up() -> None:
    window = DedupWindow()
    assert window.add(release(0, 1, 5, [(0, 1, 1)]))
    assert window.add(release(9, 1, 6, [(0, 1, 1)]))
    for done in window.ready(9):
        window.finish(done.batch, done.end)
        window.drop(done)
    assert window.add(release(4, 1, 5, [(0, 1, 1)]))
    assert window.add(release(6, 1, 6, [(0, 1, 1)]))
    window.advance(6)
    window.advance(5)
    assert window.watermark == 6
    assert batches(window.ready(9)) == [6]
    assert not window.add(release(4, 1, 5, [(0, 1, 1)]))
    assert window.done.items() == [(0, 1), (9, 10)]
    window.advance(6, oldest=9)
    assert len(window) == 0
    assert window.done.items() == [(0, 10)]
    assert not window.add(release(6, 1, 6, [(0, 1, 1)]))


def test_what_waits_goes_once_its_batch_is_done() -> None:
    """A release that waits comes again after the batch is done by another one."""
    window = DedupWindow()
    part = release(0, 4, 5, [(0, 1, 1)], whole=False, number=3)
    assert window.add(part)
    window.finish(0, 4)
    assert not window.add(part)
    assert (len(window), window.ready(5)) == (0, [])


def test_releases_are_ready_in_order_once_the_queries_are_known() -> None:
    window = DedupWindow()
    for number, batch, lsn in ((7, 0, 6), (5, 8, 5), (6, 4, 5)):
        window.add(release(batch, 4, lsn, [(0, 1, 1)], number=number))
    assert window.ready(4) == []
    assert batches(window.ready(5)) == [8, 4]
    assert batches(window.ready(6)) == [8, 4, 0]
    assert batches(window.ready(5, 6)) == [4]
    assert window.ready(5, 7) == window.ready(9, 99) == []


def test_two_releases_of_a_batch_wait_side_by_side() -> None:
    window = DedupWindow()
    for number in (3, 4):
        window.add(release(0, 4, 5, [(number, 1, 1)], whole=False, number=number))
    assert [each.release for each in window.ready(5)] == [3, 4]
    window.drop(window.ready(5, 3)[0])
    assert [each.release for each in window.ready(5)] == [4]


def test_equal_pairs_of_two_workers_collapse_and_are_counted_once_processed() -> None:
    window = DedupWindow()
    window.add(release(0, 4, 5, [(3, 1, 1), (0, 2, 1), (0, 2, 1), (0, 1, 1)]))
    for _ in range(2):  # the log may take nothing of it the first time
        [content] = window.ready(5)
        row, handle, _ = window.find_new(content)
        assert (row.tolist(), handle.tolist()) == ([0, 0, 3], [1, 2, 1])
        assert window.collapsed == 0
    for _ in range(2):
        window.drop(content)
        assert (window.collapsed, len(window)) == (1, 0)


def test_what_one_worker_found_is_taken_as_it_is_if_its_rows_rise() -> None:
    window = DedupWindow()
    pairs = [(0, 9, 1), (0, 2, 1), (3, 1, 1), (3, 4, 1)]
    row, handle, session = window.find_new(release(0, 4, 5, pairs, answers=1))
    assert list(zip(row.tolist(), handle.tolist(), session.tolist(), strict=True)) == pairs
    mixed = [pairs[i] for i in (2, 0, 3, 1)]
    row, handle, _ = window.find_new(release(0, 4, 5, mixed, answers=1))
    assert (row.tolist(), handle.tolist()) == ([0, 0, 3, 3], [2, 9, 1, 4])


def test_what_several_workers_found_collapses_though_their_rows_rise() -> None:
    window = DedupWindow()
    row, handle, _ = window.find_new(release(0, 4, 5, [(0, 2, 1), (0, 2, 1), (3, 1, 1)], answers=2))
    assert (row.tolist(), handle.tolist()) == ([0, 3], [2, 1])


def test_what_one_worker_found_is_not_new_where_it_was_reported_or_done() -> None:
    window = DedupWindow()
    window.finish(0, 1)
    window.tell(np.array([1]), np.array([7]))
    pairs = [(0, 9, 1), (1, 7, 1), (1, 8, 1), (2, 1, 1)]
    row, handle, _ = window.find_new(release(0, 4, 5, pairs, answers=1))
    assert (row.tolist(), handle.tolist()) == ([1, 2], [8, 1])


def test_releases_wait_for_what_they_need_and_not_for_their_lsn() -> None:
    window = DedupWindow()
    window.add(release(0, 4, 9, [(0, 1, 1)], needs=5))
    assert window.ready(4) == []
    assert batches(window.ready(5)) == [0]


def test_what_was_reported_is_not_found_again_until_its_objects_are_done() -> None:
    window = DedupWindow()
    window.tell(np.array([5, 7]), np.array([1, 2]))
    assert find_pairs(window, 4, 4, [(1, 1, 1), (1, 2, 1), (3, 2, 1)]) == [(1, 2)]
    window.finish(4, 6)
    assert window.in_part
    window.finish(6, 8)
    assert not window.in_part


def test_what_was_reported_is_forgotten_once_all_before_an_offset_is_complete() -> None:
    window = DedupWindow()
    window.tell(np.array([5, 7]), np.array([1, 2]))
    window.advance(0, oldest=7)
    assert window.in_part
    window.advance(0, oldest=8)
    assert not window.in_part


def test_objects_that_are_done_have_no_pairs_again() -> None:
    window = DedupWindow()
    window.finish(0, 2)
    assert find_pairs(window, 0, 4, [(1, 1, 1), (2, 1, 1)]) == [(2, 1)]


def test_a_match_outside_of_its_batch_is_refused() -> None:
    window = DedupWindow()
    window.add(release(0, 4, 5, [(4, 1, 1)]))
    [content] = window.ready(5)
    with pytest.raises(ValueError, match="row 4 of a batch of 4"):
        window.find_new(content)


@pytest.mark.parametrize("seed", range(20))
def test_each_pair_is_new_once_as_a_naive_window_says(seed: int) -> None:
    """Batches come whole, in parts and in halves, and again."""
    rng = random.Random(seed)
    window = DedupWindow()
    told: set[tuple[int, int]] = set()
    done: set[int] = set()
    for number in range(200):
        start, size = rng.randint(0, 60), rng.randint(1, 9)
        pairs = [(rng.randrange(size), rng.randint(1, 4), 1) for _ in range(rng.randint(1, 12))]
        whole = rng.random() < 0.3
        each = release(start, size, 5, pairs, whole=whole, number=number)
        covered = done >= {*range(start, start + size)}
        assert window.add(each) == (not covered)
        if covered:
            continue
        row, handle, session = window.find_new(each)
        found = [(start + r, h) for r, h in zip(row.tolist(), handle.tolist(), strict=True)]
        want = {(start + r, h) for r, h, _ in pairs}
        assert found == sorted(p for p in want if p not in told and p[0] not in done)
        assert len(session) == len(row)
        told.update(found)
        if found and not whole:
            window.tell(start + row.astype(np.int64), handle)
        if whole:
            window.finish(start, start + size)
            done.update(range(start, start + size))
        window.drop(each)
