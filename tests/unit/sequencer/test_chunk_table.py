"""Rows of many chunks by their places, and which chunks have too many dead ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps2stream.protocol.frame import strings_to_column
from ps2stream.sequencer.chunk_kernels import DEAD, PARTS, ROW_BITS
from ps2stream.sequencer.chunk_table import ChunkTable, FoundQueries
from ps2stream.sequencer.hash_table import HashTable
from ps2stream.sequencer.packed_rows import QueryChunk
from ps2stream.sequencer.table_kernels import NONE
from tests.support.sequencing import inserts
from tests.support.updates import insert, query_rows


def filled(sizes: list[int]) -> tuple[ChunkTable, list[QueryChunk]]:
    """Chunks of so many rows; the ids and handles count on from 1."""
    table, chunks, first = ChunkTable(), [], 1
    for size in sizes:
        rows = query_rows([insert(str(first + i)) for i in range(size)], first)
        chunk = table.add(first)
        chunk.append(*inserts(rows, np.arange(size)), size)
        table.update(chunk)
        chunks.append(chunk)
        first += size
    return table, chunks


def find(table: ChunkTable, places: list[int], ids: list[str], hash: int = 0) -> FoundQueries:
    """Looks for ids that all have one hash, as have the rows at these places."""
    known, n = HashTable(), len(places)
    known.insert(np.full(n, hash, np.uint64), np.array(places))
    return table.find(known, np.full(len(ids), hash, np.uint64), *strings_to_column(ids))


def test_rows_of_all_chunks_are_read_at_once() -> None:
    table, chunks = filled([3, 40, 7])
    places = [2 << ROW_BITS | 6, 1, 1 << ROW_BITS | 39]
    found = find(table, places, ["50", "2", "44", "43"])
    assert found.place.tolist() == [places[0], places[1], NONE, places[2]]
    assert found.handle[[0, 1, 3]].tolist() == [50, 2, 43]
    assert found.session[[0, 1, 3]].tolist() == [1, 1, 1]
    handle, session = table.read_owners(np.array(places))
    assert (handle.tolist(), session.tolist()) == ([50, 2, 43], [1, 1, 1])
    off, ids = table.read_ids(np.array(places))
    assert [ids[a:b].tobytes() for a, b in itertools.pairwise(off)] == [
        b"50", b"2", b"43",
    ]  # fmt: skip
    order = np.array([chunk.number for chunk in chunks])
    every = table.find_handles(order, np.arange(1, 51))
    want = [table.number_rows(chunk, np.arange(len(chunk))) for chunk in chunks]
    assert every.tolist() == np.concatenate(want).tolist()
    for wrong in (0, 51):
        with pytest.raises(IndexError):
            table.find_handles(order, np.array([wrong]))


@pytest.mark.parametrize("place", [3, 1 << ROW_BITS, 5 << ROW_BITS, -1])
def test_a_place_without_a_row_is_refused(place: int) -> None:
    table, chunks = filled([3, 4])
    table.drop(chunks[1])
    with pytest.raises(IndexError):
        table.read_owners(np.array([0, place]))
    with pytest.raises(IndexError):
        table.mark_dead(np.array([place]))


def test_the_number_of_a_dropped_chunk_is_given_again() -> None:
    table, chunks = filled([3, 40])
    table.drop(chunks[0])
    assert table.add(100).number == 0
    assert table.add(200).number == 2
    assert find(table, [1 << ROW_BITS], ["4"]).place.tolist() == [1 << ROW_BITS]


def test_a_chunk_is_stale_when_half_of_it_is_dead_or_a_part_of_its_bytes() -> None:
    table, [chunk] = filled([1000])
    chunk.seal()
    table.update(chunk)
    few = 1000 // PARTS - 9
    assert not table.mark_dead(np.arange(few))
    assert table.columns[0, DEAD] == few
    assert table.mark_dead(np.arange(few, few + 20))
    fresh = table.drop_dead_bytes(chunk)
    assert (table.columns[0, DEAD], fresh.live_count) == (few + 20, 980 - few)
    assert not table.mark_dead(np.array([200]))
    assert find(table, [500], ["501"], 7 << 40).place.tolist() == [500]
    left = (500 - int(table.columns[0, DEAD])) // 10
    for first in range(201, 201 + 10 * left, 10):
        assert not table.mark_dead(np.arange(first, first + 10))
        fresh = table.drop_dead_bytes(fresh)
    dead = int(table.columns[0, DEAD])
    assert 480 < dead <= 500
    assert table.mark_dead(np.arange(900, 1401 - dead))
