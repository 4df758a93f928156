"""What a dispatcher writes to its object log (contract.md 2, 3)."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import U8, Frame


@dataclasses.dataclass(frozen=True, eq=False)
class ObjectRecord(Frame):
    """An accepted batch: the offset of its first object, the LSN that it is matched as of,
    its encoded ObjectRows."""

    KIND = 52
    batch: int
    lsn: int
    rows: U8


@dataclasses.dataclass(frozen=True, eq=False)
class Progress(Frame):
    """Every batch of this log below offset `batch` is complete; objects have offsets below
    `below`, until another note says more."""

    KIND = 53
    batch: int
    below: int


@dataclasses.dataclass(frozen=True, eq=False)
class Quarantined(Frame):
    """The object at this offset killed workers and is not matched any more."""

    KIND = 54
    offset: int


@dataclasses.dataclass(frozen=True, eq=False)
class Split(Frame):
    """The batch that holds offset `at` inside is from now on two, of which one begins there."""

    KIND = 55
    at: int
