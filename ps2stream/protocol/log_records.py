"""The records that a dispatcher writes to its object log (contract.md 2, 3)."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import I64, U8, U64, Frame


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
