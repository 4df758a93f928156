"""The records that a dispatcher writes to its object log (contract.md 2, 3)."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import I64, U8, U32, U64, Frame


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectRecord(Frame):
    """An accepted batch: the offset of its first object, the LSN as of which it is matched, and
    its encoded ObjectRows."""

    KIND = 52
    batch: int
    lsn: int
    rows: U8


@dataclasses.dataclass(frozen=True, eq=False)
class ProgressRecord(Frame):
    """A note that every batch of this log below offset `batch` is complete, and that objects
    have offsets below `below` until a later note says more."""

    KIND = 53
    batch: int
    below: int


@dataclasses.dataclass(frozen=True, eq=False)
class QuarantineRecord(Frame):
    """A note that the object at this offset killed workers and is not matched any more."""

    KIND = 54
    offset: int


@dataclasses.dataclass(frozen=True, eq=False)
class SplitRecord(Frame):
    """A note that the batch which holds offset `at` inside is two from now on; the second begins
    there."""

    KIND = 55
    at: int


@dataclasses.dataclass(frozen=True, eq=False)
class IdentifiedRecord(Frame):
    """An accepted batch, as in ObjectRecord, of publications that have a producer and a seq. One
    record holds both, so that a crash loses both or neither. For each publication: count is the
    number of its rows; seq; producer is its stored name; digest is of its content, two integers.
    """

    KIND = 57
    batch: int
    lsn: int
    rows: U8
    count: I64
    seq: U64
    producer_off: I64
    producer: U8
    digest: U64


@dataclasses.dataclass(frozen=True, eq=False)
class ProducerRecord(Frame):
    """The window of one producer as of this record (dispatcher/producers.py): its stored name;
    floor, one integer: no seq up to it is published any more; entries, uint64[n * 6]."""

    KIND = 58
    producer: U8
    floor: U64
    entries: U64


@dataclasses.dataclass(frozen=True, eq=False)
class ForgottenRecord(Frame):
    """A note that no window before this record counts: they are of the time before the dispatcher
    left, and it has joined again at the LSN `lsn`."""

    KIND = 99
    lsn: int


@dataclasses.dataclass(frozen=True, eq=False)
class ValidObjectsRecord(Frame):
    """Objects that are still valid, written again so that the log may be trimmed before them: the
    encoded ObjectRows, and the offset and the LSN of each."""

    KIND = 59
    rows: U8
    offset: I64
    lsn: I64


@dataclasses.dataclass(frozen=True, eq=False)
class ValidityRecord(Frame):
    """A note of what is done and what is gone: every insert with retro up to the LSN `done` was
    matched against the valid objects, with what the `parts` RetroRecords before this hold, and
    none of those objects has an end up to `horizon`, Unix ms. `left_out`: the latest end of the
    objects of dispatchers that the service was started without, and of those that were given up;
    given_up = 1: no object before this record counts, as the dispatcher leaves."""

    KIND = 62
    ADDED = 2
    done: int
    horizon: int
    parts: int
    left_out: int
    given_up: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class RetroRecord(Frame):
    """Matches of new queries with objects that were still valid: part number `part`, from 0, of
    those that a ValidityRecord behind the last part ends. They count only if that is there.

    They are released as a batch of their own, with the offset `batch` and the LSN of the first of
    the queries. rows: the encoded ObjectRows of the objects that match, without terms, which may be
    none, and offset where each lies; pair_row, handle and session of each pair, by rising row;
    missed: sessions to be told that objects which may have matched are gone."""

    KIND = 63
    part: int
    batch: int
    lsn: int
    rows: U8
    offset: I64
    pair_row: U32
    handle: I64
    session: I64
    missed: I64


@dataclasses.dataclass(frozen=True, eq=False)
class WithdrawalRecord(Frame):
    """A note that the objects with these stored ids are withdrawn, as far as they come before it in
    the log. counted: how many dispatchers there were as of the LSN `lsn`, where all that were
    accepted before by others, which were not there, are withdrawn, too; 0 if the record says
    nothing of these."""

    KIND = 64
    ADDED = 2
    id_off: I64
    id: U8
    counted: int = 0
    lsn: int = 0
