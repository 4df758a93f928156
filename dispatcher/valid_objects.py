"""The objects that are still valid, which new queries may be matched against.

They are kept as they came, in chunks of columns. `horizon` rises when some are dropped: no object
that is kept has an end up to it, and every object with a later end is kept. So whoever knows the
horizon knows whether an object that was valid at some time may be missing, by whatever clock it was
dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U64
from ps2stream.protocol.id_sets import IdSet, hash_ids
from ps2stream.protocol.rows import ObjectRows

GRACE_MS = 60_000
"""How long objects are kept beyond their end, as the sequencer's clock may be behind."""
CHUNK_ROWS = 2048
"""The objects of one chunk, at most."""
_ROW_BYTES = 64  # of an object, beside its columns
_FREED = 8  # one part in so many of the limit is freed at a time


class ValidChunk(NamedTuple):
    """Objects with ends, by rising offset: their columns, and the offset and LSN of each."""

    rows: ObjectRows
    offset: I64
    lsn: I64

    @property
    def size(self) -> int:
        """The bytes that the chunk counts with."""
        return self.rows.nbytes + _ROW_BYTES * len(self.rows)

    def take(self, at: I64) -> ValidChunk:
        """Returns some of the objects."""
        return ValidChunk(self.rows.take(at), self.offset[at], self.lsn[at])

    def without(self, ids: IdSet, hashes: U64 | None = None) -> ValidChunk | None:
        """Returns the chunk without the objects with these stored ids, itself if it has none, None
        if it has no others. hashes: hash_ids of its ids."""
        gone = ids.find_rows(self.rows.id_off, self.rows.id, hashes)
        if not len(gone):
            return self
        kept = np.setdiff1d(np.arange(len(self.rows)), gone)
        return self.take(kept) if len(kept) else None


class ValidObjects:
    """The valid objects of one dispatcher, at most about `limit` bytes of them: beyond that those
    that end first are dropped."""

    def __init__(self, limit: int, horizon: int = 0) -> None:
        self.horizon = horizon
        self.evicted = 0  # objects that were dropped before their end
        self.size = 0
        self._limit = limit
        self._chunks: list[ValidChunk] = []
        self._hashes: dict[int, tuple[ValidChunk, U64]] = {}  # of ids, of chunks by identity

    def __len__(self) -> int:
        return sum(len(chunk.rows) for chunk in self._chunks)

    @property
    def chunks(self) -> list[ValidChunk]:
        """The objects that are kept."""
        return self._chunks[:]

    def add(self, rows: ObjectRows, offset: I64, lsn: I64) -> None:
        """Adds those of the rows that have an end; the others cost nothing."""
        at = np.flatnonzero(rows.until > self.horizon)
        for first in range(0, len(at), CHUNK_ROWS):
            part = at[first : first + CHUNK_ROWS]
            chunk = ValidChunk(rows if len(part) == len(rows) else rows.take(part), offset, lsn)
            self._push(chunk._replace(offset=offset[part], lsn=lsn[part]))
        if self.size > self._limit:
            self._evict()

    def drop(self, offset: int) -> None:
        """Drops one object, which must not be matched any more."""
        for i, chunk in enumerate(self._chunks):
            kept = np.flatnonzero(chunk.offset != offset)
            if len(kept) < len(chunk.rows):
                self._chunks[i : i + 1] = [chunk.take(kept)] if len(kept) else []
                self.size = sum(each.size for each in self._chunks)

    def withdraw(self, ids: IdSet) -> int:
        """Drops the objects with these stored ids; returns how many. The horizon stays: a withdrawn
        object is not one that may be missing."""
        before, kept = len(self), list[ValidChunk]()
        hashes = {
            id(chunk): self._hashes.get(id(chunk))
            or (chunk, hash_ids(chunk.rows.id_off, chunk.rows.id))
            for chunk in self._chunks
        }
        for chunk in self._chunks:
            left = chunk.without(ids, hashes[id(chunk)][1])
            if left is not None:
                kept.append(left)
        self._hashes = hashes  # also keeps the chunks, so that identities stay theirs
        self._chunks, self.size = kept, sum(chunk.size for chunk in kept)
        return before - len(self)

    def clear(self) -> None:
        """Drops all objects, which are known to be missing without the horizon."""
        self._chunks, self.size = [], 0
        self._hashes.clear()

    def expire(self, now_ms: int) -> None:
        """Drops the objects that have ended a while ago."""
        ends = [chunk.rows.until for chunk in self._chunks]
        if ends and min(int(until.min()) for until in ends) <= now_ms - GRACE_MS:
            self._drop_up_to(now_ms - GRACE_MS)

    def split(self, size: int) -> Iterator[ValidChunk]:
        """Yields all objects in parts of at least so many bytes, but for the last."""
        part: list[ValidChunk] = []
        for chunk in self._chunks[:]:
            part.append(chunk)
            if sum(each.size for each in part) >= size:
                yield _join(part)
                part = []
        if part:
            yield _join(part)

    def _push(self, chunk: ValidChunk) -> None:
        last = self._chunks[-1] if self._chunks else None
        # Small chunks would make a scan slow. Offsets mostly rise, but for batches that were
        # reserved earlier.
        if (
            last is not None
            and 2 * len(last.rows) <= CHUNK_ROWS
            and len(last.rows) + len(chunk.rows) <= CHUNK_ROWS
            and last.offset[-1] < chunk.offset[0]
        ):
            self.size -= last.size
            chunk = _join([self._chunks.pop(), chunk])
        self.size += chunk.size
        self._chunks.append(chunk)

    def _evict(self) -> None:
        """Drops the objects that end first, until there is room again."""
        until = np.concatenate([chunk.rows.until for chunk in self._chunks])
        share = np.concatenate(
            [np.full(len(c.rows), c.size / max(len(c.rows), 1)) for c in self._chunks]
        )
        order = np.argsort(until, kind="stable")
        over = self.size - self._limit + self._limit // _FREED
        last = min(int(np.searchsorted(np.cumsum(share[order]), over)), len(order) - 1)
        before = len(self)
        self._drop_up_to(int(until[order[last]]))
        self.evicted += before - len(self)

    def _drop_up_to(self, until: int) -> None:
        kept: list[ValidChunk] = []
        for chunk in self._chunks:
            ends = chunk.rows.until
            gone = ends <= until
            if not gone.any():
                kept.append(chunk)
                continue
            self.horizon = max(self.horizon, int(ends[gone].max()))
            if not gone.all():
                kept.append(chunk.take(np.flatnonzero(~gone)))
        self._chunks, self.size = [], 0
        for chunk in kept:  # what is left of several may be one
            self._push(chunk)
        left = {id(chunk) for chunk in self._chunks}
        self._hashes = {key: each for key, each in self._hashes.items() if key in left}


def _join(chunks: list[ValidChunk]) -> ValidChunk:
    if len(chunks) == 1:
        return chunks[0]
    return ValidChunk(
        ObjectRows.concat([chunk.rows for chunk in chunks]),
        np.concatenate([chunk.offset for chunk in chunks]),
        np.concatenate([chunk.lsn for chunk in chunks]),
    )
