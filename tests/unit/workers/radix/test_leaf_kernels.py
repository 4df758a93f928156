"""Leaves against a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix import layout
from ps2stream.workers.radix.layout import BLOCK_WORDS, CAPACITY
from ps2stream.workers.radix.leaf_kernels import (
    EVERYTHING,
    append_posting,
    pack_bounds,
    remove_posting,
)
from ps2stream.workers.radix.pointers import pointer_to


@njit
def call_append(
    nodes: Any, n32: Any, n16: Any, free: Any, state: Any, ref: int, rect: Any, word: Any,
    prints: Any,
) -> Any:  # fmt: skip
    return append_posting(
        pointer_to(nodes), pointer_to(n32), pointer_to(n16), pointer_to(free), pointer_to(state),
        ref, rect, word, prints,
    )  # fmt: skip


@njit
def call_remove(
    nodes: Any, n32: Any, n16: Any, free: Any, state: Any, dead: Any, ref: int, slot: int,
    most: int,
) -> Any:  # fmt: skip
    return remove_posting(
        pointer_to(nodes), pointer_to(n32), pointer_to(n16), pointer_to(free), pointer_to(state),
        pointer_to(dead), ref, slot, most,
    )  # fmt: skip


@njit
def call_pack(bounds: Any, depth: int, x: int, y: int) -> Any:
    return pack_bounds(bounds, depth, x, y)


class Leaf:
    """A leaf, and its postings as a list of (rectangle, slot, fingerprints)."""

    def __init__(self) -> None:
        self.nodes = np.zeros(1 << 14, np.uint64)
        self.free = np.zeros(len(BLOCK_WORDS), np.int64)
        self.state = np.zeros(layout.STATE, np.int64)
        self.state[layout.NODE_TOP] = 1
        self.state[layout.NODE_ROOM] = len(self.nodes) - layout.SLACK
        self.dead = np.zeros(1 << 8, np.uint64)
        self.ref = 0
        self.memory = (
            self.nodes, self.nodes.view(np.uint32), self.nodes.view(np.uint16), self.free,
            self.state,
        )  # fmt: skip

    def append(self, rect: int, slot: int, prints: int, mode: int = 0) -> None:
        word = mode << layout.SLOT_BITS | slot
        each = np.uint32(rect), np.uint32(word), np.uint16(prints)
        self.ref = int(call_append(*self.memory, self.ref, *each))

    def remove(self, slot: int, most: int = EVERYTHING) -> bool:
        """Removes a slot; returns whether that stopped before its end."""
        self.ref, _, stopped = call_remove(*self.memory, self.dead, self.ref, slot, most)
        return bool(stopped)

    def postings(self) -> list[tuple[int, int, int]]:
        out, at = [], self.ref
        while at:
            head = int(self.nodes[at])
            cap, n = int(CAPACITY[head >> 40 & 127]), head >> 32 & 255
            words = self.memory[1][2 * (at + 1) :]
            prints = self.memory[2][4 * (at + 1) + 4 * cap :]
            out += [
                (int(words[i]), int(words[cap + i]) & layout.SLOT_MASK, int(prints[i]))
                for i in range(n)
            ]
            at = head & 0xFFFFFFFF
        return sorted(out)

    def even_blocks(self) -> list[tuple[bool, bool]]:
        """Whether each block is marked as even, and whether it is."""
        out, at = [], self.ref
        while at:
            head = int(self.nodes[at])
            cap, n = int(CAPACITY[head >> 40 & 127]), head >> 32 & 255
            words = self.memory[1][2 * (at + 1) :]
            modes = words[cap : cap + n] >> np.uint32(layout.SLOT_BITS)
            is_even = (modes == layout.ALL).all() and not words[:n].any()
            out.append((bool(head & int(layout.EVEN)), bool(is_even)))
            at = head & 0xFFFFFFFF
        return out

    def free_words(self) -> int:
        words = 0
        for cls, first in enumerate(self.free.tolist()):
            at = first
            while at:
                words += int(BLOCK_WORDS[cls])
                at = int(self.nodes[at])
        return words


@pytest.mark.takes_turns(0)
@pytest.mark.parametrize(("seed", "most"), [(1, 6), (2, 70), (3, 200), (4, 600)])
def test_a_leaf_holds_what_was_appended_and_not_removed(seed: int, most: int) -> None:
    rng, leaf = np.random.default_rng(seed), Leaf()
    held: list[tuple[int, int, int]] = []
    slot = 0
    for _ in range(4 * most):
        if held and rng.random() < (0.3 if len(held) < most else 0.8):
            gone = held.pop(int(rng.integers(len(held))))
            leaf.remove(gone[1])
        else:
            slot += 1
            one = int(rng.integers(1 << 32)), slot, int(rng.integers(1 << 16))
            leaf.append(*one)
            held.append(one)
        assert leaf.postings() == sorted(held)
    for one in held:
        leaf.remove(one[1])
    assert leaf.ref == 0
    assert leaf.free_words() == leaf.state[layout.NODE_TOP] - 1 - leaf.state[layout.NODE_GAPS]


@pytest.mark.parametrize("most", [5, 40, 64, 200])
def test_a_block_that_says_it_is_even_is(most: int) -> None:
    """Also when a posting comes from another block to a place that is free."""
    rng, leaf, held, seen = np.random.default_rng(most), Leaf(), list[int](), set()
    for slot in range(1, 1000 + 30 * most):
        if held and rng.random() < (0.3 if len(held) < most else 0.7):
            leaf.remove(held.pop(int(rng.integers(len(held)))))
        else:
            odd = int(rng.integers(3)) if rng.random() < 0.02 else 0
            leaf.append(int(odd == 1), slot, 7, layout.GENERAL if odd == 2 else layout.ALL)
            held.append(slot)
        blocks = leaf.even_blocks()
        assert all(is_even for marked, is_even in blocks if marked)
        seen |= set(blocks)
    assert {(True, True), (False, False)} <= seen


def test_a_block_of_even_postings_says_so() -> None:
    leaf = Leaf()
    for slot in range(1, 200):
        leaf.append(0, slot, 7, layout.ALL)
        assert {marked for marked, _ in leaf.even_blocks()} == {True}
    for slot in range(30, 180):
        leaf.remove(slot)
        assert {marked for marked, _ in leaf.even_blocks()} == {True}


def test_a_long_leaf_loses_all_that_is_dead_at_once() -> None:
    leaf = Leaf()
    for slot in range(1, 500):
        leaf.append(slot, slot, 0)
    gone = [1, 2, 3, 64, 65, 300, 448, 449, 498, 499]
    for slot in gone:
        leaf.dead[slot >> 6] |= np.uint64(1) << np.uint64(slot & 63)
    leaf.remove(300)
    assert [slot for _, slot, _ in leaf.postings()] == [
        slot for slot in range(1, 500) if slot not in gone
    ]
    leaf.dead[:] = np.uint64((1 << 64) - 1)
    leaf.remove(7)
    assert leaf.ref == 0


def test_bounds_are_packed_relative_to_the_cell_and_clamped() -> None:
    # A cell of depth 2 has 2^18 steps, so a byte stands for 2^10 of them.
    corner = 3 << 18
    bounds = corner - 5, corner + 1023, corner + 1024, corner + (1 << 18) + 9
    word = int(call_pack(bounds, 2, corner, corner))
    assert [word & 255, word >> 8 & 255, 255 - (word >> 16 & 255), 255 - (word >> 24)] == [
        0, 0, 1, 255,
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_a_removal_that_stopped_goes_on_where_it_did(seed: int) -> None:
    """Whatever is appended and removed in between; the slots that were dead are gone at last."""
    rng, leaf = np.random.default_rng(seed), Leaf()
    for slot in range(700):
        leaf.append(slot, slot, 7)
    gone = rng.choice(700, [700, 400, 100, 1][seed % 4], replace=False).tolist()
    for slot in gone:
        leaf.dead[slot >> 6] |= np.uint64(1 << (slot & 63))
    new, calls = 700, 1
    left = set(range(700)) - set(gone)
    while leaf.remove(gone[0], 1 + seed % 3):
        calls += 1
        for _ in range(int(rng.integers(0, 90))):
            leaf.append(new, new, 7)
            left.add(new)
            new += 1
        if seed > 3 and leaf.ref and left:  # for a unit that is dropped
            other = int(rng.choice(sorted(left)))
            left.remove(other)
            leaf.remove(other)
    assert calls > 1
    assert sorted(slot for _, slot, _ in leaf.postings()) == sorted(left)
    assert not leaf.state[[layout.SWEPT_LEAF, layout.SWEPT_BLOCK]].any()


def test_a_walk_through_another_leaf_does_not_stop() -> None:
    """As what is left of the sweep would never end, if it began anew in each of two leaves."""
    first, second = Leaf(), Leaf()
    for slot in range(700):
        first.append(slot, slot, 7)
    second.memory, second.dead, second.state = first.memory, first.dead, first.state
    second.nodes = first.nodes
    for slot in range(700):
        second.append(slot, slot, 7)
    assert second.remove(3, 2)
    assert not first.remove(3, 2)
    assert len(first.postings()) == 699
    while second.remove(3, 2):
        pass
    assert len(second.postings()) == 699
