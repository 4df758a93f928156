"""The records that a dispatcher writes to its object log (contract.md 2, 3)."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import U8, Frame


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
