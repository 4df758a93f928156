"""The chunks by their numbers, and reading rows of any of them at once (chunk_kernels.py)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U8, U64, sealed
from ps2stream.sequencer import chunk_kernels
from ps2stream.sequencer.chunk_kernels import DEAD, DEAD_BYTES, FIELDS, ROW_BITS
from ps2stream.sequencer.hash_table import HashTable
from ps2stream.sequencer.packed_rows import QueryChunk


class FoundQueries(NamedTuple):
    """The live queries that have the ids of n rows, int64[n] each. place: NONE for none; handle;
    session; both are arbitrary then."""

    place: I64
    handle: I64
    session: I64


class ChunkTable:
    """Chunks, each with a number, and how many of their rows are dead. A place is the number of a
    chunk << ROW_BITS | row."""

    def __init__(self) -> None:
        self._by_number: list[QueryChunk | None] = []
        self.columns = np.zeros((0, FIELDS), np.int64)

    def add(self, base: int) -> QueryChunk:
        """Adds an empty chunk."""
        free = [k for k, chunk in enumerate(self._by_number) if chunk is None]
        if not free:
            free = [len(self._by_number)]
            self._by_number.append(None)
            self.columns = np.concatenate([self.columns, np.zeros((1, FIELDS), np.int64)])
        chunk = self._by_number[free[0]] = QueryChunk(free[0], base)
        self.update(chunk)
        return chunk

    def update(self, chunk: QueryChunk) -> None:
        """Takes a changed chunk, or one that replaces the one of its number. Without this, kernels
        would read columns that are no longer there."""
        self._by_number[chunk.number] = chunk
        self.columns[chunk.number, :DEAD] = chunk.describe()[:DEAD]

    def drop(self, chunk: QueryChunk) -> None:
        """Removes a chunk, to which no place leads any more."""
        self._by_number[chunk.number] = None
        self.columns[chunk.number] = 0

    def number_rows(self, chunk: QueryChunk, at: I64) -> I64:
        """Returns the places of the rows `at` of a chunk."""
        return chunk.number << ROW_BITS | at

    def number_span(self, chunk: QueryChunk, first: int, end: int) -> I64:
        """Returns the places of the rows first..end - 1 of a chunk."""
        base = chunk.number << ROW_BITS
        return np.arange(base + first, base + end)

    def find_handles(self, order: I64, handles: I64) -> I64:
        """Returns the places of these handles, which must be there; order: the numbers of the
        chunks in the order of their handles."""
        places = np.empty(len(handles), np.int64)
        chunk_kernels.find_handles(self.columns, order, handles, places)
        return places

    def find(self, ids: HashTable, hashes: U64, off: I64, data: U8) -> FoundQueries:
        """Finds the live queries that have the ids of a ragged column, with these hashes; `ids` has
        the places of the live ids."""
        found = FoundQueries(*np.empty((3, len(hashes)), np.int64))
        chunk_kernels.find_queries(
            ids.parts, self.columns, hashes, sealed(off), sealed(data), *found
        )
        return found

    def read_owners(self, places: I64) -> tuple[I64, I64]:
        """Returns the handles and sessions of the rows at these places."""
        handle, session = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        chunk_kernels.read_owners(self.columns, places, handle, session)
        return handle, session

    def read_ids(self, places: I64) -> tuple[I64, U8]:
        """Returns the ids of the rows at these places as a column."""
        off = np.empty(len(places) + 1, np.int64)
        chunk_kernels.find_ids(self.columns, places, off, np.empty(0, np.uint8))
        ids = np.empty(int(off[-1]), np.uint8)
        chunk_kernels.find_ids(self.columns, places, off, ids)
        return off, ids

    def mark_dead(self, places: I64) -> bool:
        """Marks the live rows at these places as dead; returns whether too much of a chunk is
        dead now."""
        return bool(chunk_kernels.mark_dead(self.columns, places))

    def drop_dead_bytes(self, chunk: QueryChunk) -> QueryChunk:
        """Replaces a chunk by one whose dead rows have no bytes; returns that."""
        chunk = chunk.drop_dead_bytes(int(self.columns[chunk.number, DEAD_BYTES]))
        self.update(chunk)
        self.columns[chunk.number, DEAD_BYTES] = 0
        return chunk
