"""The messages of objects on their way: from the dispatcher to workers and mergers, and back."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, Frame


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
