"""The messages between the controller and those whose load it looks at.

Any of them may be lost: a period without a report is left out, without a sample no cell is
divided, and who asked asks again.
"""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, Frame


@dataclasses.dataclass(frozen=True, eq=False)
class LoadRequest(Frame):
    """controller -> every worker at the end of each period: say what you did. `epoch` is the
    controller's, `number` that of the period; both rise. The answer is awaited for longer
    than `within` ticks."""

    KIND = 80
    epoch: int
    number: int
    within: int


@dataclasses.dataclass(frozen=True, eq=False)
class LoadReport(Frame):
    """worker -> controller: what it did in the last `periods` periods, 0 where it is not known
    how long that was. `route` names the plan that objects come by; moving = 1: another follows
    or is being left.

    One row a cell: level << 28 | cell of the base level; other levels as a whole, as their
    cell 0. objects that were looked at, checks (postings that they met under a term of
    theirs), postings inserted and deleted; as it is now queries (live postings) and the bytes
    that these take."""

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
    """dispatcher -> controller: tell the loads, and, unless `algorithm` (UTF-8) is empty, what
    adjustment this one would make. Nothing begins by it."""

    KIND = 82
    dispatcher: int
    seq: int
    algorithm: U8


@dataclasses.dataclass(frozen=True, eq=False)
class AdjustReply(Frame):
    """controller -> dispatcher. `problem`: why there is no adjustment (UTF-8), else empty;
    told: the loads, and the adjustment that was asked for; plan: what it makes of the plan,
    empty where nothing moves. Both are JSON."""

    KIND = 83
    seq: int
    problem: U8
    told: U8
    plan: U8


@dataclasses.dataclass(frozen=True, eq=False)
class SampleRequest(Frame):
    """controller -> every dispatcher: say what you know of these cells of the base level, of
    which it would divide or join parts. `epoch` is the controller's, `number` the period's;
    cell uint32[c], ascending."""

    KIND = 84
    epoch: int
    number: int
    cell: U32


@dataclasses.dataclass(frozen=True, eq=False)
class SampleReport(Frame):
    """dispatcher -> controller. `route` names the plan that it goes by.

    Objects that were lately accepted in the cells asked for, n rows: degrees, text (UTF-8),
    how many objects a row stands for, and when it was accepted, ms; what came after `since`
    is all in the sample or stood for. Units of these cells in which some of the objects met
    queries, u rows by cell and term: its hash, and live queries."""

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
    weight: F64
    accepted: I64
    cell: U32
    term: U64
    queries: I64
