"""The messages of a plan change: the request, the transfer of queries, the check at its end."""

from __future__ import annotations

import dataclasses
from enum import IntEnum

from ps2stream.protocol.frame import F64, I64, U8, U64, Frame


@dataclasses.dataclass(frozen=True, eq=False)
class TransferRequest(Frame):
    """worker -> sequencer: requests, of the queries inserted up to the LSN `begun`, those with
    handle > after that meet the box (west, south, east, north; degrees, west <= east) and have one
    of these terms, or any if there is none, with their deletes. Answered by one TransferChunk; a
    repeat is answered anew."""

    KIND = 33
    worker: int
    begun: int
    after: int
    box: F64
    term: U64


@dataclasses.dataclass(frozen=True, eq=False)
class TransferChunk(Frame):
    """sequencer -> worker: rows (QueryRows) of all that was requested with after < handle <=
    last, as it is now; last >= begun: there is no more."""

    KIND = 34
    begun: int
    after: int
    last: int
    rows: U8


@dataclasses.dataclass(frozen=True, eq=False)
class TransferDone(Frame):
    """worker -> sequencer, now and then until objects are routed by the following plan: reports
    that the worker holds all that the plan change begun at this LSN gives it, and received
    `queries` queries for that, in so many bytes of columns."""

    KIND = 35
    worker: int
    begun: int
    queries: int = 0
    bytes: int = 0


class PlanAction(IntEnum):
    """The change that a PlanChangeRequest asks for. MOVE: a migration to its plan, or, without
    one, the end of the migration under way; TELL: none, only the plans as they are; COEXIST: let
    its plan coexist with the present one; UNITE: migrate what is left to the plan that coexists;
    REGRID: start under its plan, which has another grid, next time."""

    MOVE = 0
    TELL = 1
    COEXIST = 2
    UNITE = 3
    REGRID = 4


@dataclasses.dataclass(frozen=True, eq=False)
class PostingCounts(Frame):
    """worker or dispatcher -> sequencer, when it has applied the end of a migration at `lsn`,
    and now and then until the sequencer has received all. count, int64: of a worker, the live
    postings that it holds; of a dispatcher, those of each worker by the plan but for sharded units,
    and then those of all sharded units. `role` is an index into ROLES."""

    KIND = 38
    role: int
    index: int
    lsn: int
    count: I64


@dataclasses.dataclass(frozen=True, eq=False)
class PlanChangeRequest(Frame):
    """dispatcher or controller -> sequencer: requests a plan change. `ask`: an Ask; `plan`: JSON
    or empty; `role` is an index into ROLES."""

    KIND = 36
    role: int
    index: int
    seq: int
    ask: int
    plan: U8


@dataclasses.dataclass(frozen=True, eq=False)
class PlanChangeReply(Frame):
    """sequencer -> requester. `problem`: why nothing was done (UTF-8), else empty; `wait` = 1:
    it passes; the LSN of what was done; the plans as a record; how far a migration is, and those
    that ended (JSON). Of `live` queries, `old` belong to the plan that another one is to follow."""

    KIND = 37
    seq: int
    lsn: int
    wait: int
    live: int
    old: int
    problem: U8
    strategy: U8
    state: U8
