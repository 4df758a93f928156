"""Chunks of packed queries keep their rows in place, and say which are live."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.protocol.rows import QueryRows
from ps2stream.sequencer.chunk_kernels import DATA
from ps2stream.sequencer.packed_rows import QueryChunk
from ps2stream.sequencer.row_kernels import HANDLES
from tests.support.sequencing import inserts, without_dead_bytes
from tests.support.updates import ids_of, insert, query_rows


def with_handles(rows: QueryRows, first: int, step: int) -> QueryRows:
    handle = first + step * np.arange(len(rows))
    return rows.replace(lsn=handle, handle=handle)


def test_a_chunk_keeps_its_rows_while_it_grows() -> None:
    rows = query_rows([insert(str(i), "z" * (i % 5)) for i in range(500)])
    rows = with_handles(rows, 1000, 2)
    chunk = QueryChunk(3, 1000)
    for first in range(0, 500, 7):
        at = np.arange(first, min(first + 7, 500))
        assert chunk.append(*inserts(rows, at), 500) == len(at)
    assert len(chunk) == chunk.live_count == 500
    assert [chunk.count_through(h) for h in (5, 999, 1000, 1001, 1002, 1 << 60)] == [
        0, 0, 1, 1, 2, 500,
    ]  # fmt: skip
    at = np.array([499, 3, 250])
    assert chunk.take(at).encode() == rows.take(at).encode()
    assert chunk.handles(at).tolist() == [1998, 1006, 1500]
    before = chunk.nbytes
    chunk.seal()
    assert chunk.nbytes < before
    assert len(chunk._data) <= 33 * chunk.extent[1] / 32
    assert chunk.take(at).encode() == rows.take(at).encode()
    assert (chunk.read_sessions(np.arange(500)) == 1).all()


def test_a_chunk_says_where_its_columns_are_after_each_change() -> None:
    """Kernels read at these addresses, also after a chunk was sealed that had nothing to free."""
    rows = query_rows([insert(str(i), f"z{i}") for i in range(40)], 1)
    chunk = QueryChunk(0, 1)

    def check() -> None:
        columns = chunk._handle, chunk._off, chunk._data, chunk._terms
        assert chunk.describe()[:4] == tuple(column.ctypes.data for column in columns)

    chunk.expect(40, 4000)
    for change in (
        lambda: chunk.append(*inserts(rows, np.arange(20)), 40),
        lambda: chunk.append(*inserts(rows, np.arange(20, 40)), 40),
        chunk.seal,
        chunk.seal,
    ):
        check()
        change()
    check()


def test_dead_rows_have_no_bytes_in_a_copy() -> None:
    rows = query_rows([insert(str(i), "z" * 50) for i in range(9)], 1)
    chunk = QueryChunk(0, 1)
    chunk.append(*inserts(rows, np.arange(9)), 9)
    chunk.seal()
    chunk.mark_dead(np.array([0, 4, 8]))
    assert chunk.live_count == 6
    at = np.flatnonzero(chunk.live)
    copy = without_dead_bytes(chunk)
    assert copy.nbytes < 0.8 * chunk.nbytes
    assert (copy.number, len(copy), copy.live_count) == (0, 9, 6)
    assert copy.take(at).encode() == rows.take(at).encode()
    # Whoever holds the chunk may still read what was live.
    assert ids_of(chunk.take(np.arange(9))) == [str(i) for i in range(9)]
    assert copy.describe()[DATA] != chunk.describe()[DATA]
    for wrong in (1, -1):
        with pytest.raises(IndexError):
            copy.drop_dead_bytes(wrong)


def test_a_chunk_without_dead_bytes_takes_more_rows() -> None:
    rows = query_rows([insert(str(i), "z" * 50) for i in range(40)], 1)
    chunk = QueryChunk(0, 1)
    chunk.append(*inserts(rows, np.arange(9)), 40)
    chunk.mark_dead(np.arange(3))
    copy = without_dead_bytes(chunk)
    assert copy.append(*inserts(rows, np.arange(9, 40)), 40) == 31
    assert copy.take(np.arange(3, 40)).encode() == rows.take(np.arange(3, 40)).encode()
    assert chunk.take(np.arange(9)).encode() == rows.take(np.arange(9)).encode()


def test_rows_of_many_terms_are_read_back_after_the_chunk_is_sealed() -> None:
    rng = np.random.default_rng(2)
    rows = query_rows([insert(str(i), "z" * (i % 9)) for i in range(3_000)], 1)
    rows = rows.replace(term=rng.integers(0, 1 << 63, len(rows.term)).astype(np.uint64))
    chunk = QueryChunk(0, 1)
    for first in range(0, 3_000, 500):
        if first == 1_500:
            chunk.seal()
        assert chunk.append(*inserts(rows, np.arange(first, first + 500)), 3_000) == 500
    assert chunk.take(np.arange(3_000)).encode() == rows.encode()


def test_moved_rows_have_the_terms_that_they_need() -> None:
    """Numbers of terms may become longer and shorter, and terms of dead rows go."""
    rows = query_rows([insert(str(i)) for i in range(900)], 1)
    term = np.arange(900, dtype=np.uint64) % np.uint64(400)
    rows = rows.replace(term=term, term_off=np.arange(901))
    chunks = []
    for first in (0, 450):
        chunk = QueryChunk(first, first + 1)
        chunk.append(*inserts(rows, np.arange(first, first + 450)), 450)
        chunk.mark_dead(np.arange(100))
        chunks.append(chunk)
    fresh = QueryChunk(7, 1)
    fresh.move_live_rows(chunks)
    at = np.concatenate([np.arange(100, 450), np.arange(550, 900)])
    assert fresh.take(np.arange(700)).encode() == rows.take(at).encode()
    assert fresh.nbytes < 0.9 * sum(chunk.nbytes for chunk in chunks)


def test_a_chunk_takes_handles_near_its_first_one() -> None:
    row = query_rows([insert("a")])
    for above, done in ((HANDLES, 1), (HANDLES + 1, 0)):
        chunk = QueryChunk(0, 7)
        assert (
            chunk.append(*inserts(with_handles(row, 7 + above, 1), np.zeros(1, np.int64)), 9)
            == done
        )
        assert chunk.handles(np.arange(done)).tolist() == [7 + above] * done


def test_chunks_are_merged_while_their_handles_are_near() -> None:
    row = query_rows([insert("a")])
    first = QueryChunk(0, 7)
    first.append(*inserts(with_handles(row, 7, 1), np.zeros(1, np.int64)), 9)
    for span, fits in ((HANDLES, True), (HANDLES + 1, False)):
        second = QueryChunk(1, 7 + span)
        second.append(*inserts(with_handles(row, 7 + span, 1), np.zeros(1, np.int64)), 9)
        assert second.can_follow(first) == fits
