"""The loop of Algorithm 1 (lines 17 to 27) by its rules."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.hybrid import (
    _divide_heaviest,
    _even_loads,
    _is_good_enough,
    _split_by_similarity,
    hybrid,
)
from ps2stream.planner.load import Kind, worker_loads
from ps2stream.planner.merge import merge_nodes_into_partitions
from ps2stream.planner.nodes import CostModel, KdtNode
from ps2stream.planner.partition import PartitionOptions, owners
from ps2stream.planner.split import space_split, text_split
from ps2stream.planner.statistics import I32
from ps2stream.protocol.frame import F64
from tests.support.by_hand import BOTH, load_of, some_stats


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
