"""The kernels of gridt one by one, against dictionaries and loops."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps2stream.dispatcher import kernels, object_kernels
from ps2stream.dispatcher.h2 import H2
from ps2stream.protocol.frame import U32, U64
from ps2stream.routing.unit_kernels import FIRST_GROUP, LeafTuple, empty_table, fill

Unit = tuple[int, int]
WORKERS = 70  # two words of a mask
GROUPS = [(3, 69), (0, 1, 64), (2, 64)]
GROUP_ARRAYS = (
    np.array([0, 2, 5, 7]), np.array([3, 69, 0, 1, 64, 2, 64], np.uint16),
    np.array([0, 0, 1], np.uint8),
)  # fmt: skip
SHARDED = FIRST_GROUP + 2
OWNERS = [*range(WORKERS), FIRST_GROUP, FIRST_GROUP + 1, SHARDED]
"""Workers, and groups as often as several of them."""
CELLS = [0, 1, 7, 3 << 28, 3 << 28 | 1, 15 << 28]
TERMS = [0, 1, 2, 2**32, 2**64 - 1, *range(10, 20)]


class Twin:
    """H2 with its kernels, and the dictionaries that say the same. Each unit has an owner of its
    own, as a replicated unit may."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.counts = H2()
        self.queries = Counter[Unit]()
        units = [(cell, term) for cell in CELLS for term in TERMS]
        drawn = [OWNERS if self.rng.random() < 0.7 else OWNERS[-3:] for _ in units]
        self.owner = {unit: int(self.rng.choice(of)) for unit, of in zip(units, drawn, strict=True)}
        newer = kernels.NEWER << 28
        old = {unit: owner for unit, owner in self.owner.items() if unit[0] < newer}
        new = {(c - newer, t): owner for (c, t), owner in self.owner.items() if c >= newer}
        self.routes = replicate(old), replicate(new), (WORKERS, WORKERS)

    def tags(self, n: int) -> list[Unit]:
        cells, terms = self.rng.integers(len(CELLS), size=n), self.rng.integers(15, size=n)
        return [(CELLS[c], TERMS[t]) for c, t in zip(cells, terms, strict=True)]

    def insert(self, n: int) -> None:
        tags = self.tags(n)
        self.queries.update(tags)
        self.counts.add(*split(tags))

    def check(self) -> None:
        units = [(cell, term) for cell in CELLS for term in TERMS]
        out = np.zeros(len(units), np.int64)
        kernels.count_queries(self.counts.arrays, *split(units), out)
        assert out.tolist() == [self.queries[unit] for unit in units]


def replicate(owner: dict[Unit, int]) -> LeafTuple:
    """The arrays of an H1 in which each of these units has this owner."""
    table = empty_table(8)
    fill(table, *split([*owner]), np.array([*owner.values()], np.uint16))
    number, owners = np.zeros(1, np.uint32), np.zeros(1, np.uint16)
    off = np.zeros(2, np.int64)
    none = np.zeros((0, 2), np.uint16), empty_table(1)
    flags = np.zeros(1, np.uint8)
    return number, flags, off, owners, number, off, *none, table, empty_table(1)


def masks(chosen: list[set[int]]) -> list[list[int]]:
    """The bits of each set of workers, in two words."""
    found = [sum(1 << w for w in workers) for workers in chosen]
    return [[mask % 2**64, mask >> 64] for mask in found]


def members(owner: int) -> tuple[int, ...]:
    """The workers of an owner."""
    return (owner,) if owner < FIRST_GROUP else GROUPS[owner - FIRST_GROUP]


def split(units: list[Unit]) -> tuple[U32, U64]:
    cells = np.array([cell for cell, _ in units], np.uint32)
    return cells, np.array([term for _, term in units], np.uint64)


@pytest.mark.parametrize("seed", range(6))
def test_the_queries_of_a_unit_are_counted(seed: int) -> None:
    twin = Twin(seed)
    for _ in range(3):
        twin.insert(120)
        twin.check()


@pytest.mark.parametrize("seed", range(6))
def test_postings_are_those_of_the_owners(seed: int) -> None:
    rng = np.random.default_rng(seed)
    owner = rng.choice(OWNERS, 200).astype(np.uint16)
    count = rng.integers(1, 9, 200).astype(np.uint32)
    postings = np.ones(WORKERS + 1, np.int64)
    kernels.count_postings(owner, count, GROUP_ARRAYS, postings)
    expected = np.ones(WORKERS + 1, int)
    for of, n in zip(owner.tolist(), count.tolist(), strict=True):
        for worker in members(of) if of != SHARDED else (WORKERS,):
            expected[worker] += n
    assert postings.tolist() == expected.tolist()


@pytest.mark.takes_turns(0)
@pytest.mark.parametrize("seed", range(6))
def test_objects_go_where_the_twin_sends_them(seed: int) -> None:
    """Objects without terms, with many, and with terms that begin anywhere in the column."""
    twin = Twin(seed)
    twin.insert(60)
    rng, n = twin.rng, 90
    size = rng.choice([0, 1, 4, 15], n)
    skipped = seed % 3
    off = skipped + np.r_[0, np.cumsum(size)]
    rows = [sorted(rng.choice(np.array(TERMS, np.uint64), k, replace=False)) for k in size]
    term = np.array([9] * skipped + [t for row in rows for t in row], np.uint64)
    cells = np.array(CELLS, np.uint32)[rng.integers(len(CELLS), size=(3, n))]
    cells = np.sort(cells, axis=0)
    met = [
        [(int(c), int(t)) for c in cells[:, i] for t in rows[i] if twin.queries[int(c), int(t)]]
        for i in range(n)
    ]
    alone = [[unit for unit in units if twin.owner[unit] < FIRST_GROUP] for units in met]
    wanted = [sorted({twin.owner[unit] for unit in units}) for units in alone]
    chose = [
        [{twin.owner[int(c), int(t)] for c in cells[:, i] if (int(c), int(t)) in alone[i]}
         for t in rows[i]]
        for i in range(n)
    ]  # fmt: skip
    by_term = np.zeros((int(size.sum()), 2), np.uint64)
    by_group = np.zeros((3, int(size.sum())), np.uint16)
    parts, *_ = twin.counts.arrays
    kernels.select_workers(parts, cells, off, term, twin.routes, by_term, by_group)
    assert by_term.tolist() == masks([workers for terms in chose for workers in terms])
    met_groups = [
        [max(twin.owner[int(cells[level, i]), int(t)] - FIRST_GROUP + 1, 0)
         if (int(cells[level, i]), int(t)) in met[i] else 0 for i in range(n) for t in rows[i]]
        for level in range(3)
    ]  # fmt: skip
    assert by_group.tolist() == met_groups

    found = np.zeros(WORKERS, np.int64)
    groups = GROUP_ARRAYS
    arrays = twin.counts.arrays
    kernels.count_candidates(arrays, cells, (off, term), twin.routes, groups, found)
    checked = Counter[int]()
    for i, units in enumerate(met):
        for unit in units:
            own = members(twin.owner[unit])
            if twin.owner[unit] == SHARDED:
                for j, worker in enumerate(own):
                    checked[worker] += (twin.queries[unit] + 1 - j) // 2
                continue
            checked[own[i % len(own)]] += twin.queries[unit]
    assert Counter(dict(enumerate(found.tolist()))) == checked

    row_n, term_n = np.zeros(WORKERS, np.int64), np.zeros(WORKERS, np.int64)
    by_row = np.full((n, 2), 2**64 - 1, np.uint64)  # as `route` has it, of any content
    assert kernels.share_sizes(by_term, by_row, off, row_n, term_n) == wanted.count([])
    assert by_row.tolist() == masks([set(workers) for workers in wanted])
    shares = {w: [i for i in range(n) if w in wanted[i]] for w in range(WORKERS)}
    assert row_n.tolist() == [len(rows_) for rows_ in shares.values()]
    assert term_n.tolist() == [sum(len(rows[i]) for i in rows_) for rows_ in shares.values()]

    selected = np.flatnonzero(row_n)
    index = np.full(WORKERS, -1, np.int64)
    index[selected] = np.arange(len(selected))
    row_at, term_at = (np.cumsum(np.r_[0, sizes[:-1]]) for sizes in (row_n, term_n))
    lon, lat = rng.random(n), rng.random(n)
    total = int(row_n.sum())
    row, out_lon, out_lat = np.zeros(total, np.uint32), np.zeros(total), np.zeros(total)
    out_off = np.full(total + len(selected), -1, np.int64)
    out_term = np.zeros(int(term_n.sum()), np.uint64)
    byte_at = np.cumsum(np.r_[0, (term_n + 7) // 8])
    bits = np.zeros(int(byte_at[-1]), np.uint8)
    kernels.scatter_objects(
        by_term, by_row, (lon, lat, off, term), row_at, term_at, byte_at, index,
        (row, out_lon, out_lat, out_off, out_term, bits),
    )  # fmt: skip
    flat = [i for rows_ in shares.values() for i in rows_]
    assert row.tolist() == flat
    assert out_lon.tolist() == lon[flat].tolist()
    assert out_lat.tolist() == lat[flat].tolist()
    assert out_term.tolist() == [int(t) for i in flat for t in rows[i]]
    sizes = [[0, *np.cumsum([len(rows[i]) for i in shares[w]]).tolist()] for w in selected.tolist()]
    assert out_off.tolist() == [at for offsets in sizes for at in offsets]
    for w in range(WORKERS):
        mine = bits[byte_at[w] : byte_at[w + 1]]
        flags = [w in workers for i in shares[w] for workers in chose[i]]
        assert mine.tolist() == np.packbits(np.array(flags, bool), bitorder="little").tolist()
    assert row_at.tolist() == np.cumsum(row_n).tolist()
    assert term_at.tolist() == np.cumsum(term_n).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_a_string_column_are_taken_in_the_order_asked_for(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [rng.bytes(int(size)) for size in rng.integers(0, 9, size=30)]
    data = np.frombuffer(b"".join(values), np.uint8)
    off = np.cumsum([0, *map(len, values)])
    rows = rng.integers(0, len(values), size=int(rng.integers(0, 50)))
    taken_off, taken = object_kernels.take_spans(off, data, rows)
    wanted = [values[row] for row in rows.tolist()]
    assert taken.tobytes() == b"".join(wanted)
    assert taken_off.tolist() == np.cumsum([0, *map(len, wanted)]).tolist()
    assert [str(column.dtype) for column in (taken_off, taken)] == ["int64", "uint8"]


@pytest.mark.parametrize("seed", range(20))
def test_rows_of_a_column_of_terms_are_taken_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [rng.integers(0, 2**64, int(n), np.uint64).tolist() for n in rng.integers(0, 5, 30)]
    data = np.array([term for terms in values for term in terms], np.uint64)
    off = np.cumsum([0, *map(len, values)])
    rows = rng.integers(0, len(values), size=int(rng.integers(0, 50))).astype(np.uint32)
    taken_off, taken = object_kernels.take_spans(off, data, rows)
    wanted = [values[row] for row in rows.tolist()]
    assert taken.tolist() == [term for terms in wanted for term in terms]
    assert taken_off.tolist() == np.cumsum([0, *map(len, wanted)]).tolist()
    assert taken.dtype == np.uint64


@pytest.mark.parametrize("seed", range(20))
def test_the_rows_of_pairs_are_listed_once_and_rise(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 30))
    named = rng.integers(0, rows, int(rng.integers(0, 60))).astype(np.uint32)
    listed = object_kernels.list_rows(named, rows)
    assert listed.tolist() == sorted(set(named.tolist()))
    assert listed.dtype == np.uint32
    for beyond in (rows, rows + 1, 2**32 - 1):  # no batch has such a row
        wrong = np.insert(named, int(rng.integers(0, len(named) + 1)), beyond).astype(np.uint32)
        assert len(object_kernels.list_rows(wrong, rows)) == rows + 1
