"""PartitionNode: lines and terms against their rules, worked out anew on sets."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.planner.load import worker_loads
from ps2stream.planner.nodes import UNSEEN, CostModel, KdtNode
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.split import halves, partition_node, space_split, text_split
from ps2stream.routing.costs import Costs
from ps2stream.space.grid import Grid
from tests.support.by_hand import BOTH, by_space, load_of, some_stats
from tests.support.statistics_of import hostile, tables


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("seed", range(4))
def test_space_is_split_at_medians_heaviest_first(seed: int, options: PartitionOptions) -> None:
    stats = some_stats(seed)
    model = CostModel(stats, options)
    for k in (2, 3, 6):
        want = by_space(stats, k, options)
        parts = space_split(model, model.root(), k, {})
        assert {frozenset(n.cells.tolist()) for n in parts} == want


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


STATS = hostile(1)["many cells"]


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("k", [2, 3, 7])
def test_parts_make_up_their_node(options: PartitionOptions, k: int) -> None:
    model = CostModel(STATS, options)
    root = model.root()
    for parts in (space_split(model, root, k, {}), text_split(model, root, k)):
        assert len(parts) == k
        units = np.concatenate([n.units for n in parts])
        assert np.array_equal(np.sort(units), root.units)
        owner = np.empty(STATS.units, np.int32)
        for i, node in enumerate(parts):
            owner[node.units] = i
            assert set(model.unit_cell[node.units]) <= set(node.cells)
        loads = worker_loads(STATS, owner, k, options.costs, options.load)
        assert [n.load for n in parts] == pytest.approx(loads.tolist())


def test_a_line_halves_the_objects() -> None:
    model = CostModel(STATS, PartitionOptions())
    found = halves(model, model.root())
    assert found is not None
    low, high = (float(STATS.objects[n.cells].sum()) for n in found[1])
    heaviest = max(
        np.bincount(STATS.cell // 16, STATS.objects).max(),
        np.bincount(STATS.cell % 16, STATS.objects).max(),
    )
    assert abs(low - high) <= heaviest


@pytest.mark.parametrize("options", BOTH)
def test_the_cheaper_division_is_taken(options: PartitionOptions) -> None:
    model = CostModel(STATS, options)
    root = model.root()
    taken, _ = partition_node(model, root, 4)
    by_space, by_text = space_split(model, root, 4, {}), text_split(model, root, 4)
    total = sum(n.load for n in taken)
    assert total <= min(sum(n.load for n in p) for p in (by_space, by_text)) * (1 + 1e-9)
