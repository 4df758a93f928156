"""The queue of inserts with retro: each once, also when a state repeats them."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.dispatcher import retro_queue
from ps2stream.dispatcher.retro_queue import RetroQueue
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.rows import QueryRows
from ps2stream.protocol.validity import stamp_inserts
from ps2stream.routing.tags import QueryTags
from tests.support.ends import ending_rows


def inserts(*wanted: tuple[int, bool]) -> tuple[QueryRows, QueryTags]:
    """Inserts with these LSNs, with retro or not, and a tag each."""
    rows = QueryRows.concat([ending_rows(f"q{lsn}", 0, retro) for lsn, retro in wanted])
    lsns = np.array([lsn for lsn, _ in wanted])
    rows = stamp_inserts(rows.replace(lsn=lsns, handle=lsns), 77)
    n = len(rows)
    cells = lsns.astype(np.uint32)
    terms, owner = cells.astype(np.uint64), np.zeros(n, np.uint16)
    return rows, QueryTags(np.arange(n + 1), cells, terms, owner, terms)


def test_only_inserts_with_retro_are_due_and_each_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retro_queue, "TOGETHER", 2)
    queue = RetroQueue(done=3)
    queue.note(*inserts((2, True), (3, True), (4, False)))
    assert queue.is_idle
    queue.note(*inserts((5, True), (6, False), (7, True), (8, True)))
    queue.note(*inserts((2, True), (5, True), (8, True), (9, True)))  # a state repeats them
    taken: list[list[int]] = []
    while queue.has_due:
        last = queue.due_last
        group = queue.take()
        assert group.last == last
        assert queue.find_lowest(100) == group.first
        assert group.tags.cell.tolist() == group.rows.handle.tolist()
        assert group.inserted.tolist() == [77] * len(group.rows)
        taken.append(group.rows.handle.tolist())
        queue.finish()
    assert taken == [[5, 7], [8], [9]]
    assert queue.is_idle


def test_what_is_not_kept_holds_the_watermark_and_the_oldest_offset() -> None:
    queue = RetroQueue()
    assert (queue.find_lowest(9), queue.find_oldest(50)) == (9, 50)
    queue.note(*inserts((5, True)))
    assert (queue.find_lowest(9), queue.find_lowest(4)) == (5, 4)
    queue.take()
    queue.open_batch(40, 5)
    queue.open_batch(30, 5)
    queue.finish()
    assert (queue.find_lowest(9), queue.find_oldest(50), queue.find_oldest(20)) == (5, 30, 20)
    queue.close([30, 31])
    assert (queue.find_oldest(50), queue.open) == (40, 1)
    queue.close([40])
    assert queue.is_idle


def test_a_group_that_is_split_is_due_anew_and_in_order() -> None:
    queue = RetroQueue()
    queue.note(*inserts(*((lsn, True) for lsn in range(1, 6))))
    queue.note(*inserts((9, True)))
    queue.take()
    queue.split(2)
    taken: list[list[int]] = []
    while queue.has_due:
        group = queue.take()
        assert queue.find_lowest(100) == group.first
        assert group.tags.cell.tolist() == group.rows.handle.tolist()
        assert group.inserted.tolist() == [77] * len(group.rows)
        taken.append(group.rows.handle.tolist())
        queue.finish()
    assert taken == [[1, 2], [3, 4], [5], [9]]


def list_due(queue: RetroQueue) -> list[int]:
    found: list[int] = []
    while queue.has_due:
        found += queue.take().rows.handle.tolist()
        queue.finish()
    return found


def test_one_that_leaves_is_concerned_with_what_was_there_before() -> None:
    queue, shrunk = RetroQueue(), ProducerMap.first(2).changed(1, 6)
    queue.follow(shrunk, 1)
    queue.note(*inserts((5, True), (7, True)))  # a state
    assert list_due(queue) == [5]
    queue.follow(shrunk.finished(), 1)
    queue.note(*inserts((8, True)))
    assert queue.is_idle
    queue.follow(shrunk.finished().changed(2, 10), 1)
    queue.note(*inserts((8, True), (11, True)))
    assert list_due(queue) == [11], "it has nothing that may meet earlier ones"


def test_one_that_stays_is_concerned_with_all() -> None:
    queue = RetroQueue()
    queue.follow(ProducerMap.first(2).changed(1, 6), 0)
    queue.note(*inserts((5, True), (7, True)))
    assert list_due(queue) == [5, 7]
