"""What watchers see of the stream: a few of the objects and of the matches.

A merger sends matches to dispatchers that have said, within the last seconds, that a client
watches. Any of these messages may be lost; then something is not seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import F64, I64, U8, U32, Frame
from ps2stream.protocol.rows import concat_columns, taken_columns
from ps2stream.protocol.ticks import TICKS_PER_S

SEEN_PER_S = 50
"""How many objects, and how many matches, are seen in a second."""
SEEN_TEXT_BYTES = 1024
"""How much of a text is seen, from its beginning."""


@dataclasses.dataclass(frozen=True, eq=False)
class WatchNotice(Frame):
    """dispatcher -> every merger, once a second while a client watches there."""

    KIND = 90
    dispatcher: int


@dataclasses.dataclass(frozen=True, eq=False)
class SeenObjects(Frame):
    """The columns of n objects: where they were accepted (partition and offset), Unix ms,
    degrees, ragged ids and the beginnings of texts, which may end within a character."""

    partition: U32
    offset: I64
    time: I64
    lon: F64
    lat: F64
    id_off: I64
    id: U8
    text_off: I64
    text: U8


@dataclasses.dataclass(frozen=True, eq=False)
class SeenMatches(SeenObjects):
    """merger -> dispatchers, ten times a second: n matches, object i with the query `handle[i]`
    of session number `session[i]`; its id as it is kept, under its tenant. `pairs`: the number
    of matches since the last message, of which these are some."""

    KIND = 91
    pairs: int
    handle: I64
    session: I64
    query_off: I64
    query: U8

    FLAT = ("partition", "offset", "time", "lon", "lat", "handle", "session")
    RAGGED = ("id", "text", "query")

    def take(self, rows: I64) -> SeenMatches:
        """Returns these matches as new columns."""
        return SeenMatches(pairs=self.pairs, **taken_columns(self.FLAT, self.RAGGED, self, rows))

    @classmethod
    def concat(cls, parts: list[SeenMatches], pairs: int) -> SeenMatches:
        """Joins the matches of several messages, at least one, into one."""
        return cls(pairs=pairs, **concat_columns(cls.FLAT, cls.RAGGED, parts))


class WatchSample(NamedTuple):
    """A sample for a watcher, sent ten times a second: some of the `accepted` objects and
    `matched` pairs since the last one, how long (s) each batch took whose matches have become
    durable since, and the ids of the objects that were withdrawn since."""

    objects: Sequence[SeenObjects]
    matches: Sequence[SeenMatches]
    accepted: int
    matched: int
    latency: Sequence[float]
    withdrawn: Sequence[str] = ()


class WatchAllowance:
    """An allowance of objects or matches that may be seen: SEEN_PER_S a second, and as many at
    once after a pause."""

    def __init__(self) -> None:
        self.left = float(SEEN_PER_S)

    def tick(self) -> None:
        """Renews the allowance, ten times a second."""
        self.left = min(self.left + SEEN_PER_S / TICKS_PER_S, SEEN_PER_S)

    def of(self, count: int) -> I64:
        """Returns which of so many may be seen, evenly spaced."""
        some = min(int(self.left), count)
        self.left -= some
        return np.arange(some) * count // max(some, 1)


def beginnings(off: I64, text: U8, rows: I64) -> tuple[I64, U8]:
    """Returns the first SEEN_TEXT_BYTES bytes of these texts, as a ragged column."""
    start = off[rows]
    size = np.minimum(off[rows + 1] - start, SEEN_TEXT_BYTES)
    out = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(size, out=out[1:])
    return out, text[np.arange(out[-1]) + np.repeat(start - out[:-1], size)]
