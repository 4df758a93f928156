"""The kernels of the merger against loops; test_pair_kernels.py has those of pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps2stream.merger import kernels
from ps2stream.protocol.frame import U64, sealed
from ps2stream.protocol.session_map import SessionMap


@pytest.mark.parametrize("seed", range(8))
def test_deliveries_are_measured_and_cut_as_by_the_twin(seed: int) -> None:
    """Equal rows lie side by side, and count once in a slice but again in the next."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 9))
    id_off, text_off, opaque_off = (
        np.r_[0, np.cumsum(rng.integers(0, 50, rows))] for _ in range(3)
    )
    if seed % 2:  # none has anything opaque
        opaque_off = np.zeros(0, np.int64)
    index = np.sort(rng.integers(0, rows, int(rng.integers(0, 40)))).astype(np.uint32)

    def measure(part: list[int], pair: int) -> int:
        columns = [off for off in (id_off, text_off, opaque_off) if len(off)]
        own = {r: 48 + sum(np.diff(off)[r] for off in columns) for r in part}
        return pair * len(part) + int(sum(own.values()))

    cut = np.unique(np.r_[0, rng.integers(0, len(index) + 1, 5), len(index)])
    found = kernels.count_slice_bytes(cut, index, id_off, text_off, opaque_off, 12)
    parts = [index[a:b].tolist() for a, b in itertools.pairwise(cut)]
    assert found.tolist() == [measure(part, 12) for part in parts]
    for limit in (0, 1, 100, 137, 500, 10**6):
        fitting = [n for n in range(len(index) + 1) if measure(index[:n].tolist(), 40) <= limit]
        want = max(fitting[-1], min(len(index), 1))
        assert kernels.count_fitting(index, id_off, text_off, opaque_off, 40, limit) == want


@pytest.mark.parametrize("seed", range(6))
def test_spans_are_taken_as_by_the_twin(seed: int) -> None:
    """Spans that are empty, overlap and come in any order."""
    rng = np.random.default_rng(seed)
    data = rng.integers(0, 256, 50).astype(np.uint8)
    start, end = np.sort(rng.integers(0, 51, (2, 20)), axis=0)
    rows = rng.integers(0, 20, int(rng.integers(0, 40)))
    off, out = kernels.take_spans(start, end, data, rows)
    want = [data[start[r] : end[r]].tobytes() for r in rows]
    assert [out[a:b].tobytes() for a, b in itertools.pairwise(off)] == want
    assert off[-1] == len(out)


@pytest.mark.parametrize("seed", range(12))
def test_rows_of_handles_are_found_as_by_the_twin(seed: int) -> None:
    """In columns with few gaps and with many, of handles that rise, fall, repeat or are far off."""
    rng = np.random.default_rng(seed)
    share = (1.0, 0.8, 0.05)[seed % 3]
    size = (0, 1, 40, 3_000)[seed % 4]
    column = np.flatnonzero(rng.random(int(size / share)) < share) + 1
    is_live = rng.random(len(column)) < 0.9
    handles = np.r_[rng.integers(0, int(size / share) + 3, 500), np.iinfo(np.int64).max, column]
    if seed % 2:
        handles.sort()
    row, missing = kernels.find_rows(sealed(column), sealed(is_live), sealed(handles))
    twin = {h: r for r, (h, live) in enumerate(zip(column, is_live, strict=True)) if live}
    want = [twin.get(h, kernels.NONE) for h in handles]
    assert row.tolist() == want
    assert missing == want.count(kernels.NONE)


def _list_handles(table: U64) -> set[int]:
    """Returns the handles of a set in blocks of 64."""
    return {
        64 * (int(key) - 1) + bit
        for key, bits in table.tolist()
        for bit in range(64)
        if int(bits) >> bit & 1
    }


@pytest.mark.parametrize("seed", range(6))
def test_new_handles_are_those_of_a_set(seed: int) -> None:
    """Until the table is half full, then from where it stopped, and again once it has grown."""
    rng, table, twin = np.random.default_rng(seed), np.zeros((16, 2), np.uint64), set[int]()
    few = [1, 63, 64, 2**63 - 1, *range(70, 80), *range(64, 1_500, 64), *range(1024, 2**20, 2**16)]
    handles = rng.choice(few, 200)
    at = used = 0
    new = np.zeros(200, np.int64)
    while at < len(handles):
        end = min(at + int(rng.integers(1, 9)), len(handles))
        to, used, found = kernels.add_new(table, used, handles[:end], at, new)
        want = [h for h in dict.fromkeys(handles[at:to].tolist()) if h not in twin]
        assert new[:found].tolist() == want
        twin |= set(want)
        assert _list_handles(table) == twin
        assert used == len({h // 64 for h in twin})
        if to < end:
            assert 2 * used == len(table)
            old, table = table, np.zeros((2 * len(table), 2), np.uint64)
            kernels.copy_rows(old, table)
            assert _list_handles(table) == twin
        at = to
    assert len(table) > 16


@pytest.mark.parametrize("seed", range(4))
def test_long_rows_are_sorted_too(seed: int) -> None:
    """Rows of more than 32 pairs are sorted with gaps first."""
    rng = np.random.default_rng(seed)
    row, handle = rng.integers(0, 3, 300), rng.integers(1, 90, 300)
    found = kernels.distinct_pairs(row.astype(np.uint32), handle, handle * 7, 4)
    want = sorted(set(zip(row.tolist(), handle.tolist(), strict=True)))
    assert list(zip(*(c.tolist() for c in found), strict=True)) == [(r, h, 7 * h) for r, h in want]


@pytest.mark.parametrize("seed", range(12))
def test_updates_are_parted_as_by_the_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, mergers = int(rng.integers(0, 12)), int(rng.choice([1, 3]))
    kind, session = rng.integers(1, 3, n).astype(np.uint8), rng.integers(1, 9, n)
    lsn, handle = rng.permutation(n) + 5, rng.permutation(n) + 5
    if seed % 2:
        lsn, handle = np.sort(lsn), np.sort(handle)
    owned = SessionMap.first(mergers).owned_by(1 % mergers)
    inserts, deletes, rise = kernels.part_updates(
        sealed(kind), sealed(lsn), sealed(handle), sealed(session), owned, 7
    )
    mine = [i for i in range(n) if session[i] % mergers == 1 % mergers and lsn[i] > 7]
    assert inserts.tolist() == [i for i in mine if kind[i] == 1]
    assert deletes.tolist() == [i for i in mine if kind[i] == 2]
    orders = handle[inserts].tolist(), lsn[deletes].tolist()
    assert rise == all(order == sorted(order) for order in orders)
