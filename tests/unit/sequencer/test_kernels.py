"""The kernels of the sequencer against naive twins."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.protocol.frame import sealed, strings_to_column
from ps2stream.sequencer import kernels
from ps2stream.sequencer.columns import find_first_rows, split
from ps2stream.sequencer.kernels import NONE

KEYS = st.lists(st.binary(max_size=5), max_size=30)


@settings(deadline=None)
@given(KEYS, st.integers(0, 63))
def test_the_first_of_equal_rows_is_found(keys: list[bytes], cut: int) -> None:
    hashes = np.array([hash(key) & 0x7FFF for key in keys], np.uint64) >> np.uint64(cut)
    first, count = find_first_rows(*strings_to_column(keys), hashes << np.uint64(49))
    assert first.tolist() == [keys.index(key) for key in keys]
    assert count == len({*keys})


@settings(deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), min_size=1))
def test_joined_keys_differ_as_pairs_do(pairs: list[tuple[bytes, bytes]]) -> None:
    left, right = (strings_to_column(part) for part in zip(*pairs, strict=True))
    at = sealed(np.arange(len(pairs))[::-1])
    joined = split(
        *kernels.join_keys(sealed(left[0]), sealed(left[1]), sealed(right[0]), sealed(right[1]), at)
    )
    want = [len(a).to_bytes(4, "little") + a + b for a, b in pairs[::-1]]
    assert joined == want


@settings(deadline=None)
@given(KEYS, KEYS)
def test_keys_are_compared_by_their_bytes(left: list[bytes], right: list[bytes]) -> None:
    pairs = [(a, b) for a in range(len(left)) for b in range(len(right))]
    rows, keys = (np.array([p[k] for p in pairs], np.int64) for k in (0, 1))
    same = np.empty(len(pairs), np.uint8)
    a, b = strings_to_column(left), strings_to_column(right)
    kernels.compare_keys(sealed(a[0]), sealed(a[1]), rows, sealed(b[0]), sealed(b[1]), keys, same)
    assert same.tolist() == [left[i] == right[j] for i, j in pairs]


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
                    found = kernels.find_slots(slots, hashes[other : other + 1], at)
                    if at[0] == NONE:
                        break
                    seen.append(int(found[0]))
                    at += 1
                assert other in seen
        assert not slots.any()
