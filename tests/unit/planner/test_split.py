"""Algorithm 1's pieces against their definitions, and what the whole must reach."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.hybrid import hybrid
from ps2stream.planner.load import cell_load, lower_bound, worker_loads
from ps2stream.planner.merge import merge_nodes_into_partitions
from ps2stream.planner.nodes import CostModel
from ps2stream.planner.partition import PartitionOptions, owners
from ps2stream.planner.salb import WordOccurrences, divide, inverted
from ps2stream.planner.similarity import simt
from ps2stream.planner.split import halves, partition_node, space_split, text_split
from ps2stream.planner.statistics import Statistics
from ps2stream.protocol.frame import F64
from ps2stream.routing.costs import balance
from ps2stream.routing.plan import Space, Text
from ps2stream.space.grid import Grid
from tests.support.statistics_of import hostile, tables, words

ANALYZER = Analyzer(Analysis(salt=3))
STATS = hostile(1)["many cells"]
BOTH = [PartitionOptions(), PartitionOptions(load="definition1")]


def loads_of(stats: Statistics, name: str, workers: int, options: PartitionOptions) -> F64:
    partition = ALGORITHMS[name](stats, workers, options)
    return worker_loads(stats, owners(partition, stats, workers, ANALYZER), workers, options.costs)


# --- SALB -----------------------------------------------------------------


def test_the_worked_example_of_salb() -> None:
    """{a, b}, {a, b}, {a}, {c}, {c}: a to the first matcher, b and c to the second."""
    off = np.array([0, 3, 5, 7])
    row = np.array([0, 1, 2, 0, 1, 3, 4])
    found = WordOccurrences(off, row, np.ones(5), np.zeros(3), np.zeros(3))
    assert divide(found, np.arange(3), 2, 0.0, 1.0, 0.0).tolist() == [0, 1, 1]


@pytest.mark.parametrize("parts", [1, 2, 5])
@pytest.mark.parametrize("bias", [0.0, 1.0])
@pytest.mark.parametrize("product", [0.0, 0.3])
def test_terms_are_divided_as_defined(product: float, bias: float, parts: int) -> None:
    rng = np.random.default_rng(4)
    rows = [set(rng.integers(0, 12, rng.integers(1, 6)).tolist()) for _ in range(80)]
    weight = rng.uniform(0.5, 2.0, 80)
    queries, fixed = rng.uniform(0, 9, 12), rng.uniform(0, 9, 12)
    start = np.cumsum([0, *map(len, rows)])
    unit = np.array([w for r in rows for w in r], np.int32)
    off, row = inverted(start, unit, np.arange(80), np.arange(12, dtype=np.int32), 12)
    order = rng.permutation(12)
    got = divide(
        WordOccurrences(off, row, weight, queries, fixed), order, parts, product, 0.6, bias
    )
    held: list[set[int]] = [set() for _ in range(parts)]

    def load(held: set[int]) -> float:
        o = sum(w for w, r in zip(weight, rows, strict=True) if r & held)
        q, f = sum(queries[t] for t in held), sum(fixed[t] for t in held)
        return float(product * o * q + 0.6 * o + f)

    for t in order.tolist():
        prices = []
        for i in range(parts):
            new = [load(h | {t} if j == i else h) for j, h in enumerate(held)]
            prices.append(sum(new) * (bias + float(np.std(new) / np.mean(new))))
        assert prices[got[t]] <= min(prices) * (1 + 1e-9) + 1e-12
        held[got[t]].add(t)


# --- nodes ----------------------------------------------------------------


def test_similarity_is_the_cosine_of_the_counts() -> None:
    units = [
        (0, "a", 3.0, 4.0, 0.0, 0.0),
        (0, "b", 1.0, 0.0, 0.0, 0.0),
        (1, "a", 1.0, 0.0, 0.0, 0.0),
    ]
    stats = tables(Grid(1, 0), {0: 4.0, 1: 2.0}, units, [(0, ["a"]), (0, ["a", "b"]), (1, ["a"])])
    root = CostModel(stats, PartitionOptions()).root()
    assert simt(stats, root) == pytest.approx(4 / math.hypot(4, 1))
    nothing = hostile(1)["no queries"]
    assert simt(nothing, CostModel(nothing, PartitionOptions()).root()) == 0.0


@pytest.mark.parametrize("options", BOTH)
def test_the_root_has_the_load_of_one_worker(options: PartitionOptions) -> None:
    root = CostModel(STATS, options).root()
    owner = np.zeros(STATS.units, np.int32)
    alone = worker_loads(STATS, owner, 1, options.costs, options.load)[0]
    assert root.load == pytest.approx(alone)


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


# --- merging --------------------------------------------------------------


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("m", [1, 3, 8])
def test_partitions_have_the_loads_of_their_unions(options: PartitionOptions, m: int) -> None:
    model = CostModel(STATS, options)
    leaves = [
        part
        for i, node in enumerate(space_split(model, model.root(), 6, {}))
        for part in (text_split(model, node, 3) if i % 2 else [node])
    ]
    part, loads = merge_nodes_into_partitions(model, leaves, m)
    owner = np.empty(STATS.units, np.int32)
    for leaf, to in zip(leaves, part.tolist(), strict=True):
        owner[leaf.units] = to
    assert loads.tolist() == pytest.approx(
        worker_loads(STATS, owner, m, options.costs, options.load).tolist()
    )
    assert set(part.tolist()) == set(range(m))


# --- the whole ------------------------------------------------------------


def skewed(seed: int) -> Statistics:
    """A third of the objects in one cell, the others over fifty."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(2048, 50, replace=False).tolist()
    return words(Grid(6, 5), rng, [cells[0]] * 25 + cells[1:], 3000)


@pytest.mark.parametrize("seed", range(4))
def test_hybrid_beats_every_baseline_where_a_cell_is_hot(seed: int) -> None:
    stats = skewed(seed)
    slowest = {
        n: loads_of(stats, n, 8, PartitionOptions()).max() for n in ALGORITHMS if n != "hybrid+"
    }
    mine = slowest.pop("hybrid")
    assert mine <= min(slowest.values()) / 0.97, slowest
    assert mine < 1.3 * lower_bound(stats, 8, PartitionOptions().costs)


def test_text_divides_the_hot_cell_and_lines_the_rest() -> None:
    stats = skewed(0)
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
    stats = skewed(1)
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
            skewed(2), 8, PartitionOptions(theta=theta, sigma=1.0, delta=1.0, eps=0.0)
        )
        assert len(partition.leaves) <= theta


def test_it_says_what_it_does() -> None:
    said: list[str] = []
    hybrid(skewed(2), 8, PartitionOptions(progress=said.append))
    assert said
