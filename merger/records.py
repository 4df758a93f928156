"""The records of a merger's match log (contract.md 2, 3)."""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, U32, Frame
from ps2stream.protocol.rows import no_offsets


@dataclasses.dataclass(frozen=True, eq=False)
class MatchedRecord(Frame):
    """The pairs of one batch, the objects `batch` to `end` (exclusive) of `dispatcher`, for
    this merger's sessions; written at `written` (Unix ms). end = batch: these are only some of
    them, and others may follow in records of the same objects. end = batch - 1: another merger
    has found them, and here nothing is said of these objects.

    Session i (rising) has the pairs cut[i]..cut[i + 1], numbered from first[i] on, by rising
    object. `handle` is the query, and `index` a row of the object columns, which hold
    each matched object once; `opaque` as in ObjectRows."""

    KIND = 70
    dispatcher: int
    batch: int
    end: int
    lsn: int
    written: int
    session: I64
    first: I64
    cut: I64
    handle: I64
    index: U32
    offset: I64
    id_off: I64
    id: U8
    time: I64
    lon: F64
    lat: F64
    text_off: I64
    text: U8
    opaque_off: I64
    opaque: U8


@dataclasses.dataclass(frozen=True, eq=False)
class CursorsRecord(Frame):
    """Acknowledgements and gaps. The pairs of a session up to the number `acked` are acknowledged;
    those above it up to `lost` are a gap and will never be delivered."""

    KIND = 71
    session: I64
    acked: I64
    lost: I64


@dataclasses.dataclass(frozen=True, eq=False)
class CheckpointRecord(Frame):
    """A summary of all earlier records, except for the pairs that are still to be acknowledged and
    the names. A session's next pair is number `next`; acked and lost are as in Cursors. The
    offsets start..stop (exclusive) of `dispatcher` are done. Every pair so far was matched as of
    an LSN of at most `lsn`. table: the LSN of the table of sessions in force."""

    KIND = 72
    lsn: int
    written: int
    session: I64
    next: I64
    acked: I64
    lost: I64
    dispatcher: I64
    start: I64
    stop: I64
    table: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class DeadNamesRecord(Frame):
    """The names of queries that the ledger has dropped while pairs of them are kept, which have
    numbers up to `last` in their session. Handles rise."""

    KIND = 73
    session: I64
    handle: I64
    last: I64
    id_off: I64
    id: U8


@dataclasses.dataclass(frozen=True, eq=False)
class PlacesRecord(Frame):
    """Rows of a session's backlog (backlog.py), flat. Rows of level 0 are places of Matched
    records; those above are places of Places records one level below."""

    KIND = 74
    session: int
    level: int
    row: I64


@dataclasses.dataclass(frozen=True, eq=False)
class MissingRecord(Frame):
    """The pairs first..last of each session, which were lost with a log or never numbered; the
    session's next pair is number last + 1. Written before a service starts that is to continue
    without them. Or, for matches that were never found, as objects were gone before a new query
    could be matched against them, or load was shed: then the objects start..stop (exclusive) of
    `dispatcher`, which are none, are done.

    If load was shed, `shed` is as in MatchRelease, and share has the estimated part of its matches
    that each session lost. The number is then that of the notice, and of no pair. Sessions rise."""

    KIND = 75
    ADDED = 5
    session: I64
    first: I64
    last: I64
    dispatcher: int = 0
    start: int = 0
    stop: int = 0
    shed: I64 = dataclasses.field(default_factory=no_offsets)
    share: F64 = dataclasses.field(default_factory=lambda: np.zeros(0))


@dataclasses.dataclass(frozen=True, eq=False)
class TakenOverRecord(Frame):
    """The numbers of sessions that come from the merger `source` by the table of the LSN `lsn`; as
    in CheckpointRecord. Their records follow, and then an ArrivedRecord."""

    KIND = 76
    lsn: int
    source: int
    session: I64
    next: I64
    acked: I64
    lost: I64


@dataclasses.dataclass(frozen=True, eq=False)
class ArrivedRecord(Frame):
    """A note that all records of the sessions of a TakenOverRecord are in this log."""

    KIND = 77
    lsn: int
    source: int


@dataclasses.dataclass(frozen=True, eq=False)
class LeftRecord(Frame):
    """A note that these sessions are another merger's: what the records before say of their
    numbers and pairs does not count any more."""

    KIND = 78
    session: I64
