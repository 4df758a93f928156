"""The messages that objects travel in: from the dispatcher to workers, back with what they found,
and on to the mergers that have some of it."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, U32, U64, Frame
from ps2stream.protocol.rows import no_offsets


def _no_words() -> U64:
    return np.zeros(0, np.uint64)


def _no_shares() -> F64:
    return np.zeros(0)


@dataclasses.dataclass(frozen=True, eq=False)
class RoutedObjects(Frame):
    """dispatcher -> worker: the rows of a batch that this worker must match. `batch` is the
    offset of the first object of the batch; object i has offset batch + i.

    The worker matches them as of `lsn`, once it has applied all updates to `needs`: none of
    needs + 1..lsn concerns it. No later message of this dispatcher has an LSN below
    `watermark`. row is the index in the batch. A batch may be sent again; where its shares may
    differ, `attempt` is higher. `route` is the number of the plan that chose the worker.
    `suspect` = 1: the batch may kill the worker, which sends Begin a while before it matches it.
    Bit i % 8 of chosen[i // 8] says whether term[i] chose this worker: only under such a term may
    it find a query. Under any, if chosen is empty. value: for each row the values that queries
    compare, see language/attribute_kernels.py; value_off is empty if no object has any.
    `dispatchers`: how many there were as of `watermark` or later (ProducerMap.mark); 0 if that has
    not changed since the service's start. The lowest watermark is that of all of them.
    """

    KIND = 21
    dispatcher: int
    batch: int
    attempt: int
    route: int
    lsn: int
    needs: int
    watermark: int
    suspect: int
    row: U32
    lon: F64
    lat: F64
    term_off: I64
    term: U64
    chosen: U8
    value_off: I64 = dataclasses.field(default_factory=no_offsets)
    value: U64 = dataclasses.field(default_factory=_no_words)
    dispatchers: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class MatchRelease(Frame):
    """dispatcher -> merger: pairs that workers found in a batch of `size` objects, for the sessions
    of this merger, and each object that they name once, in the order of the batch.

    The merger answers with the number `release` once the pairs are durable. It waits for the names
    of all queries to `needs`; none of needs + 1..lsn concerns it. `whole` = 1: these are all of
    the batch's pairs for this merger; 0: the answers of some workers, before those of others.
    `row` is the index of each object in the batch, and `pair_row` that of each pair's object;
    they are those of `answers` workers, each with its pairs by rising row, of which two may have
    found the same. Unless it is 0, `oldest` says
    that every batch of this dispatcher of a lower offset is complete or given up.

    Matches of new queries with objects that were still valid are a batch of their own: offset then
    says where each of its objects lies, and is empty otherwise. missed: sessions to be told that
    objects which may have matched are gone; such a release has no pairs.

    shed: a notice to all sessions that load was shed, also without pairs and a batch of its own:
    begin and end of the period, Unix ms, and in offsets; the objects that were shed; the matches of
    the sample. shed_share[i]: the estimated part of its matches that shed_session[i] lost; they
    rise, and the first, which is -1, stands for all others. `dispatchers`: as in RoutedObjects."""

    KIND = 23
    dispatcher: int
    batch: int
    size: int
    whole: int
    answers: int
    release: int
    lsn: int
    needs: int
    watermark: int
    oldest: int
    row: U32
    id_off: I64
    id: U8
    time: I64
    lon: F64
    lat: F64
    text_off: I64
    text: U8
    opaque_off: I64
    opaque: U8
    pair_row: U32
    handle: I64
    session: I64
    offset: I64 = dataclasses.field(default_factory=no_offsets)
    missed: I64 = dataclasses.field(default_factory=no_offsets)
    shed: I64 = dataclasses.field(default_factory=no_offsets)
    shed_session: I64 = dataclasses.field(default_factory=no_offsets)
    shed_share: F64 = dataclasses.field(default_factory=_no_shares)
    dispatchers: int = 0

    @property
    def end(self) -> int:
        """The offset after the batch's last object."""
        return self.batch + self.size


@dataclasses.dataclass(frozen=True, eq=False)
class WatermarkNotice(Frame):
    """dispatcher -> every worker and merger, at a tick if anything has changed: `watermark` and
    `dispatchers` as in RoutedObjects and `oldest` as in MatchRelease, for those that no other
    message reaches. No update in after + 1..lsn concerns the receiver."""

    KIND = 24
    dispatcher: int
    watermark: int
    oldest: int = 0
    after: int = 0
    lsn: int = 0
    dispatchers: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class MatchBatch(Frame):
    """worker -> dispatcher of the batch: the pairs that this worker found, perhaps none. The first
    count[0] of them are for sessions of merger 0, the next count[1] for those of merger 1, and so
    on, by the table of sessions that has been in force since the LSN `since`; where the batch is of
    another one, the dispatcher orders them anew. The matching took `took_us` microseconds, `cpu_us`
    of them on a processor, and `backlog` batches still wait at the worker."""

    KIND = 30
    worker: int
    batch: int
    attempt: int
    took_us: int
    cpu_us: int
    backlog: int
    count: I64
    row: U32
    handle: I64
    session: I64
    since: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class SessionTable(Frame):
    """dispatcher -> worker: the merger of each slot of sessions from the LSN `lsn` on
    (protocol/session_map.py). A worker that has not received it orders its pairs by an earlier
    table, which costs the dispatcher time and nothing else."""

    KIND = 25
    lsn: int
    table: U8


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
class ReleasesKept(Frame):
    """merger -> dispatcher: the pairs of these releases are durable, or were already. Repeated when
    a release is sent again. `collapsed`: pairs of this dispatcher's batches that came from two
    workers, since the start of the merger."""

    KIND = 40
    merger: int
    release: I64
    collapsed: int = 0
