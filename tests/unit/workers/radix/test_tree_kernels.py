"""Trees: each query is met once wherever its region is, and dense places have deep trees."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ps2stream.workers.radix import layout
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.layout import CAPACITY, CELL_BITS, INNER, REF_MASK, STEP_BITS
from ps2stream.workers.radix.tree_kernels import LEAVES_OF_A_TREE
from tests.support.crowds import GRID, TERMS, draw_crowd


def steps(degrees: float, offset: float) -> int:
    return int((degrees + offset) * ((1 << STEP_BITS) / 360.0))


class Reader:
    """Reads the trees of an index as a match does, in Python."""

    def __init__(self, index: RadixGI2) -> None:
        self.nodes = index._arrays.nodes
        self.words = index._arrays.n32
        self.entries = {
            (int(term), int(word) >> 32 & 255): int(word)
            for bucket in index._arrays.directory.tolist()
            for term, word in zip(bucket[: layout.ENTRIES], bucket[layout.ENTRIES :], strict=True)
            if word
        }
        self.depths: Counter[int] = Counter()

    def block(self, ref: int, depth: int, x: int, y: int) -> list[int]:
        """The slots in a leaf whose bytes hold a point."""
        out = []
        shift = STEP_BITS - int(CELL_BITS[depth]) - 8
        a, b = x >> shift & 255, y >> shift & 255
        while ref:
            head = int(self.nodes[ref])
            cap = int(CAPACITY[head >> 40 & 127])
            for i in range(head >> 32 & 255):
                rect = int(self.words[2 * (ref + 1) + i])
                low, high = (rect & 255, rect >> 8 & 255), (rect >> 16 & 255, rect >> 24)
                if low[0] <= a <= 255 - high[0] and low[1] <= b <= 255 - high[1]:
                    out.append(int(self.words[2 * (ref + 1) + cap + i]) & layout.SLOT_MASK)
            ref = head & 0xFFFFFFFF
        return out

    def met(self, term: int, lon: float, lat: float) -> list[int]:
        x, y = steps(lon, 180.0), steps(lat, 90.0)
        root = 1 + (y >> 21) * 8 + (x >> 21)
        out = self.block(self.entries.get((term, layout.WIDE), 0) & 0xFFFFFFFF, 0, x, y)
        word = self.entries.get((term, root), 0)
        area = (x >> 16 & 7) + 8 * ((y >> 16) % 3)
        if not word >> 40 + area & 1:
            return out
        ref, depth = word & 0xFFFFFFFF, 1
        while ref & INNER:
            ref &= REF_MASK
            out += self.block(int(self.nodes[ref]) & 0xFFFFFFFF, depth, x, y)
            shift = STEP_BITS - int(CELL_BITS[depth + 1])
            fan = 1 << int(CELL_BITS[depth + 1] - CELL_BITS[depth])
            child = (y >> shift) % fan * fan + (x >> shift) % fan
            ref = int(self.nodes[ref + 1 + child]) & 0xFFFFFFFF
            depth += 1
        self.depths[depth] += 1
        return out + self.block(ref, depth, x, y)


@pytest.mark.parametrize(("spread", "side", "deep"), [(5.0, 3.0, 2), (1.0, 0.2, 3), (0.1, 0.02, 4)])
def test_a_query_is_met_once_at_every_point_of_its_region(
    spread: float, side: float, deep: int
) -> None:
    rng = np.random.default_rng(1)
    crowd = draw_crowd(rng, 4000, spread, side)
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, 4000))
    reader, slots = Reader(index), {}
    for slot in range(4000):
        slots[int(index._arrays.slots_i[slot, layout.HANDLE])] = slot
    for q in rng.integers(0, 4000, 600).tolist():
        a, b, c, d = crowd.rect[q].tolist()
        posting = crowd.term[q] if not crowd.every[q] else crowd.term[q][:1]
        points = [(a, b), (c, d), (a, d), (float(rng.uniform(a, c)), float(rng.uniform(b, d)))]
        for term in {int(t) for t in TERMS[posting]}:
            for x, y in points:
                assert reader.met(term, x, y).count(slots[q + 1]) == 1
    assert max(reader.depths) >= deep


def test_a_region_is_in_few_leaves_whatever_its_form() -> None:
    """Long thin regions and large ones, in trees that are as deep as can be."""
    rng = np.random.default_rng(2)
    small = draw_crowd(rng, 6000, 0.5, 0.001)
    small.term[:] = 0
    index = RadixGI2(GRID)
    index.insert(*small.rows(0, 6000))
    crowd = draw_crowd(rng, 300, 0.5, 0.001)
    crowd.term[:] = 0
    center = crowd.rect[:, :2].copy()
    half = 10.0 ** rng.uniform(-4, 1, (300, 2))
    crowd.rect[:] = np.concatenate([center - half, center + half], 1)
    crowd.lsns[:, 0] += 6000
    index.insert(*crowd.rows(0, 300))
    words, copies = index._arrays.n32, Counter[int]()
    for ref in leaves_of(index):
        head = int(index._arrays.nodes[ref])
        cap = int(CAPACITY[head >> 40 & 127])
        first = 2 * (ref + 1) + cap
        copies.update((words[first : first + (head >> 32 & 255)] & layout.SLOT_MASK).tolist())
    assert max(copies.values()) <= LEAVES_OF_A_TREE * layout.KEPT
    assert max(copies.values()) > 3


def leaves_of(index: RadixGI2) -> list[int]:
    """The offsets of all blocks of leaves."""
    nodes, out = index._arrays.nodes, []
    words = index._arrays.directory[:, layout.ENTRIES :]
    todo = [(w & 0xFFFFFFFF, 1) for w in words.ravel().tolist()]
    while todo:
        ref, depth = todo.pop()
        if ref & INNER:
            at = ref & REF_MASK
            fan = 1 << int(CELL_BITS[depth + 1] - CELL_BITS[depth])
            todo += [(int(nodes[at + i]) & 0xFFFFFFFF, depth + 1) for i in range(1, 1 + fan * fan)]
            todo.append((int(nodes[at]) & 0xFFFFFFFF, depth))
        elif ref:
            out.append(ref)
            todo.append((int(nodes[ref]) & 0xFFFFFFFF, depth))
    return out


@pytest.mark.parametrize(("behind", "splits"), [(0, True), ((1 << 16) - 1, False)])
def test_a_leaf_longer_than_its_head_can_count_is_not_looked_through_again(
    behind: int, splits: bool
) -> None:
    """As its blocks seem to be a power of two for ever, that would be done with every block."""
    crowd, index = draw_crowd(np.random.default_rng(3), 65, 0.0, 0.0), RadixGI2(GRID)
    crowd.rect[:], crowd.term[:] = 1.0 + 0.6 * np.arange(65)[:, None], 0
    index.insert(*crowd.rows(0, 64))
    (ref,) = leaves_of(index)
    index._arrays.nodes[ref] |= np.uint64(behind << 48)
    index.insert(*crowd.rows(64, 65))
    assert (len(leaves_of(index)) > 2) == splits
