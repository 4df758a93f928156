"""The messages between machines. The tables that some carry are in rows.py.

Addresses are (role, index). `Send` is what a machine returns. Every message is a
`Frame`, so the same value can be handed over in one process or as bytes.

Conventions: LSNs start at 1; `lsn_from..lsn_to` is inclusive; a handle is the LSN
of the query's insert; times are Unix ms; positions are degrees.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np

from ps2stream.batch import F64, I64, U8, U32, U64, Frame

Role = Literal["dispatcher", "worker", "merger", "sequencer", "controller"]
ROLES: tuple[Role, ...] = ("dispatcher", "worker", "merger", "sequencer", "controller")


def nothing() -> U8:
    """An empty column."""
    return np.zeros(0, np.uint8)


class Address(NamedTuple):
    role: Role
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs


class Send(NamedTuple):
    to: Address
    frame: Frame


class Reply(NamedTuple):
    """A dispatcher machine's answer to its edge (the gRPC service): an UpdateDecision
    that has become visible, a SessionGrant, a LookupReply, a Delivery. `frame.seq` or
    `frame.session` says whom it answers."""

    frame: Frame


Out = Send | Reply


class Status(IntEnum):
    """A sequencer's answer for one row of an UpdateRequest."""

    OK = 0
    ALREADY_EXISTS = 1
    NOT_FOUND = 2
    UNAVAILABLE = 3  # the ledger could not be written; nothing was done
    RESOURCE_EXHAUSTED = 4
    QUERY_QUOTA = 5  # the tenant has as many live queries as it may
    SESSION_QUOTA = 6


@dataclasses.dataclass(frozen=True, eq=False)
class UpdateRequest(Frame):
    """dispatcher -> sequencer. `rows` holds encoded QueryRows (for a delete only kind,
    id and session matter); name the session's name, request the request_id, a row.
    Sent again until it is answered: (dispatcher, epoch, seq) names it, and every one of
    this epoch with a seq below `settled` has been answered."""

    KIND = 10
    dispatcher: int
    epoch: int
    seq: int
    settled: int
    rows: U8
    name_off: I64
    name: U8
    request_off: I64
    request: U8

    def numbered(self, seq: int) -> UpdateRequest:
        """The same with this number."""
        return dataclasses.replace(self, seq=seq)


@dataclasses.dataclass(frozen=True, eq=False)
class UpdateDecision(Frame):
    """sequencer -> the asking dispatcher, after the commit: Status and LSN a row (the
    LSN of the first insert or delete for a repeat). The dispatcher answers its client
    once Visible has reached max(lsn)."""

    KIND = 11
    seq: int
    status: U8
    lsn: I64


@dataclasses.dataclass(frozen=True, eq=False)
class Applied(Frame):
    """sequencer -> every dispatcher, in LSN order: one committed ledger batch. `owner`
    is the dispatcher that routes the rows to workers and mergers. rows: QueryRows.

    Also the answer to Fetch, with owner -1: nobody hands it on. `state` is then 0 for the
    ledger's log, or the number of a state: the queries that live as of the LSN `until` and
    the lately deleted with their deletes, in frames that run from 1 to `until`. A state is
    taken whole: its first frame makes the receiver forget all it had, and until its last
    nothing else counts. Later states have higher numbers.

    `strategy`: a record that changes it (strategy.py), which has its LSN for itself; in the
    first frame of a state, the strategy as of `until`."""

    KIND = 12
    lsn_from: int
    lsn_to: int
    owner: int
    state: int
    until: int
    rows: U8
    strategy: U8 = dataclasses.field(default_factory=nothing)


@dataclasses.dataclass(frozen=True, eq=False)
class AppliedAck(Frame):
    """dispatcher -> sequencer: everything to `lsn` is in its gridt; `watermark` as in
    RoutedObjects. The rest are totals since its start: objects accepted; of these delayed for
    more than 0.1 s and stalled for more than 1 s; duplicate pairs, as in Completed."""

    KIND = 13
    dispatcher: int
    lsn: int
    watermark: int
    objects: int = 0
    delayed: int = 0
    stalled: int = 0
    collapsed: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Tip(Frame):
    """sequencer -> dispatchers when `visible` rises, and to everyone now and then: the
    ledger ends at `lsn`, every live dispatcher has applied `visible`. Who is behind for
    longer than messages take sends a Fetch."""

    KIND = 14
    lsn: int
    visible: int


@dataclasses.dataclass(frozen=True, eq=False)
class Fetch(Frame):
    """anyone -> sequencer: what follows on `after`; 0: all that is to be known. `role` is
    an index into ROLES; `state` the state that the asker has begun and not ended, else 0.
    Answered by one Applied of a bounded number of rows: of that state, of the log, or the
    first of a state where the log does not go back so far. A repeat is answered alike."""

    KIND = 19
    role: int
    index: int
    after: int
    state: int


@dataclasses.dataclass(frozen=True, eq=False)
class SessionRequest(Frame):
    """dispatcher -> sequencer: the number of the session of this name. `make` = 1: a new
    name gets one."""

    KIND = 15
    dispatcher: int
    seq: int
    make: int
    name: U8


@dataclasses.dataclass(frozen=True, eq=False)
class SessionGrant(Frame):
    """sequencer -> dispatcher: the answer to SessionRequest; 0: there is no such session, or
    it could not be made; negative: minus the quota that forbids it. `stream`: an epoch for a
    Deliver stream, above all before."""

    KIND = 16
    seq: int
    session: int
    stream: int


@dataclasses.dataclass(frozen=True, eq=False)
class LookupRequest(Frame):
    """dispatcher -> sequencer: live queries. With `id` non-empty that query alone; else
    those with handle > after, of `session` (0 = all), at most `limit`, in handle order; of
    the `tenant` (tenants.key) unless that is empty."""

    KIND = 17
    dispatcher: int
    seq: int
    session: int
    after: int
    limit: int
    id: U8
    tenant: U8


@dataclasses.dataclass(frozen=True, eq=False)
class LookupReply(Frame):
    """sequencer -> dispatcher. rows: encoded QueryRows; name: each row's session name;
    more = 1 when the listing goes on after the last handle; live: the tenant's live queries."""

    KIND = 18
    seq: int
    more: int
    live: int
    rows: U8
    name_off: I64
    name: U8


@dataclasses.dataclass(frozen=True, eq=False)
class WorkerUpdates(Frame):
    """owner dispatcher -> every worker. rows: encoded QueryRows, those this worker
    holds, without `id` and `source`; their tags ragged: tag_cell = level << 28 | cell on
    that level (uint32), tag_term the posting term. `dispatcher` and `watermark` as in
    RoutedObjects; `strategy` as in Applied."""

    KIND = 20
    lsn_from: int
    lsn_to: int
    dispatcher: int
    watermark: int
    rows: U8
    tag_off: I64
    tag_cell: U32
    tag_term: U64
    strategy: U8 = dataclasses.field(default_factory=nothing)


@dataclasses.dataclass(frozen=True, eq=False)
class RoutedObjects(Frame):
    """dispatcher -> worker: the rows of a batch that this worker must see. `batch` is
    the offset of the batch's first object; object i has offset batch + i.
    Match as of `lsn`. No later message of this dispatcher has an LSN below
    `watermark`. row is the index in the batch. A batch may be sent again; where its shares
    may differ, `attempt` is higher.
    `route` names the plan that chose the worker. `suspect` = 1: it may kill the worker,
    which says Begin a while before it looks at it."""

    KIND = 21
    dispatcher: int
    batch: int
    attempt: int
    route: int
    lsn: int
    watermark: int
    suspect: int
    row: U32
    lon: F64
    lat: F64
    term_off: I64
    term: U64


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


@dataclasses.dataclass(frozen=True, eq=False)
class MergerQueries(Frame):
    """owner dispatcher -> every merger: names of the queries of a ledger batch (every
    insert and delete of it, so each merger knows all handles of its sessions)."""

    KIND = 22
    lsn_from: int
    lsn_to: int
    dispatcher: int
    watermark: int
    kind: U8
    lsn: I64
    handle: I64
    session: I64
    id_off: I64
    id: U8


@dataclasses.dataclass(frozen=True, eq=False)
class Payload(Frame):
    """dispatcher -> every merger: what subscribers see of a batch. The merger holds the
    batch until it has this, answers of the same attempt from every `worker`, who got a share
    each, and the names of all queries to `lsn`. Of two attempts the higher counts. `oldest`,
    where it is told: every batch of this dispatcher of a lower offset is complete or given
    up."""

    KIND = 23
    dispatcher: int
    batch: int
    attempt: int
    lsn: int
    watermark: int
    worker: I64
    id_off: I64
    id: U8
    time: I64
    lon: F64
    lat: F64
    text_off: I64
    text: U8
    oldest: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Watermark(Frame):
    """dispatcher -> every worker and merger, now and then while it is idle: `watermark` as
    in RoutedObjects, for those that no other message has told."""

    KIND = 24
    dispatcher: int
    watermark: int


@dataclasses.dataclass(frozen=True, eq=False)
class Withdraw(Frame):
    """dispatcher -> every merger: this batch will not be completed; what it holds comes
    again in smaller batches, whose offsets lie within it and whose attempts are higher than
    this one, or never (quarantine)."""

    KIND = 25
    dispatcher: int
    batch: int
    attempt: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class MatchBatch(Frame):
    """worker -> every merger (also with no match): pairs for the merger's sessions."""

    KIND = 30
    worker: int
    dispatcher: int
    batch: int
    attempt: int
    row: U32
    handle: I64
    session: I64


@dataclasses.dataclass(frozen=True, eq=False)
class Stale(Frame):
    """worker -> the batch's dispatcher: refused, its plan is another than the worker's."""

    KIND = 31
    worker: int
    batch: int
    attempt: int
    route: int


@dataclasses.dataclass(frozen=True, eq=False)
class Begin(Frame):
    """worker -> the dispatcher of a suspect batch: this one comes next, and nothing else
    before it; batch = -1: it is over. If the worker dies in between, it was this batch."""

    KIND = 32
    worker: int
    batch: int
    attempt: int


@dataclasses.dataclass(frozen=True, eq=False)
class Completed(Frame):
    """merger -> the batch's dispatcher: every match of it is durable. Said again when the
    batch is sent again. `collapsed`: pairs of this dispatcher's batches that came from two
    workers, since the merger's start."""

    KIND = 40
    merger: int
    batch: I64
    collapsed: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Partial(Frame):
    """merger -> the batch's dispatcher: what is missing of it are answers of workers that
    have been silent for a while; every other match is durable."""

    KIND = 47
    merger: int
    batch: I64


@dataclasses.dataclass(frozen=True, eq=False)
class NamesKept(Frame):
    """merger -> sequencer, now and then: this merger needs no name of a query that was
    deleted at or below `lsn` from the ledger any more; it has those of pairs that it keeps in
    its match log. The state that Fetch is answered with holds all deleted above the minimum
    of the mergers'."""

    KIND = 46
    merger: int
    lsn: int
