"""Chunks of packed queries keep their rows in place, and say which are live."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import strings_to_column
from ps2stream.sequencer.columns import split
from ps2stream.sequencer.packed_rows import PackedRows, QueryChunk
from tests.support.updates import ids_of, insert, query_rows


def test_a_chunk_keeps_its_rows_while_it_grows() -> None:
    rows = query_rows([insert(str(i), "z" * (i % 5)) for i in range(500)], 1000)
    packed = PackedRows.pack(rows, np.arange(500))
    handles = np.arange(1000, 2000, 2)
    chunk = QueryChunk(3, 1000)
    for first in range(0, 500, 7):
        chunk.append(packed.slice(first, min(first + 7, 500)), handles[first : first + 7])
    assert len(chunk) == chunk.live_count == 500
    assert chunk.find_rows(handles[[499, 0, 7]]).tolist() == [499, 0, 7]
    assert [chunk.count_through(h) for h in (5, 999, 1000, 1001, 1002, 1 << 60)] == [
        0, 0, 1, 1, 2, 500,
    ]  # fmt: skip
    at = np.array([499, 3, 250])
    found = chunk.take(at)
    assert ids_of(found) == ["499", "3", "250"]
    assert found.handle.tolist() == found.lsn.tolist() == [1998, 1006, 1500]
    np.testing.assert_array_equal(found.source, rows.take(at).source)
    before = chunk.nbytes
    chunk.seal()
    assert chunk.nbytes < before
    assert ids_of(chunk.take(at)) == ["499", "3", "250"]
    assert (chunk.read_sessions() == 1).all()
    assert split(*chunk.read_ids()) == [b"%d" % i for i in range(500)]


def test_dead_rows_are_left_out_of_a_copy() -> None:
    rows = query_rows([insert(str(i)) for i in range(9)], 1)
    chunk = QueryChunk(0, 1)
    chunk.append(PackedRows.pack(rows, np.arange(9)), np.arange(1, 10))
    chunk.mark_dead(np.array([0, 4, 8]))
    assert (chunk.dead, chunk.live_count) == (3, 6)
    at = np.flatnonzero(chunk.live)
    assert at.tolist() == [1, 2, 3, 5, 6, 7]
    assert chunk.handles(at).tolist() == [2, 3, 4, 6, 7, 8]
    left = chunk.copy_packed(at)
    assert left.take(np.arange(6)).encode() == rows.take(at).replace(
        lsn=np.zeros(6, np.int64), handle=np.zeros(6, np.int64)
    ).encode()  # fmt: skip


def test_rows_of_many_terms_are_read_back_after_the_chunk_is_sealed() -> None:
    rng = np.random.default_rng(2)
    rows = query_rows([insert(str(i), "z" * (i % 9)) for i in range(3_000)], 1)
    rows = rows.replace(term=rng.integers(0, 1 << 63, len(rows.term)).astype(np.uint64))
    packed = PackedRows.pack(rows, np.arange(3_000))
    chunk = QueryChunk(0, 1)
    for first in range(0, 3_000, 500):
        if first == 1_500:
            chunk.seal()
        chunk.append(packed.slice(first, first + 500), rows.handle[first : first + 500])
    size = np.zeros(3_000, np.int64)
    chunk.measure(np.where(np.arange(3_000) % 2, np.arange(3_000), -1), size)
    np.testing.assert_array_equal(size, np.diff(packed.off) * (np.arange(3_000) % 2))
    assert chunk.take(np.arange(3_000)).encode() == rows.encode()


def test_a_chunk_has_room_for_handles_near_its_first_one() -> None:
    chunk = QueryChunk(0, 7)
    row = PackedRows.pack(query_rows([insert("a")], 1), np.arange(1))
    assert chunk.has_room(row, 7 + QueryChunk.ROOM - 1)
    assert not chunk.has_room(row, 7 + QueryChunk.ROOM)


def test_ids_are_matched_by_their_bytes() -> None:
    rows = PackedRows.pack(query_rows([insert("a"), insert("ab"), insert("b")], 1), np.arange(3))
    ids = strings_to_column(["ab", "b", "a", "aa"])
    assert rows.match_ids(*ids, np.array([2, 0, 1])).tolist() == [True, True, True]
    assert rows.match_ids(*ids, np.array([3, 3, 0])).tolist() == [False, False, False]
