"""A router machine and its messages, for its tests and those of its parts."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps2stream.dispatcher.router import RouterMachine
from ps2stream.protocol.addresses import Address, Out, Send
from ps2stream.protocol.messages.objects import (
    MatchBatch,
    ReleasesKept,
    RoutedObjects,
    WatermarkNotice,
)
from ps2stream.protocol.messages.updates import (
    LedgerBatch,
    LedgerTip,
)
from ps2stream.protocol.rows import ObjectRows, UpdateKind
from ps2stream.protocol.ticks import NOTICE_TICKS
from ps2stream.routing.h1 import H1, HashedLeaf, HashedReplica
from ps2stream.space.grid import Grid
from tests.support.routing import Row, object_rows, query_rows

GRID = Grid(lon_bits=5, lat_bits=4)


Pair = tuple[int, int, int]  # row, handle, session
WEST, EAST = (-20.0, 0.0, -20.0, 0.0), (20.0, 0.0, 20.0, 0.0)


def machine(
    index: int = 0,
    mergers: int = 2,
    max_in_flight: int = 8,
    replicas: Sequence[HashedReplica] = (),
) -> RouterMachine:
    """Worker 0 owns the west, worker 1 the east, worker 2 nothing; some own units together."""
    cells = (np.arange(1 << 9) % 32 >= 16).astype(np.uint32)
    h1 = H1(3, cells, [HashedLeaf((0,)), HashedLeaf((1,))], replicas)
    router = RouterMachine(
        index=index,
        dispatchers=2,
        mergers=mergers,
        h1=h1,
        grid=GRID,
        max_in_flight=max_in_flight,
    )
    assert router.on(LedgerTip(0, 0)) == []  # there is nothing to catch up with
    return router


def applied(rows: list[Row], lsn_from: int, lsn_to: int, owner: int = 0) -> LedgerBatch:
    data = np.frombuffer(query_rows(rows).encode(), np.uint8)
    return LedgerBatch(lsn_from, lsn_to, owner, 0, 0, data)


def insert(lsn: int, term: int = 7, box: tuple[float, ...] = WEST, owner: int = 0) -> LedgerBatch:
    return applied([Row((term,), (0,), (box,), UpdateKind.INSERT, lsn, lsn)], lsn, lsn, owner)  # type: ignore[arg-type]


def delete(lsn: int, handle: int, term: int = 7, box: tuple[float, ...] = WEST) -> LedgerBatch:
    return applied([Row((term,), (0,), (box,), UpdateKind.DELETE, lsn, handle)], lsn, lsn)  # type: ignore[arg-type]


def posts(*terms: int, lon: float = -20.0) -> ObjectRows:
    return object_rows([lon] * len(terms), [0.0] * len(terms), [(t,) for t in terms])


def sent(out: Sequence[Out], role: str, kind: type[Any]) -> list[tuple[int, Any]]:
    return [
        (o.to.index, o.frame)
        for o in out
        if isinstance(o, Send) and o.to.role == role and isinstance(o.frame, kind)
    ]


def answer(
    worker: int,
    batch: int,
    *pairs: Pair,
    mergers: int = 2,
    attempt: int = 0,
    backlog: int = 0,
) -> MatchBatch:
    """A worker's answer, as workers send it: pairs in the order of their mergers."""
    found = sorted(pairs, key=lambda pair: pair[2] % mergers)
    row, handle, session = np.array(found, np.int64).reshape(-1, 3).T
    count = np.bincount(session % mergers, minlength=mergers)
    return MatchBatch(
        worker, batch, attempt, 0, 0, backlog, count, row.astype(np.uint32), handle, session
    )


def kept(merger: int, *release: int, collapsed: int = 0) -> ReleasesKept:
    return ReleasesKept(merger, np.array(release, np.int64), collapsed)


def close(router: RouterMachine, *batches: int, worker: int = 0, attempt: int = 0) -> list[Out]:
    """The worker that got all of these batches has found nothing in them."""
    return [
        out
        for batch in batches
        for out in router.take_answer(
            answer(worker, batch, mergers=router.sessions.mergers, attempt=attempt), 0.0
        )
    ]


def fed(rows: list[Row], lsn_from: int, lsn_to: int, state: int, until: int) -> LedgerBatch:
    return dataclasses.replace(applied(rows, lsn_from, lsn_to, -1), state=state, until=until)


def row(lsn: int, kind: UpdateKind = UpdateKind.INSERT, handle: int = 0) -> Row:
    return Row((7,), (0,), (WEST,), kind, lsn, handle or lsn)


def noticed(router: RouterMachine, role: str) -> list[tuple[int, WatermarkNotice]]:
    """What those of this role are noticed in the time in which there is one notice."""
    out = [each for _ in range(NOTICE_TICKS) for each in router.tick()]
    return sent(out, role, WatermarkNotice)


def resent(router: RouterMachine) -> list[RoutedObjects]:
    """What a new incarnation of worker 0 is sent."""
    return [f for _, f in sent(router.joined(Address("worker", 0)), "worker", RoutedObjects)]
