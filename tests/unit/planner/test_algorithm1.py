"""The steps of Algorithm 1 against their rules, worked out anew on sets of cells and objects."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np
import pytest

from ps2stream.planner.baselines.kd import kd
from ps2stream.planner.hybrid import (
    FEW,
    MAX_DEPTH,
    _divide_to_number,
    _split_by_similarity,
)
from ps2stream.planner.load import worker_loads
from ps2stream.planner.merge import merge_nodes_into_partitions
from ps2stream.planner.nodes import UNSEEN, CostModel, KdtNode
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.split import partition_node, space_split, text_split
from ps2stream.planner.statistics import Statistics
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import Space
from ps2stream.space.grid import Grid
from tests.support.by_hand import BOTH, COLUMNS, Cells, load_of, some_stats, units_in
from tests.support.statistics_of import tables


@pytest.mark.parametrize("options", BOTH)
def test_loads_are_definition_one_or_its_sum_over_cells(options: PartitionOptions) -> None:
    stats = some_stats(5)
    owner = np.random.default_rng(5).integers(0, 4, stats.units).astype(np.int32)
    want = [load_of(stats, set(np.flatnonzero(owner == w).tolist()), options) for w in range(4)]
    assert worker_loads(stats, owner, 4, options.costs, options.load) == pytest.approx(want)


# --- space ----------------------------------------------------------------


def medians(stats: Statistics, cells: Cells) -> list[tuple[Cells, Cells]]:
    """By the column, then by the row, whose line is nearest to half of the objects."""
    found = []
    for strip in (stats.cell % COLUMNS, stats.cell // COLUMNS):
        lines = sorted({int(strip[c]) for c in cells})
        lines = list(range(lines[0] + 1, lines[-1] + 1))
        half = sum(float(stats.objects[c]) for c in cells) / 2
        below = [frozenset(c for c in cells if strip[c] < at) for at in lines]
        if below:
            off = [abs(sum(float(stats.objects[c]) for c in low) - half) for low in below]
            low = below[off.index(min(off))]
            found.append((low, cells - low))
    return found


def by_space(stats: Statistics, k: int, options: PartitionOptions) -> set[Cells]:
    def load(cells: Cells) -> float:
        return load_of(stats, units_in(stats, cells), options)

    def price(pair: Iterable[Cells]) -> tuple[float, float]:
        loads = [load(cells) for cells in pair]
        return round(sum(loads), 6), round(max(loads), 6)

    parts = [frozenset(range(stats.cells))]
    while len(parts) < k:
        heaviest = max((p for p in parts if len(p) > 1), key=load)
        parts.remove(heaviest)
        parts += min(medians(stats, heaviest), key=price)
    return set(parts)


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("seed", range(4))
def test_space_is_split_at_medians_heaviest_first(seed: int, options: PartitionOptions) -> None:
    stats = some_stats(seed)
    model = CostModel(stats, options)
    for k in (2, 3, 6):
        want = by_space(stats, k, options)
        parts = space_split(model, model.root(), k, {})
        assert {frozenset(n.cells.tolist()) for n in parts} == want
        tree = kd(stats, k, options)  # the baseline is this alone
        leaf = tree.cells[stats.cell].tolist()
        assert {frozenset(c for c, n in enumerate(leaf) if n == of) for of in set(leaf)} == want
        assert [isinstance(leaf, Space) for leaf in tree.leaves] == [True] * k


# --- text -----------------------------------------------------------------


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("seed", range(3))
def test_terms_by_descending_product_where_they_cost_least(
    seed: int, options: PartitionOptions
) -> None:
    """(new total) * (1 + coefficient of variation); a posted term that no object has is
    taken to be in UNSEEN of one."""
    stats = some_stats(seed)
    model, k = CostModel(stats, options), 3
    parts = text_split(model, model.root(), k)
    got = {int(t): i for i, n in enumerate(parts) for t in np.unique(stats.term[n.units])}
    q, o = (np.bincount(stats.term, v, len(stats.terms)) for v in (stats.q, stats.o))
    held: list[set[int]] = [set() for _ in range(k)]

    def load(terms: set[int]) -> float:
        units = {u for u, t in enumerate(stats.term.tolist()) if t in terms}
        unseen = options.costs.c1 * UNSEEN * float(stats.q[sorted(units)].sum())
        return load_of(stats, units, options) + unseen

    for t in sorted(range(len(stats.terms)), key=lambda t: (-q[t] * (o[t] + UNSEEN), t)):
        prices = []
        for i in range(k):
            new = [load(h | {t} if j == i else h) for j, h in enumerate(held)]
            prices.append(sum(new) * (1 + float(np.std(new) / np.mean(new))))
        assert prices[got[t]] <= min(prices) * (1 + 1e-9)
        held[got[t]].add(t)


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("seed", range(3))
def test_the_cheaper_of_space_and_text_is_taken(seed: int, options: PartitionOptions) -> None:
    stats = some_stats(seed)
    model = CostModel(stats, options)
    root = model.root()

    def price(parts: list[KdtNode]) -> float:
        return sum(load_of(stats, set(n.units.tolist()), options) for n in parts)

    for k in (2, 5):
        taken, _ = partition_node(model, root, k)
        both = price(space_split(model, root, k, {})), price(text_split(model, root, k))
        assert price(taken) == pytest.approx(min(both))


@pytest.mark.parametrize("together", [False, True])
def test_text_where_a_cell_is_hot_and_words_are_apart(together: bool) -> None:
    """Under Definition 1: nine tenths of all in one cell, which no line divides; but objects
    with all words would be copied to all parts."""
    names = [f"w{i}" for i in range(10)]
    size = {0: 90, 1: 10}
    units = [
        (c, w, float(n if together else n // 10), n / 10, 0.0, 0.0)
        for c, n in size.items()
        for w in names
    ]
    rows = [(c, names if together else [names[i % 10]]) for c, n in size.items() for i in range(n)]
    stats = tables(Grid(1, 0), {c: float(n) for c, n in size.items()}, units, rows)
    model = CostModel(stats, PartitionOptions(load="definition1", costs=Costs(c1=1.0)))
    parts, lines = partition_node(model, model.root(), 2)
    assert [n.whole for n in parts] == [together] * 2
    assert bool(lines) == together
    # 90 * 90 + 10 * 10 by the line; by terms 2 * 50 * 50, or 2 * 100 * 50 where all have all.
    products = sorted(n.objects * n.queries for n in parts)
    assert products == pytest.approx([100.0, 8100.0] if together else [2500.0] * 2)


# --- similarity -----------------------------------------------------------


def cosine(stats: Statistics, cells: Cells) -> float:
    o: dict[int, float] = {}
    q: dict[int, float] = {}
    for u in units_in(stats, cells):
        t = int(stats.term[u])
        o[t] = o.get(t, 0.0) + float(stats.o[u])
        q[t] = q.get(t, 0.0) + float(stats.q[u])
    long = math.sqrt(sum(x * x for x in o.values()) * sum(x * x for x in q.values()))
    return sum(x * q[t] for t, x in o.items()) / long if long else 0.0


def by_similarity(
    stats: Statistics, cells: Cells, options: PartitionOptions, enough: float, depth: int = 0
) -> set[Cells]:
    """Lines 1 to 12."""
    similarity = cosine(stats, cells)
    queries = float(stats.q[sorted(units_in(stats, cells))].sum())
    few = float(stats.objects[sorted(cells)].sum()) + queries < enough
    lines = medians(stats, cells)
    if similarity > options.delta or few or depth >= MAX_DEPTH or not lines:
        return {cells}
    pair = min(lines, key=lambda pair: min(cosine(stats, c) for c in pair))
    if similarity - min(cosine(stats, c) for c in pair) < options.eps:
        return {cells}
    return set().union(*(by_similarity(stats, c, options, enough, depth + 1) for c in pair))


@pytest.mark.parametrize("delta", [0.3, 0.6, 0.8, 0.99])
@pytest.mark.parametrize(("eps", "few"), [(0.001, FEW), (0.05, FEW), (0.2, FEW), (0.001, 1500)])
def test_nodes_are_divided_until_their_words_are_alike(
    delta: float, eps: float, few: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ps2stream.planner.hybrid.FEW", few)
    for seed in range(4):
        stats = some_stats(seed, 3000)
        options = PartitionOptions(delta=delta, eps=eps)
        nodes = _split_by_similarity(CostModel(stats, options), options, 1000, {})
        want = by_similarity(stats, frozenset(range(stats.cells)), options, few)
        assert {frozenset(n.cells.tolist()) for n in nodes} == want


# --- parts of nodes -------------------------------------------------------


@pytest.mark.parametrize("options", BOTH)
def test_nodes_have_the_parts_that_cost_least_together(options: PartitionOptions) -> None:
    """Definition 1: the least total load. By cells that hardly changes: the least squares."""
    stats = some_stats(2)
    model, m = CostModel(stats, options), 7
    for n in (2, 3):
        nodes = space_split(model, model.root(), n, {})
        leaves = _divide_to_number(model, nodes, m, {})
        assert len(leaves) == m

        def price(parts: list[KdtNode]) -> float:
            power = 2 if options.load == "cells" else 1
            return sum(p.load**power for p in parts)

        tried = [[price(partition_node(model, node, k)[0]) for k in range(1, m)] for node in nodes]
        totals = [
            sum(row[k - 1] for row, k in zip(tried, way, strict=True))
            for way in itertools.product(range(1, m), repeat=n)
            if sum(way) == m
        ]
        assert price(leaves) == pytest.approx(min(totals))


# --- merging --------------------------------------------------------------


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("m", [2, 5])
def test_leaves_are_merged_by_the_rule(m: int, seed: int, options: PartitionOptions) -> None:
    """By descending load; where a leaf adds least if L_max / L_min does not rise by it, else
    to the least loaded; to empty partitions first."""
    stats = some_stats(seed)
    model = CostModel(stats, options)
    leaves = [
        part
        for i, node in enumerate(space_split(model, model.root(), 8, {}))
        for part in (text_split(model, node, 4) if i % 2 else [node])
    ]
    part, _ = merge_nodes_into_partitions(model, leaves, m)
    held: list[set[int]] = [set() for _ in range(m)]
    loads = [0.0] * m

    def ratio(loads: list[float]) -> float:
        return max(loads) / min(loads) if min(loads) > 0 else math.inf

    for i in sorted(range(len(leaves)), key=lambda i: (-leaves[i].load, i)):
        units = set(leaves[i].units.tolist())
        new = [load_of(stats, h | units, options) for h in held]
        added = [n - old for n, old in zip(new, loads, strict=True)]
        least, lightest = added.index(min(added)), loads.index(min(loads))
        allowed = [j for j in range(m) if added[j] <= min(added) * (1 + 1e-9)]
        after = [new[j] if j == least else loads[j] for j in range(m)]
        if not all(held):
            allowed = [j for j in range(m) if not held[j]]
        elif ratio(after) > ratio(loads) * (1 + 1e-9):
            allowed = [lightest]
        to = int(part[i])
        assert to in allowed
        held[to] |= units
        loads[to] = new[to]
