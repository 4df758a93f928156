"""The worker machine: order of updates, objects that wait, answers, watermarks."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ps2stream.grid import Grid
from ps2stream.messages import (
    Address,
    Completed,
    MatchBatch,
    RoutedObjects,
    Send,
    Watermark,
    WorkerUpdates,
)
from ps2stream.rows import Form, Kind, QueryRows, Shape, no_queries
from ps2stream.workers.state import WorkerMachine

GRID = Grid(4, 3)
TERM = 42


def rows(*updates: tuple[Kind, int, int]) -> QueryRows:
    """Updates (kind, lsn, handle) of queries for TERM anywhere; session = handle."""
    n = len(updates)
    kind, lsn, handle = (np.array(c) for c in zip(*updates, strict=True))
    none = no_queries()
    zeros = np.zeros(n + 1, np.int64)
    return none.replace(
        kind=kind.astype(np.uint8),
        lsn=lsn,
        handle=handle,
        session=handle,
        form=np.full(n, Form.ALL, np.uint8),
        post=np.ones(n, np.uint64),
        shape=np.full(n, Shape.WORLD, np.uint8),
        term_off=np.arange(n + 1),
        term=np.full(n, TERM, np.uint64),
        box_off=np.arange(n + 1) * 4,
        box=np.tile([-180.0, -90.0, 180.0, 90.0], n),
        id_off=zeros,
        prog_off=zeros,
        geom_off=zeros,
        source_off=zeros,
    )


def updates(
    *changes: tuple[Kind, int, int],
    span: tuple[int, int] | None = None,
    dispatcher: int = 0,
    watermark: int = 0,
) -> WorkerUpdates:
    query = rows(*changes) if changes else no_queries()
    span = span or (changes[0][1], changes[-1][1])
    off, cell = GRID.cover(query.box_off, query.box)
    return WorkerUpdates(
        lsn_from=span[0],
        lsn_to=span[1],
        dispatcher=dispatcher,
        watermark=watermark,
        rows=np.frombuffer(query.encode(), np.uint8),
        tag_off=off,
        tag_cell=cell,
        tag_term=np.full(len(cell), TERM, np.uint64),
    )


def objects(
    lsn: int, batch: int = 0, row: int = 5, dispatcher: int = 0, watermark: int = 0
) -> RoutedObjects:
    return RoutedObjects(
        dispatcher=dispatcher,
        batch=batch,
        lsn=lsn,
        watermark=watermark,
        expected=1,
        row=np.array([row], np.uint32),
        lon=np.array([1.0]),
        lat=np.array([2.0]),
        term_off=np.array([0, 1]),
        term=np.array([TERM], np.uint64),
    )


def handles(out: list[Send]) -> list[int]:
    return sorted(h for s in out if isinstance(s.frame, MatchBatch) for h in s.frame.handle)


INS, DEL = Kind.INSERT, Kind.DELETE


def test_every_merger_is_answered_with_the_pairs_of_its_sessions() -> None:
    worker = WorkerMachine(3, 1, 2, GRID)
    worker.on(updates((INS, 1, 1), (INS, 2, 2), (INS, 3, 3)))
    out = worker.on(objects(3, batch=70, row=9))
    assert [s.to for s in out] == [Address("merger", 0), Address("merger", 1)]
    frames: list[Any] = [s.frame for s in out]
    assert [sorted(f.handle.tolist()) for f in frames] == [[2], [1, 3]]
    assert all((f.worker, f.dispatcher, f.batch) == (3, 0, 70) for f in frames)
    assert all((f.row == 9).all() and len(f.row) == len(f.session) for f in frames)
    empty = worker.on(objects(0))
    assert len(empty) == 2
    assert handles(empty) == []


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_updates_apply_in_order_however_they_come(order: tuple[int, ...]) -> None:
    frames = [
        updates((INS, 1, 1), (INS, 2, 2)),
        updates((DEL, 3, 1)),
        updates(span=(4, 6)),
        updates((INS, 7, 7), (DEL, 8, 2)),
    ]
    worker, out = WorkerMachine(0, 1, 1, GRID), []
    for batch, lsn in enumerate((2, 3, 6, 7, 8)):
        assert worker.on(objects(lsn, batch)) == []
    assert worker.held == 5
    for i in order:
        out += worker.on(frames[i])
        worker.on(frames[i])  # a repeat is nothing
    assert worker.applied == 8
    assert worker.held == 0
    found = {s.frame.batch: s.frame.handle.tolist() for s in out}  # type: ignore[attr-defined]
    assert {b: sorted(h) for b, h in found.items()} == {
        0: [1, 2],
        1: [2],
        2: [2],
        3: [2, 7],
        4: [7],
    }


def test_a_batch_that_repeats_part_of_another_adds_only_what_is_new() -> None:
    worker = WorkerMachine(0, 1, 1, GRID)
    worker.on(updates((INS, 1, 1), (DEL, 2, 1), (INS, 3, 3)))
    worker.on(objects(3, watermark=3))
    worker.on(updates((INS, 1, 1), (DEL, 2, 1), (INS, 3, 3), (INS, 4, 4)))
    assert handles(worker.on(objects(4))) == [3, 4]


def test_objects_of_an_older_lsn_see_what_was_live_then() -> None:
    worker = WorkerMachine(0, 2, 1, GRID)
    worker.on(updates((INS, 1, 1), (INS, 2, 2), (DEL, 3, 1), (DEL, 4, 2)))
    assert [handles(worker.on(objects(lsn))) for lsn in range(5)] == [[], [1], [1, 2], [2], []]


def test_postings_go_only_when_all_dispatchers_have_passed_the_delete() -> None:
    worker = WorkerMachine(0, 2, 1, GRID)
    worker.on(updates((INS, 1, 1), (DEL, 2, 1)))
    worker.on(updates(span=(3, 3), dispatcher=0, watermark=3))
    assert worker.watermark == 0
    assert handles(worker.on(objects(1, dispatcher=1, watermark=1))) == [1]
    assert worker.stats().tombstones == 1
    worker.on(objects(3, dispatcher=1, watermark=3))
    worker.on(updates(span=(4, 4), dispatcher=0, watermark=1))  # a late one lowers nothing
    assert worker.watermark == 3
    assert worker.stats()[:3] == (0, 0, 0)


def test_a_delete_that_every_watermark_had_passed_goes_at_once() -> None:
    worker = WorkerMachine(0, 2, 1, GRID)
    worker.on(updates((INS, 1, 1)))
    for dispatcher in (0, 1):
        worker.on(Watermark(dispatcher, 2))
    worker.on(updates((DEL, 2, 1)))
    assert worker.stats()[:3] == (0, 0, 0)


def test_many_tombstones_force_a_sweep() -> None:
    worker = WorkerMachine(0, 1, 1, Grid(9, 8, max_cells=1 << 17))  # a posting in every cell
    lists = 1 << 17
    query = rows((INS, 1, 1))
    off, cell = Grid(9, 8, max_cells=lists).cover(query.box_off, query.box)
    packed = np.frombuffer(query.encode(), np.uint8)
    term = np.full(lists, TERM, np.uint64)
    worker.on(WorkerUpdates(1, 1, 0, 0, packed, off, cell, term))
    assert worker.stats().postings == lists
    worker.on(updates((DEL, 2, 1), watermark=2))
    for lsn in range(3, 20):
        worker.on(updates(span=(lsn, lsn)))
    assert worker.stats()[:3] == (0, 0, 0)


def test_other_frames_are_refused() -> None:
    with pytest.raises(TypeError, match="Completed"):
        WorkerMachine(0, 1, 1, GRID).on(Completed(merger=0, batch=np.zeros(0, np.int64)))
