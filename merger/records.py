"""What a merger writes to its match log (contract.md 2, 3)."""

from __future__ import annotations

import dataclasses

from ps2stream.protocol.frame import F64, I64, U8, U32, Frame

LEAP = 1 << 40
"""Numbers that a session passes over where it is not known how many pairs were lost: more than
it can have been given since anybody noted how many there were."""


def count_pairs(first: int, last: int) -> int:
    """Returns how many pairs the numbers first..last were given to; a LEAP among them, or what a
    client has left of one, counts as none."""
    count = (last - first + 1) % LEAP
    return count if count < LEAP // 2 else 0


@dataclasses.dataclass(frozen=True, eq=False)
class Matched(Frame):
    """The pairs of one batch, the objects `batch` to `end` (exclusive) of `dispatcher`, for
    this merger's sessions; written at `written` (Unix ms). end = batch: some of them; others
    may follow in records of the same objects.

    Session i (rising) has the pairs cut[i]..cut[i + 1], numbered from first[i] on, sorted by
    object and handle: handle the query, index a row of the object columns, which hold each
    matched object once."""

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


@dataclasses.dataclass(frozen=True, eq=False)
class Cursors(Frame):
    """The pairs of a session to the number `acked` are acknowledged; those above it to `lost`
    will never be delivered, they are a gap."""

    KIND = 71
    session: I64
    acked: I64
    lost: I64


@dataclasses.dataclass(frozen=True, eq=False)
class Checkpoint(Frame):
    """All that earlier records say, save the pairs that are still to be acknowledged and the
    names. A session's next pair is number `next`; acked and lost as in Cursors. Of
    `dispatcher` the offsets start..stop (exclusive) are done. Every pair so far was matched
    as of an LSN of at most `lsn`."""

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


@dataclasses.dataclass(frozen=True, eq=False)
class DeadNames(Frame):
    """Names of queries that the ledger no longer tells, while pairs of them are kept: those
    of the session up to the number `last`. handle rising."""

    KIND = 73
    session: I64
    handle: I64
    last: I64
    id_off: I64
    id: U8


@dataclasses.dataclass(frozen=True, eq=False)
class Places(Frame):
    """Rows of a session's backlog (backlog.py), flat; those of level 0 are places of Matched,
    those above places of Places one level below."""

    KIND = 74
    session: int
    level: int
    row: I64


@dataclasses.dataclass(frozen=True, eq=False)
class Missing(Frame):
    """Pairs first..last of each session were lost with a log, or never given: its next pair is
    number last + 1. Written before a service starts that was told to go on without them."""

    KIND = 75
    session: I64
    first: I64
    last: I64
