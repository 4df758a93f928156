"""The kernels of the sequencer against naive twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.frame import I64, U8, U64, sealed, strings_to_column
from ps2stream.sequencer import kernels
from ps2stream.sequencer.columns import find_first_rows, split, take_strings
from ps2stream.sequencer.kernels import NONE

KEYS = st.lists(st.binary(max_size=5), max_size=30)


@settings(deadline=None)
@given(KEYS, st.integers(0, 63))
def test_the_first_of_equal_rows_is_found(keys: list[bytes], cut: int) -> None:
    hashes = np.array([hash(key) & 0x7FFF for key in keys], np.uint64) >> np.uint64(cut)
    first, count = find_first_rows(*strings_to_column(keys), hashes << np.uint64(49))
    assert first.tolist() == [keys.index(key) for key in keys]
    assert count == len({*keys})


PAIRS = st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=3), st.binary(max_size=3)))


def joined(pairs: list[tuple[int, bytes, bytes]]) -> tuple[list[int], I64, U8]:
    """The rows that join_keys finds, and their keys as a column."""
    kinds, left, right = zip(*pairs, strict=True) if pairs else ((), (), ())
    ids, requests = strings_to_column(left), strings_to_column(right)
    n = len(pairs)
    at, off, out = np.empty(n, np.int64), np.empty(n + 1, np.int64), np.empty(20 * n, np.uint8)
    count = kernels.join_keys(
        sealed(np.array(kinds, np.uint8)), sealed(ids[0]), sealed(ids[1]),
        sealed(requests[0]), sealed(requests[1]), at, off, out,
    )  # fmt: skip
    return at[:count].tolist(), sealed(off[: count + 1]), sealed(out[: off[count]])


@settings(deadline=None)
@given(PAIRS)
def test_the_keys_of_deletes_differ_as_pairs_do(pairs: list[tuple[int, bytes, bytes]]) -> None:
    at, off, keys = joined(pairs)
    assert at == [i for i, (kind, _, request) in enumerate(pairs) if kind == 2 and request]
    want = [len(pairs[i][1]).to_bytes(4, "little") + pairs[i][1] + pairs[i][2] for i in at]
    assert split(off, keys) == want


@settings(deadline=None)
@given(PAIRS, PAIRS, st.integers(0, 63))
def test_repeats_are_found_by_the_bytes_of_their_keys(
    old: list[tuple[int, bytes, bytes]], new: list[tuple[int, bytes, bytes]], cut: int
) -> None:
    def hashes(off: I64, keys: U8) -> U64:
        short = [hash(key) & 0x7FFF for key in split(off, keys)]
        return np.array(short, np.uint64) >> np.uint64(min(cut, 15)) << np.uint64(49)

    old_at, *known_keys = joined(list({pair[1:]: pair for pair in old}.values()))
    known: Any = known_keys
    lsns = np.arange(len(old_at)) + 100
    slots = np.zeros(2 * len(old_at) + 8, np.uint64)
    number = kernels.NUMBERS - 2  # the numbers begin with 0 again after two of them
    numbers = (number + np.arange(len(old_at))) % kernels.NUMBERS
    kernels.insert_rows(slots, hashes(*known), numbers)
    at, *new_keys = joined(new)
    keys: Any = new_keys
    first, lsn = np.full(len(new), -7), np.full(len(new), -7)
    stored = (slots, *known, lsns, number)
    kernels.find_repeats(
        np.array(at, np.int64), keys[0], keys[1], hashes(*keys), stored, first, lsn
    )
    lsn_of = dict(zip(split(*known), lsns.tolist(), strict=True))
    mine = split(*keys)
    assert lsn[at].tolist() == [lsn_of.get(key, 0) for key in mine]
    assert first[at].tolist() == [at[mine.index(key)] for key in mine]
    others = np.setdiff1d(np.arange(len(new)), at)
    assert (lsn[others] == -7).all()
    assert (first[others] == -7).all()


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


def test_a_removed_record_leaves_no_gap() -> None:
    """Records of three homes in one run, removed in every order."""
    slots = np.zeros(8, np.uint64)
    hashes = np.array([6, 6, 7, 7, 0], np.uint64) << np.uint64(61)
    rows = np.arange(5)
    for order in np.random.default_rng(0).permuted(np.tile(rows, (60, 1)), axis=1):
        kernels.insert_rows(slots, hashes, rows)
        left = set(rows.tolist())
        for row in order.tolist():
            gone = np.array([row])
            assert kernels.remove_rows(slots, hashes[gone], gone) == NONE
            left.remove(row)
            for other in left:
                at = np.full(1, NONE)
                seen = []
                while True:
                    found = np.empty(1, np.int64)
                    kernels.find_slots(slots, hashes[other : other + 1], at, found)
                    if at[0] == NONE:
                        break
                    seen.append(int(found[0]))
                    at += 1
                assert other in seen
        assert not slots.any()


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
    source, handle, hashes = np.arange(n) + 50, np.arange(n) + 90, np.arange(n, dtype=np.uint64)
    *parts, unknown = kernels.part_updates(
        sealed(kind), sealed(source), sealed(handle), sealed(hashes), sealed(places)
    )
    born = [i for i in range(n) if kind[i] == 1]
    gone = [i for i in range(n) if kind[i] == 2]
    want = [[50 + i for i in born], [90 + i for i in born], born, gone, gone]
    assert [part.tolist() for part in parts] == [*want, places[gone].tolist()]
    assert unknown == places[gone].tolist().count(NONE)


@pytest.mark.parametrize("number", [0, kernels.NUMBERS - 2])
def test_keys_are_appended_as_by_single_steps(number: int) -> None:
    keys = [b"one", b"", b"three", b"four"]
    off, data = strings_to_column(keys)
    hashes = np.array([7, 7, 1, 3], np.uint64) << np.uint64(61)
    slots = np.zeros(8, np.uint64)
    twin = slots.copy()
    columns = np.zeros(9, np.int64), np.zeros(10, np.int64), np.zeros(40, np.uint8)
    columns[1][:4] = 0, 2, 4, 6  # three rows are there already
    new = sealed(np.arange(4) + 20), sealed(off), sealed(data)
    kernels.append_keys(slots, hashes, 3, number, columns, new)
    assert columns[0].tolist() == [0, 0, 0, 20, 21, 22, 23, 0, 0]
    assert columns[1][3:8].tolist() == (6 + off).tolist()
    assert columns[2][6 : 6 + len(data)].tobytes() == b"".join(keys)
    kernels.insert_rows(twin, hashes, (number + 3 + np.arange(4)) % kernels.NUMBERS)
    assert slots.tolist() == twin.tolist()
