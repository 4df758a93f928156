"""The messages between the controller and the actors whose load it watches.

Any of them may be lost: a period without a report is left out, without a sample no cell is
divided, and a requester that gets no reply requests again.
"""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import F64, I64, U8, U16, U32, U64, Frame


@dataclasses.dataclass(frozen=True, eq=False)
class LoadRequest(Frame):
    """controller -> every worker at the end of each period: requests a LoadReport. `epoch` is
    the controller's, `number` that of the period; both rise. The controller waits for the report
    for longer than `within` ticks."""

    KIND = 80
    epoch: int
    number: int
    within: int


@dataclasses.dataclass(frozen=True, eq=False)
class LoadReport(Frame):
    """worker -> controller: reports what the worker did in the last `periods` periods, 0 where
    it is not known how long that was. `route` is the number of the plan that objects are sent
    by; moving = 1: a migration is under way or another plan coexists.

    One row a cell: level << 28 | cell of the base level; other levels as a whole, as their cell
    0. objects matched there, checks (postings that these met under a term of theirs), postings
    inserted and deleted; then, as of now, queries (live postings) and the bytes that these take.
    """

    KIND = 81
    worker: int
    number: int
    periods: int
    route: int
    moving: int
    cell: U32
    objects: I64
    checks: I64
    inserts: I64
    deletes: I64
    queries: I64
    bytes: I64


@dataclasses.dataclass(frozen=True, eq=False)
class AdjustRequest(Frame):
    """dispatcher -> controller: requests the loads, and, unless `algorithm` (UTF-8) is empty,
    the adjustment that this algorithm would make. It starts nothing."""

    KIND = 82
    dispatcher: int
    seq: int
    algorithm: U8


@dataclasses.dataclass(frozen=True, eq=False)
class AdjustReply(Frame):
    """controller -> dispatcher. `problem`: why there is no adjustment (UTF-8), else empty; told:
    the loads, and the adjustment that was requested; plan: what it makes of the plan, empty
    where nothing migrates. Both are JSON."""

    KIND = 83
    seq: int
    problem: U8
    told: U8
    plan: U8


@dataclasses.dataclass(frozen=True, eq=False)
class SampleRequest(Frame):
    """controller -> every dispatcher: requests what it knows of these cells of the base level,
    as the controller would divide or join parts of them. `epoch` is the controller's, `number`
    the period's; cell uint32[c], ascending."""

    KIND = 84
    epoch: int
    number: int
    cell: U32


@dataclasses.dataclass(frozen=True, eq=False)
class SampleReport(Frame):
    """dispatcher -> controller: reports a sample of the cells that were requested. `route` is
    the number of the plan that it follows.

    n rows of objects that were lately accepted in these cells: degrees, text (UTF-8), attributes
    (bytes of an `Attributes` message, ragged; empty for none), how many objects a row stands for,
    and when it was accepted, ms; all that was accepted after `since`
    is in the sample or stood for. u rows of units of these cells, by cell and term, in which
    some of the objects met queries: the hash of the term, its kind and size if it is a watched
    literal (language/literals.py, else 0), and live queries. `dispatchers`: how many there are.
    """

    KIND = 85
    dispatcher: int
    epoch: int
    number: int
    route: int
    since: int
    lon: F64
    lat: F64
    text_off: I64
    text: U8
    attributes_off: I64
    attributes: U8
    weight: F64
    accepted: I64
    cell: U32
    term: U64
    kind: U8
    size: U16
    queries: I64
    dispatchers: int = 0


NO_CELL = (1 << 32) - 1
"""The cell of a word that is hot in no cell more than in others."""


@dataclasses.dataclass(frozen=True, eq=False)
class HotUnitsRequest(Frame):
    """controller -> every dispatcher, twice a second: requests a HotUnitsReport. `epoch` is the
    controller's, `number` rises; weigh = 1: also what queries the units have, which takes a look
    at all of H2."""

    KIND = 88
    epoch: int
    number: int
    weigh: int


@dataclasses.dataclass(frozen=True, eq=False)
class HotUnitsReport(Frame):
    """dispatcher -> controller: reports what objects met most lately. `route` is the number of the
    plan that it follows.

    In the last `ms` milliseconds it routed `objects`; sent int64[w]: of these to each worker.
    u rows of units, those with the highest share of the objects first: a cell of the base level,
    or, where cell is NO_CELL, a word (UTF-8, ragged) with the worker or group that owns it. Of each
    its postings, and `stored`, all that there are, or 0 if these were not requested; `updates`: the
    postings that were inserted or deleted in these milliseconds.

    busy int64[w]: the microseconds of a processor that each worker matched for what it answered;
    scatter float64[w]: the variance of `sent` by what single batches brought; crowded: 1 if batches
    were under way nearly all the time, and full, so that publications had to wait. `dispatchers`:
    how many there are.
    """

    KIND = 89
    dispatcher: int
    epoch: int
    number: int
    route: int
    objects: int
    ms: int
    updates: int
    stored: int
    sent: I64
    share: F64
    cell: U32
    term_off: I64
    term: U8
    owner: U32
    postings: I64
    busy: I64
    scatter: F64
    crowded: int
    dispatchers: int = 0
