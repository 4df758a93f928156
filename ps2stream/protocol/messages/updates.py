"""The messages of query updates: requests, their one order, and how far each actor has applied
it.

Conventions of all messages: LSNs start at 1; `lsn_from..lsn_to` is inclusive; a handle is the
LSN of the query's insert; times are Unix ms; positions are degrees. The tables that some carry
are in protocol/rows.py.
"""

from __future__ import annotations

import dataclasses
from enum import IntEnum

from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.frame import I64, U8, U32, U64, Frame


class UpdateStatus(IntEnum):
    """The sequencer's answer for one row of an UpdateRequest."""

    OK = 0
    ALREADY_EXISTS = 1
    NOT_FOUND = 2
    UNAVAILABLE = 3  # the ledger could not be written; nothing was done
    RESOURCE_EXHAUSTED = 4
    QUERY_QUOTA = 5  # the tenant has as many live queries as it may
    SESSION_QUOTA = 6
    FAILED_PRECONDITION = 7  # the query that was to be replaced is gone, or another has its id


@dataclasses.dataclass(frozen=True, eq=False)
class UpdateRequest(Frame):
    """dispatcher -> sequencer: requests updates. `rows` holds encoded QueryRows (for a delete
    only kind, id and session matter), of which some may be a REPLACE, whose handle is that of the
    query which alone it may replace, or 0; name the session's name, request the request_id, a row.
    The request_ids of a batch of replacements differ by row.
    Sent again until it is answered: (dispatcher, epoch, seq) identifies it, and every one of
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
        """Returns the same request with this number."""
        return dataclasses.replace(self, seq=seq)


@dataclasses.dataclass(frozen=True, eq=False)
class UpdateDecision(Frame):
    """sequencer -> requesting dispatcher, after the commit: Status and LSN of each row (the LSN
    of the first insert, delete or replacement for a repeat). The dispatcher answers its client once
    visible has reached max(lsn)."""

    KIND = 11
    seq: int
    status: U8
    lsn: I64


@dataclasses.dataclass(frozen=True, eq=False)
class LedgerBatch(Frame):
    """sequencer -> every dispatcher, in LSN order: one committed ledger batch. `owner` is the
    dispatcher that routes the rows to workers and mergers. rows: QueryRows. In the ledger's log,
    `until` is the highest LSN of which compaction left a row out, 0 if it left none out.

    Also the answer to Fetch, with owner -1: no dispatcher routes it. `state` is then 0 for the
    ledger's log, or the number of a state: the queries that live as of the LSN `until` and the
    lately deleted with their deletes, in frames that run from 1 to `until`. A state is taken
    whole: with its first frame the receiver drops all it had, and until its last nothing else
    counts. Later states have higher numbers. `total`: the rows of all frames of the state, which
    for a dispatcher have no ids and no sources.

    `strategy`: a record that changes the plans (routing/plan_changes.py), which has its LSN for
    itself; in the first frame of a state, the plans as of `until`. `sessions`: likewise a record
    that changes which merger has a session, or how many dispatchers there are
    (protocol/session_map.py).
    """

    KIND = 12
    ADDED = 2
    lsn_from: int
    lsn_to: int
    owner: int
    state: int
    until: int
    rows: U8
    strategy: U8 = dataclasses.field(default_factory=nothing)
    sessions: U8 = dataclasses.field(default_factory=nothing)
    total: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class AppliedReport(Frame):
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
class LedgerTip(Frame):
    """sequencer -> dispatchers when `visible` rises, and to every actor now and then: the ledger
    ends at `lsn`, every live dispatcher has applied `visible`. An actor that is behind for
    longer than messages take sends a Fetch."""

    KIND = 14
    lsn: int
    visible: int


@dataclasses.dataclass(frozen=True, eq=False)
class LedgerFetch(Frame):
    """any actor -> sequencer: requests what follows `after`; 0: all that is to be known. `role`
    is an index into ROLES; `state` the state that the sender has begun and not ended, else 0.
    Answered by one Applied of a bounded number of rows: of that state, of the log, or the first
    of a state where the log does not go back so far. A repeat is answered alike."""

    KIND = 19
    role: int
    index: int
    after: int
    state: int


@dataclasses.dataclass(frozen=True, eq=False)
class LookupRequest(Frame):
    """dispatcher -> sequencer: requests live queries. With `id` non-empty that query alone; else
    those with handle > after, of `session` (0 = all), at most `limit`, in handle order; of the
    `tenant` (tenants.key) unless that is empty."""

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
    """sequencer -> dispatcher: the queries. rows: encoded QueryRows; name: each row's session
    name; more = 1 when the listing continues after the last handle; live: the tenant's live
    queries."""

    KIND = 18
    seq: int
    more: int
    live: int
    rows: U8
    name_off: I64
    name: U8


@dataclasses.dataclass(frozen=True, eq=False)
class WorkerUpdates(Frame):
    """owner dispatcher -> the workers that an update concerns: all that concerns this worker in
    lsn_from..lsn_to. rows: encoded QueryRows that this worker holds, without `id` and `source`;
    their tags ragged: tag_cell = level << 28 | cell on that level (uint32), tag_term the posting
    term. `dispatcher`, `watermark` and `dispatchers` as in RoutedObjects; `strategy` as in
    Applied."""

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
    dispatchers: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class MergerQueries(Frame):
    """owner dispatcher -> the mergers that an update concerns: the inserts and deletes in
    lsn_from..lsn_to of queries of this merger's sessions, with their names; or a change of the
    sessions of all mergers, `sessions` as in LedgerBatch. `dispatchers` as in RoutedObjects."""

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
    sessions: U8 = dataclasses.field(default_factory=nothing)
    dispatchers: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class NamesKept(Frame):
    """merger -> sequencer, now and then: this merger needs from the ledger no more names of
    queries that were deleted at or below `lsn`; it keeps those of pairs in its match log itself.
    A state, which Fetch is answered with, holds all deleted above the minimum over the mergers.
    table: the LSN of the table of sessions of which this is true."""

    KIND = 46
    ADDED = 1
    merger: int
    lsn: int
    table: int = 0
