"""A sample of recent objects, bounded in rows and bytes, for the planner.

Every object has the same chance to be in the sample. When the sample is full, rows older than
the window are dropped first; then the chance is halved, and with it the sample. When the stream
slows down, the chance doubles again for the objects from then on; `weight` says how many objects
each row stands for. While the stream is quiet, rows older than the window are kept too.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from ps2stream.dispatcher.object_kernels import take_objects, take_spans
from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.frame import (
    F64,
    I64,
    U8,
    U32,
    U64,
    Array,
    concat_ragged,
    sealed,
)
from ps2stream.protocol.opaque import take_opaque
from ps2stream.protocol.rows import ObjectRows, concat_optional, no_offsets, take_optional

WINDOW_MS = 600_000
JOINED = 600
"""The part of the window, one in so many, of which the sampled rows are kept together."""
SAMPLE_BYTES = 32 << 20
"""The bytes of columns that a reservoir keeps; 50,000 ordinary posts take half of them."""


_NO_ROWS, _NO_BYTES = no_offsets(), nothing()


class ObjectSample(NamedTuple):
    """A sample of n objects as columns: ragged ids, texts, terms of these and what is opaque
    (rows.ObjectRows); time in ms; longitude and latitude in degrees. weight: the objects for which
    a row stands; accepted: when it was accepted, int64[n], ms. since, in ms: every object accepted
    later is in the sample or represented by a row's weight."""

    id_off: I64
    id: U8
    time: I64
    lon: F64
    lat: F64
    text_off: I64
    text: U8
    term_off: I64
    term: U64
    weight: F64
    accepted: I64
    since: int = 0
    opaque_off: I64 = _NO_ROWS
    opaque: U8 = _NO_BYTES

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        columns: tuple[Array, ...] = (*self[:11], self.opaque_off, self.opaque)
        return sum(column.nbytes for column in columns)

    def take(self, rows: I64) -> ObjectSample:
        """Returns the rows with these numbers as new columns."""
        ids, texts = _seal_both(self.id_off, self.id), _seal_both(self.text_off, self.text)
        columns, chosen = (sealed(self.time), sealed(self.lon), sealed(self.lat)), rows.astype("u4")
        return ObjectSample(
            *take_objects(chosen, ids, texts, columns),
            *take_spans(*_seal_both(self.term_off, self.term), chosen),
            self.weight[rows],
            self.accepted[rows],
            self.since,
            *take_optional(self.opaque_off, self.opaque, rows),
        )


class SampleParts(NamedTuple):
    """Rows of several batches, oldest first; `since` as in ObjectSample. Collecting them is fast;
    `joined` takes longer and needs no lock."""

    parts: list[ObjectSample]
    since: int

    def joined(self) -> ObjectSample:
        """Returns the rows as one sample."""
        parts = self.parts
        if not parts:
            none, empty = np.zeros(1, np.int64), np.zeros(0)
            blank = np.zeros(0, np.uint8)
            terms = none, np.zeros(0, np.uint64)
            return ObjectSample(
                none, blank, none[:0], empty, empty, none, blank, *terms, empty, none[:0],
                self.since,
            )  # fmt: skip
        return ObjectSample(
            *concat_ragged([(p.id_off, p.id) for p in parts]),
            np.concatenate([p.time for p in parts]),
            np.concatenate([p.lon for p in parts]),
            np.concatenate([p.lat for p in parts]),
            *concat_ragged([(p.text_off, p.text) for p in parts]),
            *concat_ragged([(p.term_off, p.term) for p in parts]),
            np.concatenate([p.weight for p in parts]),
            np.concatenate([p.accepted for p in parts]),
            self.since,
            *concat_optional([(p.opaque_off, p.opaque, len(p.lon)) for p in parts]),
        )


class _SampleChunk(NamedTuple):
    """Sampled rows of one batch. `ticket` is uniform in 0..chance; rows are thinned by it."""

    at_ms: int
    ticket: F64
    chance: float
    rows: ObjectSample


class ObjectReservoir:
    """A sample of at most `capacity` rows and `most_bytes`; a capacity of 0 keeps nothing."""

    def __init__(
        self,
        capacity: int,
        seed: int = 0,
        window_ms: int = WINDOW_MS,
        most_bytes: int = SAMPLE_BYTES,
    ) -> None:
        self._capacity = capacity
        self._most_bytes = most_bytes
        self._window = window_ms
        self._rng = np.random.default_rng(seed)
        self._chunks: deque[_SampleChunk] = deque()
        self._fresh: list[_SampleChunk] = []  # the newest, not yet in `_chunks`
        self._chance = 1.0
        self._size = self._bytes = 0
        self._since = 0

    def __len__(self) -> int:
        return self._size

    def add(self, rows: ObjectRows, now_ms: int) -> None:
        """Samples objects that were accepted at `now_ms`."""
        if not self._capacity:
            return
        if self._fresh and now_ms - self._fresh[0].at_ms >= self._window / JOINED:
            self._join_fresh()
        if self._chance < 1:
            self._drop_expired(now_ms)
            if 4 * self._size < self._capacity and 4 * self._bytes < self._most_bytes:
                self._join_fresh()  # whose rows had the chance before
                self._chance *= 2
        count = self._draw_count(len(rows))
        if not count:
            return
        chosen = self._choose_rows(len(rows), count)
        ids, texts = (rows.id_off, rows.id), (rows.text_off, rows.text)
        columns = sealed(rows.time), sealed(rows.lon), sealed(rows.lat)
        objects = take_objects(chosen, _seal_both(*ids), _seal_both(*texts), columns)
        terms = take_spans(*_seal_both(rows.term_off, rows.term), chosen)
        weight, accepted = np.empty(count), np.empty(count, np.int64)
        weight[:], accepted[:] = 1 / self._chance, now_ms
        opaque = take_opaque(rows.opaque_off, rows.opaque, chosen)
        taken = ObjectSample(*objects, *terms, weight, accepted, 0, *opaque)
        ticket = self._rng.random(count) * self._chance
        self._fresh.append(_SampleChunk(now_ms, ticket, self._chance, taken))
        self._size += count
        self._bytes += taken.nbytes
        if self._is_over_limit:
            self._shrink_sample(now_ms)

    def _draw_count(self, rows: int) -> int:
        """Draws how many of so many rows are sampled, of a binomial distribution: of few rows by
        inversion, which takes half as long as NumPy's call."""
        chance = self._chance
        if chance == 1:
            return rows
        if rows * chance > 1:
            return int(self._rng.binomial(rows, chance))
        count, left = 0, self._rng.random()
        share = (1 - chance) ** rows
        while left >= share and count < rows:
            left -= share
            count += 1
            share *= chance / (1 - chance) * (rows - count + 1) / count
        return count

    def _choose_rows(self, rows: int, count: int) -> U32:
        """Returns so many of the rows, rising."""
        if count == rows:
            return np.arange(rows, dtype=np.uint32)
        chosen = self._rng.choice(rows, count, replace=False, shuffle=False)
        chosen.sort()
        return chosen.astype(np.uint32)

    def sample(self) -> ObjectSample:
        """Returns the whole sample, oldest rows first."""
        return self.held().joined()

    def recent(self, now_ms: int) -> SampleParts:
        """Returns the rows that were accepted within the window until now; all rows if there are
        none."""
        begun = now_ms - self._window
        self._join_fresh()
        if begun <= self._since or not self._chunks or self._chunks[-1].at_ms < begun:
            return self.held()
        parts = [chunk.rows for chunk in self._chunks if chunk.at_ms >= begun]
        return SampleParts(parts, begun if len(parts) < len(self._chunks) else self._since)

    def newest(self, rows: int, batches: int) -> ObjectSample:
        """Returns the newest rows: about `rows` of them, from at most `batches` batches."""
        self._join_fresh()
        parts: list[ObjectSample] = []
        size = 0
        for chunk in reversed(self._chunks):
            if size >= rows or len(parts) == batches:
                return SampleParts(parts[::-1], int(parts[-1].accepted[0])).joined()
            parts.append(chunk.rows)
            size += len(chunk.ticket)
        return SampleParts(parts[::-1], self._since).joined()

    def held(self) -> SampleParts:
        """Returns all rows, not yet joined."""
        self._join_fresh()
        return SampleParts([chunk.rows for chunk in self._chunks], self._since)

    def _join_fresh(self) -> None:
        """Makes one chunk of the newest rows: at thousands of batches a second few rows of each are
        sampled, and what is done later for each chunk would cost more than the sampling."""
        fresh, self._fresh = self._fresh, []
        if not fresh:
            return
        rows = SampleParts([chunk.rows for chunk in fresh], 0).joined()
        ticket = np.concatenate([chunk.ticket for chunk in fresh])
        last = fresh[-1]
        self._chunks.append(_SampleChunk(last.at_ms, ticket, last.chance, rows))

    def _drop_expired(self, now_ms: int) -> None:
        while self._chunks and self._chunks[0].at_ms < now_ms - self._window:
            expired = self._chunks.popleft()
            self._since = expired.at_ms + 1
            self._size -= len(expired.ticket)
            self._bytes -= expired.rows.nbytes

    @property
    def _is_over_limit(self) -> bool:
        return self._size > self._capacity or self._bytes > self._most_bytes

    def _shrink_sample(self, now_ms: int) -> None:
        self._join_fresh()
        self._drop_expired(now_ms)
        while self._is_over_limit:
            self._chance /= 2
            self._chunks = deque(
                filter(_has_rows, (_thin_chunk(c, self._chance) for c in self._chunks))
            )
            self._size = sum(len(chunk.ticket) for chunk in self._chunks)
            self._bytes = sum(chunk.rows.nbytes for chunk in self._chunks)


def _seal_both(off: I64, data: Array) -> tuple[I64, Array]:
    return sealed(off), sealed(data)


def _has_rows(chunk: _SampleChunk) -> bool:
    return len(chunk.ticket) > 0


def _thin_chunk(chunk: _SampleChunk, chance: float) -> _SampleChunk:
    """Returns the chunk as if its rows had been sampled with this chance."""
    if chunk.chance <= chance:
        return chunk
    keep = np.flatnonzero(chunk.ticket < chance)
    rows = chunk.rows.take(keep)._replace(weight=np.full(len(keep), 1 / chance))
    return _SampleChunk(chunk.at_ms, chunk.ticket[keep], chance, rows)
