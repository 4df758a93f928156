"""The messages that objects travel in: from the dispatcher to workers and mergers, and back."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, Frame


@dataclasses.dataclass(frozen=True, eq=False)
class RoutedObjects(Frame):
    """dispatcher -> worker: the rows of a batch that this worker must match. `batch` is the
    offset of the first object of the batch; object i has offset batch + i.

    The worker matches them as of `lsn`. No later message of this dispatcher has an LSN below
    `watermark`. row is the index in the batch. A batch may be sent again; where its shares may
    differ, `attempt` is higher. `route` is the number of the plan that chose the worker.
    `suspect` = 1: the batch may kill the worker, which sends Begin a while before it matches it.
    """

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
class BatchContent(Frame):
    """dispatcher -> every merger: what subscribers see of a batch. The merger holds the batch
    until it has this, answers of the same attempt from every `worker`, each of which got a
    share, and the names of all queries to `lsn`. Of two attempts the higher counts. Unless it is
    0, `oldest` says that every batch of this dispatcher of a lower offset is complete or given
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
class WatermarkNotice(Frame):
    """dispatcher -> every worker and merger, now and then while it is idle: `watermark` as in
    RoutedObjects, for those that no other message reaches."""

    KIND = 24
    dispatcher: int
    watermark: int


@dataclasses.dataclass(frozen=True, eq=False)
class BatchWithdrawal(Frame):
    """dispatcher -> every merger: this batch will not be completed. Its objects come again in
    smaller batches, whose offsets lie within it and whose attempts are higher than this one, or
    never (quarantine)."""

    KIND = 25
    dispatcher: int
    batch: int
    attempt: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class MatchBatch(Frame):
    """worker -> every merger, even without a match: pairs for the sessions of the merger."""

    KIND = 30
    worker: int
    dispatcher: int
    batch: int
    attempt: int
    row: U32
    handle: I64
    session: I64


@dataclasses.dataclass(frozen=True, eq=False)
class StaleRoute(Frame):
    """worker -> dispatcher of the batch: refuses it, as its plan is not the worker's."""

    KIND = 31
    worker: int
    batch: int
    attempt: int
    route: int


@dataclasses.dataclass(frozen=True, eq=False)
class SuspectBegin(Frame):
    """worker -> dispatcher of a suspect batch: this batch is matched next, and nothing else
    before it; batch = -1: it is over. If the worker dies in between, it was this batch."""

    KIND = 32
    worker: int
    batch: int
    attempt: int


@dataclasses.dataclass(frozen=True, eq=False)
class BatchesCompleted(Frame):
    """merger -> dispatcher of the batch: every match of it is durable. Repeated when the batch
    is sent again. `collapsed`: pairs of this dispatcher's batches that came from two workers,
    since the start of the merger."""

    KIND = 40
    merger: int
    batch: I64
    collapsed: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class BatchesPartial(Frame):
    """merger -> dispatcher of the batch: every match of it is durable, except those of workers
    that have not answered for a while."""

    KIND = 47
    merger: int
    batch: I64
