"""Sweeps of long leaves: each call searches a bounded part, and what was dead leaves the leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from ps2stream.workers.radix import layout
from ps2stream.workers.radix import purge_kernels as kd
from ps2stream.workers.radix.gi2 import RadixGI2
from ps2stream.workers.radix.leaf_kernels import EVERYTHING, note_walk
from ps2stream.workers.radix.pointers import point_update_addresses
from ps2stream.workers.radix.removal_kernels import remove_from_tree
from tests.support.crowds import GRID, TERMS, Crowd, draw_crowd

N = 150_000
BUDGET = 64  # lists of a sweep


def crowd_one_point(n: int) -> Crowd:
    """Queries under one word whose regions all hold one point."""
    crowd = draw_crowd(np.random.default_rng(2), n, 0.0, 0.0)
    crowd.rect[:], crowd.term[:] = (1.0, 1.0, 1.0, 1.0), 0
    crowd.rect[:, 2] += np.arange(n) * 1e-9  # or they were stored once
    return crowd


def match_point(index: RadixGI2, lsn: int) -> list[int]:
    found = index.match(lsn, np.ones(1), np.ones(1), np.array([0, 1]), TERMS[:1])
    return sorted(found.handle.tolist())


@pytest.fixture(scope="module")
def filled() -> dict[str, object]:
    """The parts of an index of one leaf of N postings."""
    index = RadixGI2(GRID)
    index.insert(*crowd_one_point(N).rows(0, N))
    return {name: np.array(part) for name, part in index.hold().items()}


def restore(filled: dict[str, object]) -> RadixGI2:
    return RadixGI2(GRID, {name: np.array(part) for name, part in filled.items()})


@njit
def call_remove(addresses: Any, ref: int, slot: int, most: int) -> Any:
    """Removes a slot from a tree that is a leaf or empty, where no place is looked at."""
    index, scratch = point_update_addresses(addresses)
    return remove_from_tree(
        index.nodes, index.n32, index.n16, index.node_free, index.state, index.dead, scratch.trail,
        ref, (1, 0, 0), (0, 0, 0, 0), slot, most,
    )  # fmt: skip


@njit
def call_note(addresses: Any, ref: int) -> None:
    note_walk(point_update_addresses(addresses)[0].state, ref)


def find_leaf(index: RadixGI2) -> int:
    """The only leaf."""
    nodes, depth = index._arrays.nodes, 1
    words = index._arrays.directory[:, layout.ENTRIES :].ravel()
    (ref,) = (int(word) & 0xFFFFFFFF for word in words.tolist() if word)
    while ref & layout.INNER:
        children = 1 << 2 * int(layout.CELL_BITS[depth + 1] - layout.CELL_BITS[depth])
        words = nodes[ref & layout.REF_MASK :][: 1 + children] & layout.LOW
        (ref,) = (int(word) for word in words.tolist() if word)
        depth += 1
    return ref


@pytest.mark.takes_turns
def test_a_leaf_that_was_walked_through_is_searched_for_no_dead_slot() -> None:
    """But for one that is not dead, whose unit is dropped."""
    n, index = 1000, RadixGI2(GRID)
    index.insert(*crowd_one_point(n).rows(0, n))
    ref = find_leaf(index)
    addresses = index._locate_updates()
    assert call_remove(addresses, 0, 5, 100) == (0, 0, False)
    call_note(addresses, ref)
    assert call_remove(addresses, ref, 5, 100) == (ref, 0, False)
    assert len(match_point(index, n)) == n
    assert call_remove(addresses, ref, 5, EVERYTHING) == (ref, -(-n // 64), False)
    assert 6 not in match_point(index, n)
    for slot in range(n - 1, -1, -1):  # until the block that was noted is freed
        if slot != 5:
            ref = call_remove(addresses, ref, slot, EVERYTHING)[0]
    assert ref == 0
    assert not index._state[layout.WALKED :].any()


def test_a_leaf_into_which_queries_come_is_not_walked_through_again() -> None:
    """Or a sweep that stopped in another leaf would walk through all of it at once."""
    n, index = 1000, RadixGI2(GRID)
    crowd = crowd_one_point(n + 500)
    index.insert(*crowd.rows(0, n))
    call_note(index._locate_updates(), before := find_leaf(index))
    index.insert(*crowd.rows(n, n + 500))
    assert (ref := find_leaf(index)) != before
    assert call_remove(index._locate_updates(), ref, 5, 100) == (ref, 0, False)


def test_a_block_that_a_leaf_outgrew_is_not_noted_any_more() -> None:
    """Another leaf may take it, from which dead slots are still to be removed."""
    n, few = 1000, 40
    crowd = crowd_one_point(n + few + 10)
    crowd.term[n : n + few], crowd.term[-1] = 1, 1
    index = RadixGI2(GRID)
    index.insert(*crowd.rows(0, n + few))
    gone = np.r_[1 : n - few + 1, n + 1 : n + 11]
    index.delete(gone, np.full(len(gone), n + few + 20))
    index.purge(n + few + 20)
    index.sweep(BUDGET)  # walks through the leaf of the first word, and comes to no other
    assert index._state[layout.WALKED :].any()
    assert index.stats().tombstones > 10
    index.insert(*crowd.rows(n + few, n + few + 10))  # one leaf outgrows its block, one takes it
    while index.stats().tombstones:
        index.sweep(BUDGET)
    found = index.match(n + few + 30, np.ones(1), np.ones(1), np.array([0, 1]), TERMS[1:2])
    assert sorted(found.handle.tolist()) == [*range(n + 11, n + few + 1), n + few + 10]


class Counter:
    """Counts the blocks of each call of the kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.blocks: list[int] = []
        self.marked: list[int] = []
        sweep, mark = kd.sweep_slots, kd.mark_dead

        def count_sweep(*arguments: object) -> tuple[int, int]:
            done, blocks = sweep(*arguments)
            self.blocks.append(blocks)
            return done, blocks

        def count_marks(entries: object, *arguments: object) -> int:
            self.marked.append(len(entries))  # type: ignore[arg-type]
            return int(mark(entries, *arguments))

        monkeypatch.setattr(kd, "sweep_slots", count_sweep)
        monkeypatch.setattr(kd, "mark_dead", count_marks)


@pytest.mark.parametrize("budget", [BUDGET, 1 << 15])
def test_no_call_frees_more_than_a_part_of_a_leaf(
    filled: dict[str, object], monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    index, counter = restore(filled), Counter(monkeypatch)
    gone = np.random.default_rng(1).permutation(N)[: 2 * N // 3] + 1
    index.delete(gone, np.full(len(gone), N + 1))
    index.purge(N + 1)
    most = max(2048, budget // 16)
    calls, left = 0, np.setdiff1d(np.arange(1, N + 1), gone)
    while index.stats().tombstones:
        counter.blocks.clear()
        counter.marked.clear()
        index.sweep(budget)
        calls += 1
        assert sum(counter.marked) <= 4 * most
        # Beside a walk, the slots that it makes free.
        assert sum(counter.blocks) <= 2 * most + kd.LEAST_WALK + 64
        if calls % 100 == 1:
            assert match_point(index, N + 2) == left.tolist()
    assert calls > 15
    assert index.stats()[:3] == (len(left), 0, len(left))
    assert match_point(index, N + 2) == left.tolist()


def test_a_leaf_may_change_where_a_sweep_stopped_in_it(filled: dict[str, object]) -> None:
    """Queries come into the leaf, deletes become ripe and units are dropped between the calls."""
    index, rng = restore(filled), np.random.default_rng(4)
    crowd = crowd_one_point(N + 20_000)
    live, last, stops = set(range(1, N + 1)), N, 0
    lsn = N + 100_000
    for step in range(40):
        gone = rng.choice(sorted(live), 3000, replace=False)
        index.delete(gone, np.full(len(gone), lsn + step))
        index.purge(lsn + step)
        live -= set(gone.tolist())
        index.insert(*crowd.rows(last, last + 500))
        live |= set(range(last + 1, last + 501))
        last += 500
        index.sweep(BUDGET)
        stops += int(index._state[layout.SWEPT_BLOCK] != 0)
        if step == 20:  # nothing is dropped, but the queue is filtered
            index.drop(lambda cell, term: np.ones(len(cell), np.bool_))
            assert index._state[layout.SWEPT_BLOCK] == 0
        if step % 8 == 0:
            assert match_point(index, lsn + step) == sorted(live)
    assert stops > 10
    while index.stats().tombstones:
        index.sweep(BUDGET)
    assert match_point(index, lsn + 100) == sorted(live)
    assert index.stats()[:3] == (len(live), 0, len(live))
    rest = np.array(sorted(live))
    index.delete(rest, np.full(len(rest), lsn + 50))
    index.purge(lsn + 50)
    while index.stats().tombstones:
        index.sweep(1 << 15)
    assert index.stats()[:3] == (0, 0, 0)
    assert not (index._arrays.directory[:, layout.ENTRIES :] & layout.LOW).any()


def test_a_sweep_that_stopped_goes_on_after_a_restart(filled: dict[str, object]) -> None:
    index = restore(filled)
    index.delete(np.arange(1, N, 2), np.full(N // 2, N + 1))
    index.purge(N + 1)
    while not index._state[layout.SWEPT_BLOCK]:
        index.sweep(BUDGET)
    other = restore({name: np.array(part) for name, part in index.hold().items()})
    assert other._state[layout.SWEPT_BLOCK] != 0
    while other._state[layout.PURGEABLE]:
        other.sweep(BUDGET)
    assert match_point(other, N + 2) == list(range(2, N + 1, 2))


def test_words_and_leaves_that_a_sweep_stopped_between() -> None:
    """A query of many words, each with a long leaf, and regions over several of them."""
    n, index = 60_000, RadixGI2(GRID)
    crowd = draw_crowd(np.random.default_rng(2), n, 0.0, 0.0)
    crowd.every[:] = False
    crowd.term[:] = 0, 1
    crowd.term[::3] = 1, 2
    crowd.rect[:] = (44.9, 44.9, 45.1, 45.1)  # about a corner of four root cells
    crowd.rect[:, 2] += np.arange(n) * 1e-9
    index.insert(*crowd.rows(0, n))
    gone = np.random.default_rng(1).permutation(n)[: n // 2] + 1
    index.delete(gone, np.full(len(gone), n + 1))
    index.purge(n + 1)
    terms_done, calls = set(), 0
    while index.stats().tombstones and calls < 10_000:
        index.sweep(1 << 15)
        terms_done.add(int(index._state[layout.SWEPT_TERMS]))
        calls += 1
    assert terms_done == {0, 1}
    left = np.setdiff1d(np.arange(1, n + 1), gone)
    found = index.match(
        n + 2, np.array([45.0]), np.array([45.0]), np.array([0, 4]), TERMS[[0, 1, 2, 5]]
    )
    assert sorted(found.handle.tolist()) == left.tolist()
    assert index.stats().live == len(left)
    assert index.stats().tombstones == 0
