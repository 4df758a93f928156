"""A worker machine and its messages, for its tests."""

from __future__ import annotations

import numpy as np

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.addresses import ROLES, Address, Send
from ps2stream.protocol.frame import U8
from ps2stream.protocol.messages.objects import (
    MatchBatch,
    RoutedObjects,
)
from ps2stream.protocol.messages.updates import LedgerBatch, LedgerFetch, WorkerUpdates
from ps2stream.protocol.rows import ExpressionForm, QueryRows, RegionShape, UpdateKind, no_queries
from ps2stream.routing.plan import text_plan
from ps2stream.routing.tags import QueryTagger
from ps2stream.space.grid import Grid
from ps2stream.workers.index import ALL_TERMS
from ps2stream.workers.machine import WorkerMachine

GRID = Grid(4, 3)


ROUTE = 7


TERM = 42


def rows(*updates: tuple[UpdateKind, int, int]) -> QueryRows:
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
        form=np.full(n, ExpressionForm.ALL, np.uint8),
        post=np.ones(n, np.uint64),
        shape=np.full(n, RegionShape.WORLD, np.uint8),
        term_off=np.arange(n + 1),
        term=np.full(n, TERM, np.uint64),
        box_off=np.arange(n + 1) * 4,
        box=np.tile([-180.0, -90.0, 180.0, 90.0], n),
        id_off=zeros,
        prog_off=zeros,
        geom_off=zeros,
        source_off=zeros,
    )


def tagger(workers: int = 1, grid: Grid = GRID) -> QueryTagger:
    """Units are divided among the workers by a hash of their term."""
    plan = text_plan(Analysis(salt=7), grid, workers)
    return QueryTagger(plan.compile(Analyzer(plan.analysis)), grid)


def worker(index: int = 0, dispatchers: int = 1, mergers: int = 1) -> WorkerMachine:
    return WorkerMachine(index, dispatchers, mergers, tagger(), ROUTE)


def updates(
    *changes: tuple[UpdateKind, int, int],
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


def fetched(
    *changes: tuple[UpdateKind, int, int], span: tuple[int, int], state: int = 0, until: int = 0
) -> LedgerBatch:
    query = rows(*changes) if changes else no_queries()
    return LedgerBatch(*span, -1, state, until, np.frombuffer(query.encode(), np.uint8))


def objects(
    lsn: int,
    batch: int = 0,
    row: int = 5,
    dispatcher: int = 0,
    watermark: int = 0,
    attempt: int = 1,
    route: int = ROUTE,
    suspect: int = 0,
    needs: int | None = None,
    chosen: U8 = ALL_TERMS,
) -> RoutedObjects:
    """An object with TERM; unless `needs` is given, the last update concerns the worker."""
    return RoutedObjects(
        dispatcher=dispatcher,
        batch=batch,
        attempt=attempt,
        route=route,
        lsn=lsn,
        needs=lsn if needs is None else needs,
        watermark=watermark,
        suspect=suspect,
        row=np.array([row], np.uint32),
        lon=np.array([1.0]),
        lat=np.array([2.0]),
        term_off=np.array([0, 1]),
        term=np.array([TERM], np.uint64),
        chosen=chosen,
    )


def handles(out: list[Send]) -> list[int]:
    return sorted(h for s in out if isinstance(s.frame, MatchBatch) for h in s.frame.handle)


def asked(out: list[Send]) -> list[tuple[int, int]]:
    """(after, state) of each Fetch."""
    fetches = [(s.to, s.frame) for s in out if isinstance(s.frame, LedgerFetch)]
    assert all(to == Address("sequencer", 0) for to, _ in fetches)
    assert all(ROLES[f.role] == "worker" for _, f in fetches)
    return [(f.after, f.state) for _, f in fetches]


INS, DEL = UpdateKind.INSERT, UpdateKind.DELETE
