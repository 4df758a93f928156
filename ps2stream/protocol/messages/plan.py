"""The messages of a plan change: the request, the transfer of queries, the check at its end."""

from __future__ import annotations

import dataclasses
from enum import IntEnum

from ps2stream.protocol.frame import F64, I64, U8, Frame


@dataclasses.dataclass(frozen=True, eq=False)
class Load(Frame):
    """worker -> sequencer: of the queries that were inserted up to the LSN `begun`, those
    with handle > after that meet the box (west, south, east, north; degrees, west <= east),
    with their deletes. Answered by one Loaded; a repeat is answered anew."""

    KIND = 33
    worker: int
    begun: int
    after: int
    box: F64


@dataclasses.dataclass(frozen=True, eq=False)
class Loaded(Frame):
    """sequencer -> worker: rows (QueryRows), all of what was asked for with after < handle <=
    last, as it is now; last >= begun: there is no more."""

    KIND = 34
    begun: int
    after: int
    last: int
    rows: U8


@dataclasses.dataclass(frozen=True, eq=False)
class Hot(Frame):
    """worker -> sequencer, now and then until objects are routed so: it holds all that the
    strategy begun at this LSN gives it, and for that has loaded so many queries, in so many
    bytes of columns."""

    KIND = 35
    worker: int
    begun: int
    queries: int = 0
    bytes: int = 0


class Ask(IntEnum):
    """What a StrategyRequest asks for. MOVE: to its plan, or, without one, give up the move under
    way; TELL: only say what the strategy is; COEXIST: let its plan coexist with the present one;
    UNITE: move what is left to the plan that coexists."""

    MOVE = 0
    TELL = 1
    COEXIST = 2
    UNITE = 3


@dataclasses.dataclass(frozen=True, eq=False)
class Postings(Frame):
    """worker or dispatcher -> sequencer, when it has applied the end of a move at `lsn`, and now
    and then until the sequencer has heard all. count, int64: of a worker, the live postings that
    it holds; of a dispatcher, those of each worker by the plan. `role` is an index into ROLES."""

    KIND = 38
    role: int
    index: int
    lsn: int
    count: I64


@dataclasses.dataclass(frozen=True, eq=False)
class StrategyRequest(Frame):
    """dispatcher or controller -> sequencer. `ask`: an Ask; `plan`: JSON or empty; `role` is an
    index into ROLES."""

    KIND = 36
    role: int
    index: int
    seq: int
    ask: int
    plan: U8


@dataclasses.dataclass(frozen=True, eq=False)
class StrategyReply(Frame):
    """sequencer -> who asked. `problem`: why nothing was done (UTF-8), else empty; `wait` = 1:
    it passes; the LSN of what was; the strategy as a record; where a move stands, and those that
    ended (JSON). Of `live` queries `old` belong to the plan that another one is to follow."""

    KIND = 37
    seq: int
    lsn: int
    wait: int
    live: int
    old: int
    problem: U8
    strategy: U8
    state: U8
