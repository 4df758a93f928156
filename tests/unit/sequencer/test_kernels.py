"""The kernels of the sequencer against naive twins."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.frame import I64, U8, U64, sealed, strings_to_column
from ps2stream.protocol.ports import NamedUpdates
from ps2stream.sequencer import kernels
from ps2stream.sequencer.columns import find_first_rows, split, take_strings
from ps2stream.sequencer.table_kernels import NONE

KEYS = st.lists(st.binary(max_size=5), max_size=30)


@settings(deadline=None)
@given(KEYS, st.integers(0, 63))
def test_the_first_of_equal_rows_is_found(keys: list[bytes], cut: int) -> None:
    hashes = np.array([hash(key) & 0x7FFF for key in keys], np.uint64) >> np.uint64(cut)
    first, count = find_first_rows(*strings_to_column(keys), hashes << np.uint64(49))
    assert first.tolist() == [keys.index(key) for key in keys]
    assert count == len({*keys})


PAIRS = st.lists(
    st.tuples(st.sampled_from([1, 2, 3]), st.binary(max_size=2), st.binary(max_size=2)),
    max_size=40,
)


def columns(pairs: list[tuple[int, bytes, bytes]]) -> tuple[U8, tuple[I64, U8], tuple[I64, U8]]:
    """The kinds, ids and request ids of rows."""
    kinds, left, right = zip(*pairs, strict=True) if pairs else ((), (), ())
    ids, requests = strings_to_column(left), strings_to_column(right)
    kind = sealed(np.array(kinds, np.uint8))
    return kind, (sealed(ids[0]), sealed(ids[1])), (sealed(requests[0]), sealed(requests[1]))


@settings(deadline=None)
@given(st.lists(PAIRS, max_size=4), PAIRS, st.integers(0, 15), st.integers(0, 40), st.data())
def test_repeats_are_found_by_the_bytes_of_their_keys(
    old: list[list[tuple[int, bytes, bytes]]],
    new: list[tuple[int, bytes, bytes]],
    cut: int,
    number: int,
    data: st.DataObject,
) -> None:
    """Keys come in groups; the first ones are forgotten; hashes and homes collide."""

    def hashes(pairs: list[tuple[int, bytes, bytes]]) -> U64:
        short = [hash(pair[1:]) & 0x7FFF for pair in pairs]
        return np.array(short, np.uint64) >> np.uint64(cut) << np.uint64(49)

    heads, links = np.zeros(8, np.int64), np.zeros(128, np.uint64)
    known = np.zeros(130, np.int64), np.zeros(130, np.int64), np.zeros(2000, np.uint8)
    lsn_of: list[tuple[bytes, bytes]] = []
    for group in old:
        fresh = list(dict.fromkeys(p for p in group if p[1:] not in lsn_of))[: 128 - len(lsn_of)]
        fresh = list({pair[1:]: pair for pair in fresh}.values())
        first = len(lsn_of)
        lsns = sealed(np.arange(len(fresh)) + 100 + first)
        _, ids, requests = columns(fresh)
        new_columns = np.frombuffer(NamedUpdates(lsns, *ids, *requests).encode(), np.uint8)
        kernels.append_keys(heads, links, hashes(fresh), first, number, known, new_columns)
        lsn_of += [pair[1:] for pair in fresh]
    begin = data.draw(st.integers(0, len(lsn_of)))
    first_row, lsn = np.full(len(new), -7), np.full(len(new), -7)
    stored = heads, links, known[1], known[2], known[0], number, begin
    kernels.find_repeats(*columns(new), hashes(new), stored, first_row, lsn)
    asked = [pair[1:] if pair[0] != 1 and pair[2] else None for pair in new]
    want = {pair: 100 + row for row, pair in enumerate(lsn_of) if row >= begin}
    assert lsn.tolist() == [0 if pair is None else want.get(pair, 0) for pair in asked]
    assert first_row.tolist() == [NONE if p is None else asked.index(p) for p in asked]


@settings(deadline=None)
@given(KEYS, st.data())
def test_rows_of_a_column_of_strings_are_taken(keys: list[bytes], data: st.DataObject) -> None:
    rows = data.draw(st.permutations(range(len(keys)))) if keys else []
    rows = rows[: data.draw(st.integers(0, len(rows)))]
    taken = take_strings(strings_to_column(keys), np.array(rows, np.int64))
    assert split(*taken) == [keys[row] for row in rows]


def test_updates_are_counted_by_tenant() -> None:
    kind = sealed(np.array([1, 2, 1, 1, 2], np.uint8))
    session = sealed(np.array([0, 1, 2, 2, 2]))
    live = np.array([5, 5])
    assert kernels.count_updates(kind, session, np.array([0, 0, 1]), live) == 3
    assert live.tolist() == [5, 6]
    with pytest.raises(IndexError):
        kernels.count_updates(kind, session, np.array([0, 0]), live)


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"", b"a", b"ab", b"b"]), min_size=1, max_size=4))
def test_a_column_of_one_string_is_recognised(names: list[bytes]) -> None:
    off, data = strings_to_column(names)
    assert kernels.has_one_string(sealed(off), sealed(data)) == (len({*names}) == 1)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.integers(-1, 5)), max_size=20))
def test_updates_are_parted_into_inserts_and_deletes(rows: list[tuple[int, int]]) -> None:
    n = len(rows)
    kind = np.array([kind for kind, _ in rows], np.uint8)
    places = np.array([place for _, place in rows], np.int64)
    handle, hashes = np.arange(n) + 90, np.arange(n, dtype=np.uint64)
    parts, out = np.full((2, 2, n), -7), np.full((2, n), 99, np.uint64)
    inserts, unknown = kernels.part_updates(
        sealed(kind),
        sealed(handle),
        sealed(hashes),
        sealed(places),
        parts[0],
        parts[1],
        out,
    )
    born = [i for i in range(n) if kind[i] == 1]
    gone = [i for i in range(n) if kind[i] == 2]
    assert parts[0, :, :inserts].tolist() == [born, [90 + i for i in born]]
    assert parts[1, :, : len(gone)].tolist() == [gone, places[gone].tolist()]
    assert (out[0, :inserts].tolist(), out[1, : len(gone)].tolist()) == (born, gone)
    assert (inserts, unknown) == (len(born), places[gone].tolist().count(NONE))


@settings(deadline=None)
@given(PAIRS.filter(bool), st.data())
def test_requests_are_written_as_a_frame(
    pairs: list[tuple[int, bytes, bytes]], data: st.DataObject
) -> None:
    rows = data.draw(st.lists(st.integers(0, len(pairs) - 1), unique=True))
    _, ids, requests = columns(pairs)
    lsn = np.arange(len(pairs)) + 7
    taken = [
        strings_to_column(pairs[row][1] for row in rows),
        strings_to_column(pairs[row][2] for row in rows),
    ]
    want = NamedUpdates(lsn[rows], *taken[0], *taken[1])
    n, (id_bytes, request_bytes) = len(rows), (len(column[1]) for column in taken)
    room, starts = NamedUpdates.allocate([n, n + 1, id_bytes, n + 1, request_bytes])
    at = np.array(rows, np.int64)
    kernels.write_requests(at, lsn, ids, requests, room, np.array(starts))
    assert room.tobytes() == want.encode()
