"""Algorithm 1 by its rules, and what the whole must reach."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.hybrid import (
    FEW,
    MAX_DEPTH,
    _divide_heaviest,
    _divide_to_number,
    _even_loads,
    _is_good_enough,
    _split_by_similarity,
    hybrid,
)
from ps2stream.planner.load import Kind, cell_load, lower_bound, worker_loads
from ps2stream.planner.merge import merge_nodes_into_partitions
from ps2stream.planner.nodes import CostModel, KdtNode
from ps2stream.planner.partition import PartitionOptions, owners
from ps2stream.planner.split import partition_node, space_split, text_split
from ps2stream.planner.statistics import I32, Statistics
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import balance
from ps2stream.routing.plan import Space, Text
from ps2stream.space.grid import Grid
from tests.support.by_hand import BOTH, Cells, cosine, load_of, medians, some_stats, units_in
from tests.support.statistics_of import hostile, one_hot_cell, tables

ANALYZER = Analyzer(Analysis(salt=3))


def loads_of(stats: Statistics, name: str, workers: int, options: PartitionOptions) -> F64:
    partition = ALGORITHMS[name](stats, workers, options)
    return worker_loads(stats, owners(partition, stats, workers, ANALYZER), workers, options.costs)


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


@pytest.mark.takes_turns
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


@pytest.mark.parametrize("options", BOTH)
def test_nodes_have_the_parts_that_cost_least_together(options: PartitionOptions) -> None:
    """Definition 1: the least total load. By cells that hardly changes: the least squares."""
    stats = some_stats(2)
    model, m = CostModel(stats, options), 7
    for n in (2, 3):
        nodes = space_split(model, model.root(), n, {})
        leaves, numbers = _divide_to_number(model, nodes, m, {})
        assert len(leaves) == m == sum(numbers)

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


@pytest.mark.parametrize("options", BOTH)
def test_the_heaviest_leaf_is_divided(options: PartitionOptions) -> None:
    stats = some_stats(1)
    model = CostModel(stats, options)
    leaves, fixed = space_split(model, model.root(), 4, {}), set[KdtNode]()
    for _ in range(6):
        divided = _divide_heaviest(model, leaves, 4, {}, fixed)
        assert divided is not None
        (gone,) = set(leaves) - set(divided)
        assert gone.load == max(leaf.load for leaf in leaves if len(leaf.cells) > 1)
        assert len(divided) == len(leaves) + 1
        leaves = divided


def test_terms_of_cool_cells_go_last() -> None:
    """By cells: a line that can be drawn comes before a single cell that is not hot."""
    stats = some_stats(1)
    model = CostModel(stats, PartitionOptions())
    leaves = space_split(model, model.root(), 26, {})
    single = max((n for n in leaves if len(n.cells) == 1), key=lambda n: n.load)
    wide = min((n for n in leaves if len(n.cells) > 1), key=lambda n: n.load)
    assert single.load > wide.load
    divided = _divide_heaviest(model, [single, wide], 1, {}, set())
    assert divided is not None
    assert single in divided
    hot = _divide_heaviest(model, [single, wide], 4, {}, set())
    assert hot is not None
    assert single not in hot


@pytest.mark.parametrize("load", ["cells", "definition1"])
@pytest.mark.parametrize("seed", range(3))
def test_the_best_partition_seen_is_kept(
    load: Kind, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[float] = []

    def enough(loads: F64, options: PartitionOptions) -> bool:
        seen.append(float(loads.max()))
        return _is_good_enough(loads, options)

    monkeypatch.setattr("ps2stream.planner.hybrid._is_good_enough", enough)
    stats, options = some_stats(seed), PartitionOptions(load=load, sigma=1.0, eps=0.0)
    analyzer = Analyzer(Analysis(salt=3))
    partition = hybrid(stats, 6, options)
    owner = owners(partition, stats, 6, analyzer)
    assert worker_loads(stats, owner, 6, options.costs, load).max() == pytest.approx(min(seen))
    assert len(seen) > 10
    assert min(seen) < seen[0]


def test_it_ends_when_sigma_is_met() -> None:
    literal = PartitionOptions(load="definition1")
    assert _is_good_enough(np.array([1.2, 1.0]), literal)
    assert not _is_good_enough(np.array([1.21, 1.0]), literal)
    # By cells the heaviest is near the mean too; the lightest counts all the same.
    assert _is_good_enough(np.ones(50), PartitionOptions())
    assert not _is_good_enough(np.array([1.1, 1.0]), PartitionOptions())
    assert not _is_good_enough(np.array([0.5] + [1.0] * 99), PartitionOptions())


@pytest.mark.parametrize("theta", [8, 64])
def test_leaves_lie_in_the_nodes_of_the_similarity_phase(theta: int) -> None:
    """Which takes half of theta at most."""
    stats = some_stats(1, 3000)
    options = PartitionOptions(delta=0.99, eps=0.001, theta=theta)
    nodes = _split_by_similarity(CostModel(stats, options), options, theta // 2, {})
    assert 2 < len(nodes) <= theta // 2
    node_of = {c: i for i, n in enumerate(nodes) for c in n.cells.tolist()}
    leaf = hybrid(stats, 2, options).cells[stats.cell].tolist()
    assert len({(of, node_of[c]) for c, of in enumerate(leaf)}) == len(set(leaf)) >= len(nodes)


@pytest.mark.parametrize("seed", range(4))
def test_whole_leaves_are_evened_after_merging(seed: int) -> None:
    """Loads stay those of the leaves' union, parts of a text split where they are."""
    stats, options, m = some_stats(seed), PartitionOptions(), 5
    model = CostModel(stats, options)
    leaves = [
        part
        for i, node in enumerate(space_split(model, model.root(), 14, {}))
        for part in (text_split(model, node, 3) if i < 2 else [node])
    ]
    merged, before = merge_nodes_into_partitions(model, leaves, m)
    part, after = _even_loads(leaves, merged, before)
    for leaf, old, new in zip(leaves, merged.tolist(), part.tolist(), strict=True):
        assert leaf.whole or new == old
    for worker in range(m):
        held = {u for n, to in zip(leaves, part, strict=True) if to == worker for u in n.units}
        assert after[worker] == pytest.approx(load_of(stats, held, options))
    assert np.ptp(after) <= np.ptp(before)
    assert after.max() <= before.max() * (1 + 1e-9)


def test_hybrid_evens_by_cells_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def evened(leaves: list[KdtNode], part: I32, loads: F64) -> tuple[I32, F64]:
        asked.append(len(leaves))
        return _even_loads(leaves, part, loads)

    monkeypatch.setattr("ps2stream.planner.hybrid._even_loads", evened)
    stats = some_stats(0)
    hybrid(stats, 6, PartitionOptions(load="definition1"))
    assert not asked
    hybrid(stats, 6, PartitionOptions())
    assert asked


@pytest.mark.parametrize("seed", range(4))
def test_hybrid_beats_every_baseline_where_a_cell_is_hot(seed: int) -> None:
    stats = one_hot_cell(seed)
    slowest = {
        n: loads_of(stats, n, 8, PartitionOptions()).max() for n in ALGORITHMS if n != "hybrid+"
    }
    mine = slowest.pop("hybrid")
    assert mine <= min(slowest.values()) / 0.97, slowest
    assert mine < 1.3 * lower_bound(stats, 8, PartitionOptions().costs)


def test_text_divides_the_hot_cell_and_lines_the_rest() -> None:
    stats = one_hot_cell(0)
    partition = hybrid(stats, 8, PartitionOptions())
    text = [i for i, leaf in enumerate(partition.leaves) if isinstance(leaf, Text)]
    hot = int(stats.cell[np.argmax(stats.objects)])
    assert int(partition.cells[hot]) in text
    assert sum(isinstance(leaf, Space) for leaf in partition.leaves) > len(text)


@pytest.mark.parametrize("seed", range(4))
def test_a_cell_below_an_even_share_is_left_whole_and_the_rest_moved_around_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cells = rng.choice(2048, 100, replace=False).tolist()
    count = {c: float(n) for c, n in zip(cells, rng.integers(5, 40, 100), strict=True)}
    count[cells[0]] = float(round(0.9 * sum(count.values()) / 7.1))
    units = [(c, t, n, 9.0, 1.0, 0.0) for c, n in count.items() for t in "abc"]
    stats = tables(Grid(6, 5), {c: 3 * n for c, n in count.items()}, units,
                   [(c, [t]) for c in cells for t in "abc"])  # fmt: skip
    share = cell_load(stats, PartitionOptions().costs) / lower_bound(
        stats, 8, PartitionOptions().costs
    )
    assert 0.8 < share.max() < 1, share.max()
    partition = hybrid(stats, 8, PartitionOptions())
    assert all(isinstance(leaf, Space) for leaf in partition.leaves)
    loads = loads_of(stats, "hybrid", 8, PartitionOptions())
    assert loads.max() <= 1.01 * loads.mean()


def test_sigma_is_met_or_the_reason_is_stated() -> None:
    stats = one_hot_cell(1)
    loads = loads_of(stats, "hybrid", 8, PartitionOptions())
    assert balance(loads) <= 1.2
    assert not hybrid(stats, 8, PartitionOptions()).warnings
    few = hybrid(stats, 8, PartitionOptions(theta=8)).warnings
    assert "above sigma = 1.2: more leaves than theta" in few[0]
    hot = hybrid(hostile(1)["one point"], 12, PartitionOptions()).warnings
    assert "in cell 127 are more than an even share" in hot[0]


def test_theta_caps_the_leaves() -> None:
    for theta in (8, 20):
        partition = hybrid(
            one_hot_cell(2), 8, PartitionOptions(theta=theta, sigma=1.0, delta=1.0, eps=0.0)
        )
        assert len(partition.leaves) <= theta


def test_it_says_what_it_does() -> None:
    said: list[str] = []
    hybrid(one_hot_cell(2), 8, PartitionOptions(progress=said.append))
    assert said
