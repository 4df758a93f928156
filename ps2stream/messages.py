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

from ps2stream.batch import F64, I64, U8, U32, U64, Frame

Role = Literal["dispatcher", "worker", "merger", "sequencer"]


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
    id and session matter); name the session's name, request the request_id, a row."""

    KIND = 10
    dispatcher: int
    seq: int
    rows: U8
    name_off: I64
    name: U8
    request_off: I64
    request: U8


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
    is the dispatcher that routes the rows to workers and mergers. rows: QueryRows."""

    KIND = 12
    lsn_from: int
    lsn_to: int
    owner: int
    rows: U8


@dataclasses.dataclass(frozen=True, eq=False)
class AppliedAck(Frame):
    """dispatcher -> sequencer: everything to `lsn` is in its gridt."""

    KIND = 13
    dispatcher: int
    lsn: int


@dataclasses.dataclass(frozen=True, eq=False)
class Visible(Frame):
    """sequencer -> dispatchers: every dispatcher has applied `lsn`."""

    KIND = 14
    lsn: int


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
    it could not be made; negative: minus the quota that forbids it."""

    KIND = 16
    seq: int
    session: int


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
    RoutedObjects."""

    KIND = 20
    lsn_from: int
    lsn_to: int
    dispatcher: int
    watermark: int
    rows: U8
    tag_off: I64
    tag_cell: U32
    tag_term: U64


@dataclasses.dataclass(frozen=True, eq=False)
class RoutedObjects(Frame):
    """dispatcher -> worker: the rows of a batch that this worker must see. `batch` is
    the offset of the batch's first object; object i has offset batch + i.
    Match as of `lsn`. No later message of this dispatcher has an LSN below
    `watermark`. `expected` workers got a share of the batch; row is the index in the
    batch."""

    KIND = 21
    dispatcher: int
    batch: int
    lsn: int
    watermark: int
    expected: int
    row: U32
    lon: F64
    lat: F64
    term_off: I64
    term: U64


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
    batch until it has this, `expected` answers and every MergerQueries to `lsn`."""

    KIND = 23
    dispatcher: int
    batch: int
    lsn: int
    watermark: int
    expected: int
    id_off: I64
    id: U8
    time: I64
    lon: F64
    lat: F64
    text_off: I64
    text: U8


@dataclasses.dataclass(frozen=True, eq=False)
class Watermark(Frame):
    """dispatcher -> every worker and merger, now and then while it is idle: `watermark` as
    in RoutedObjects, for those that no other message has told."""

    KIND = 24
    dispatcher: int
    watermark: int


@dataclasses.dataclass(frozen=True, eq=False)
class MatchBatch(Frame):
    """worker -> every merger (also with no match): pairs for the merger's sessions."""

    KIND = 30
    worker: int
    dispatcher: int
    batch: int
    row: U32
    handle: I64
    session: I64


@dataclasses.dataclass(frozen=True, eq=False)
class Completed(Frame):
    """merger -> the batch's dispatcher."""

    KIND = 40
    merger: int
    batch: I64


@dataclasses.dataclass(frozen=True, eq=False)
class Attach(Frame):
    """dispatcher -> merger: a Deliver stream for `session` stands at `dispatcher`, as
    stream `epoch` (higher wins, the older stream ends). fields: bit 0 text, 1 position,
    2 time. credit_batches and credit_bytes may be sent before more are granted."""

    KIND = 41
    session: int
    epoch: int
    dispatcher: int
    fields: int
    credit_batches: int
    credit_bytes: int


@dataclasses.dataclass(frozen=True, eq=False)
class Credit(Frame):
    """dispatcher -> merger: the client took delivery of this many batches and bytes;
    `ack` is the highest session_seq it has acknowledged."""

    KIND = 42
    session: int
    epoch: int
    batches: int
    bytes: int
    ack: int


@dataclasses.dataclass(frozen=True, eq=False)
class Detach(Frame):
    """dispatcher -> merger: the stream `epoch` is gone; matches go to the backlog."""

    KIND = 43
    session: int
    epoch: int


@dataclasses.dataclass(frozen=True, eq=False)
class Delivery(Frame):
    """merger -> dispatcher: bytes for the stream, an encoded DeliverResponse. closed = 1:
    another stream took the session over; end the stream."""

    KIND = 44
    session: int
    epoch: int
    closed: int
    data: U8
