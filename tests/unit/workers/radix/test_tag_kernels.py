"""The tags of stored queries: those that were given, whether computed or listed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.protocol.frame import U32, U64
from ps2stream.workers.radix import layout
from ps2stream.workers.radix.cell_kernels import rehash_cells
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.tag_kernels import bound_tags, list_tags
from tests.support.crowds import GRID as CROWD_GRID
from tests.support.crowds import draw_crowd
from tests.support.postings import GRID, Query, columns, random_query, touched
from tests.support.radix import holders_of_slot


def count(index: RadixGI2, slot: int) -> int:
    """The number of tags of a slot."""
    if index._arrays.slots_i[slot, layout.HANDLE] < 0:
        return 0
    last, tags = bound_tags(slot, 0, index._lines, tuple(index._arrays))
    assert last == slot + 1
    return int(tags)


def stored_tags(index: RadixGI2) -> dict[int, list[tuple[int, int]]]:
    """The tags by handle, in the order in which the index has them."""
    arrays = index._arrays
    top = int(arrays.state[layout.SLOT_TOP])
    sizes = np.array([count(index, slot) for slot in range(top)], np.int64)
    cell: U32 = np.empty(sizes.sum(), np.uint32)
    term: U64 = np.empty(sizes.sum(), np.uint64)
    fields = tuple(arrays), tuple(index._updates)
    assert list_tags(0, len(sizes), *fields, index._lines, cell, term) == sizes.sum()
    handle = np.repeat(arrays.slots_i[:top, layout.HANDLE], sizes)
    out: dict[int, list[tuple[int, int]]] = {}
    for h, c, t in zip(handle.tolist(), cell.tolist(), term.tolist(), strict=True):
        out.setdefault(h, []).append((c, t))
    for slot in range(top):
        if len(held := holders_of_slot(index, slot)) > 1:
            tags = out.pop(int(arrays.slots_i[slot, layout.HANDLE]))
            out |= dict.fromkeys(held, tags)
    return out


@pytest.mark.parametrize("seed", range(6))
def test_all_tags_are_listed_once_and_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries = [random_query(rng, handle) for handle in range(1, 150)]
    for query in queries[::2]:  # every other one under all of its tags
        posted = [t for i, t in enumerate(query.terms) if query.post >> i & 1]
        query.tags = {(c, t) for c in touched(query) for t in posted}
    index = RadixGI2(GRID)
    index.insert(*columns(queries))
    assert stored_tags(index) == {q.handle: sorted(q.tags) for q in queries if q.tags}
    listed = 0
    for slot in range(int(index._state[layout.SLOT_TOP])):
        session, extras = index._arrays.slots_i[slot, [layout.SESSION, layout.SECOND]].tolist()
        if session & layout.KIND_MASK == layout.BLOCK and extras:
            listed += bool(index._arrays.pool[extras + layout.X_LIST])
    assert 20 < listed < 120


def test_a_query_with_all_its_tags_has_no_list_and_no_block() -> None:
    crowd = draw_crowd(np.random.default_rng(1), 500, 5.0, 2.0)
    index = RadixGI2(CROWD_GRID)
    index.insert(*crowd.rows(0, 500))
    assert index._state[layout.POOL_TOP] == layout.POOL_UNIT
    assert {len(tags) for tags in stored_tags(index).values()} > {1, 2, 4}


def test_tags_that_come_later_are_listed_among_the_others() -> None:
    rng = np.random.default_rng(8)
    index = RadixGI2(GRID)
    queries = [random_query(rng, handle) for handle in range(1, 80)]
    parts: list[list[Query]] = [[], []]
    for query in queries:
        first = {tag for tag in query.tags if rng.random() < 0.5}
        parts[0].append(dataclasses.replace(query, tags=first))
        parts[1].append(dataclasses.replace(query, tags=query.tags - first))
    for part in parts:
        index.extend(*columns(part))
    assert stored_tags(index) == {q.handle: sorted(q.tags) for q in queries if q.tags}


def test_a_table_of_cells_that_grows_keeps_its_counts() -> None:
    rng = np.random.default_rng(2)
    old, counts = np.full(64, 0xFFFFFFFF, np.uint32), np.zeros((64, 2), np.int64)
    some = rng.choice(64, 30, replace=False)
    old[some] = rng.choice(10_000, 30, replace=False)
    counts[some] = rng.integers(0, 3, (30, 2))
    cells, by = np.full(128, 0xFFFFFFFF, np.uint32), np.zeros((128, 2), np.int64)
    kept = counts[:, 0] > 0
    assert rehash_cells(old, counts, cells, by) == kept.sum()
    want = dict(zip(old[kept].tolist(), map(tuple, counts[kept].tolist()), strict=True))
    used = cells != 0xFFFFFFFF
    assert dict(zip(cells[used].tolist(), map(tuple, by[used].tolist()), strict=True)) == want
