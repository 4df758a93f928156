"""hybrid+ and its pieces: tiles, text splits of a cell, balance."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.hotspots import divide
from ps2stream.planner.hybrid_plus import hybrid_plus
from ps2stream.planner.load import cell_load, copies, lower_bound, worker_loads
from ps2stream.planner.local_search import balanced, borders, rounded
from ps2stream.planner.nodes import UNSEEN
from ps2stream.planner.partition import PartitionOptions, owners, predicted, to_plan
from ps2stream.planner.statistics import (
    TOP_TERM,
    CellTable,
    SignatureTable,
    Statistics,
    UnitTable,
)
from ps2stream.planner.tiles import GridTile, tiles
from ps2stream.routing.costs import Costs, balance
from ps2stream.routing.plan import Space, Text
from ps2stream.space.grid import Grid

ANALYZER = Analyzer(Analysis(salt=5))
GRID = Grid(5, 4)


def sample(seed: int, cells: int, words: int, per_cell: int = 60, skew: float = 0.0) -> Statistics:
    """Objects of one to five words in random cells; every tenth query has no words."""
    rng = np.random.default_rng(seed)
    where = rng.choice(GRID.rows() * GRID.columns(), cells, replace=False)
    cell_rows, units, rows = [], [], []
    for rank, cell in enumerate(where.tolist()):
        n = max(1, int(per_cell * (rank + 1) ** -skew))
        posted = {f"w{w}" for w in rng.integers(0, words, words).tolist()}
        posted |= {TOP_TERM} if rng.random() < 0.1 else set()
        texts = [
            {f"w{w}" for w in rng.integers(0, words, 5).tolist()} | {TOP_TERM} for _ in range(n)
        ]
        cell_rows.append((cell, n))
        for term in sorted(posted):
            o = sum(term in text for text in texts)
            units.append((cell, term, o, int(rng.integers(1, 200)), 1.0, 1.0))
        rows += [(cell, sorted(text & posted)) for text in texts if text & posted]
    columns = list(zip(*units, strict=True))
    return Statistics.of(
        GRID,
        CellTable(*map(np.array, zip(*cell_rows, strict=True))),
        UnitTable(np.array(columns[0]), columns[1], *map(np.array, columns[2:])),
        SignatureTable(np.array([c for c, _ in rows], np.int64), [t for _, t in rows]),
    )


def test_tiles_cover_the_grid_once_and_are_light_or_single() -> None:
    rng = np.random.default_rng(2)
    load = rng.pareto(1.0, (9, 17))
    found = tiles(load, 5.0)
    covered = np.zeros(load.shape, int)
    for tile in found:
        covered[tile.top : tile.bottom, tile.left : tile.right] += 1
        part = load[tile.top : tile.bottom, tile.left : tile.right].sum()
        assert part <= 5.0 + 1e-9 or tile.single
    assert (covered == 1).all()
    assert len(tiles(load, np.inf)) == 1


def test_borders_weigh_the_fewer_queries_of_two_neighbouring_cells() -> None:
    queries = np.array([[5.0, 2.0, 7.0], [1.0, 9.0, 0.0]])
    found = [GridTile(0, 2, 0, 1), GridTile(0, 1, 1, 3), GridTile(1, 2, 1, 3)]
    edges = borders(found, queries)
    weights = {(a, b): w for a, b, w in zip(*map(np.ndarray.tolist, edges), strict=True)}
    assert weights == {(0, 1): 2, (1, 0): 2, (0, 2): 1, (2, 0): 1, (1, 2): 2, (2, 1): 2}
    assert edges.cut(np.array([0, 1, 1])) == 3
    assert edges.cut(np.array([0, 0, 0])) == 0


def test_the_local_search_balances_and_then_shortens_borders() -> None:
    rng = np.random.default_rng(9)
    plane = rng.pareto(1.5, (32, 32))
    found = tiles(plane, plane.sum() / 150)
    load = np.array([plane[t.top : t.bottom, t.left : t.right].sum() for t in found])
    level = np.array([0.0, plane.sum() / 10, 0.0, 0.0])
    edges = borders(found, plane)
    scattered = rng.integers(0, 4, len(found))
    even = balanced(load, scattered, level, 0.02)
    total = level + np.bincount(even, load, 4)
    assert total.max() - total.min() <= 0.02 * total.mean()
    compact = rounded(load, even, level, edges, 0.02)
    total = level + np.bincount(compact, load, 4)
    assert total.max() <= 1.02 * total.mean() + 1e-9
    assert edges.cut(compact) < 0.8 * edges.cut(even)


def test_the_parts_of_a_cell_have_the_load_that_the_model_gives_them() -> None:
    stats = sample(3, 1, 30)
    part, loads = divide(stats, 0, 4, Costs())
    assert set(part.tolist()) == {0, 1, 2, 3}
    foreseen = dataclasses.replace(stats, o=stats.o + UNSEEN)
    assert loads == pytest.approx(worker_loads(foreseen, part, 4, Costs()))
    assert balance(loads) < 1.5


def test_copies_count_an_object_once_a_worker() -> None:
    stats = sample(4, 3, 10)
    everything = np.zeros(stats.units, np.int32)
    rows = np.diff(stats.row_off) * stats.weight
    assert copies(stats, everything, 2).tolist() == pytest.approx([rows.sum(), 0.0])
    spread = np.arange(stats.units, dtype=np.int32) % 2
    naive = np.zeros(2)
    for cell in range(stats.cells):
        for r in range(stats.row_off[cell], stats.row_off[cell + 1]):
            units = stats.row_unit[stats.row_start[r] : stats.row_start[r + 1]]
            for worker in {int(spread[u]) for u in units}:
                naive[worker] += stats.weight[cell]
    assert copies(stats, spread, 2) == pytest.approx(naive)


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_it_is_balanced_where_that_is_possible(workers: int, skew: float) -> None:
    stats = sample(6, 40, 50, 200, skew)
    options = PartitionOptions()
    partition = hybrid_plus(stats, workers, options)
    owner = owners(partition, stats, workers, ANALYZER)
    loads = worker_loads(stats, owner, workers, options.costs)
    assert loads.max() <= 1.35 * lower_bound(stats, workers, options.costs)
    found = predicted(partition, stats, workers, options, ANALYZER)
    assert found["loads"] == pytest.approx(loads.tolist())


def test_a_hot_cell_is_split_by_text_and_its_wordless_queries_with_it() -> None:
    stats = sample(7, 1, 40)
    partition = hybrid_plus(stats, 4, PartitionOptions())
    leaf = partition.leaves[partition.cells[stats.cell[0]]]
    assert isinstance(leaf, Text)
    assert set(leaf.terms) == set(stats.terms)
    owner = owners(partition, stats, 4, ANALYZER)
    assert owner.tolist() == [leaf.terms[stats.terms[t]] for t in stats.term]


def test_one_cell_with_one_term_cannot_be_split() -> None:
    cell = np.array([3])
    one = np.ones(1)
    stats = Statistics.of(
        GRID,
        CellTable(cell, one),
        UnitTable(cell, ["flood"], one, one, one, one),
        SignatureTable(cell, [["flood"]]),
    )
    partition = hybrid_plus(stats, 3, PartitionOptions())
    assert all(isinstance(leaf, Space) for leaf in partition.leaves)
    to_plan(partition, stats, 3, ANALYZER.analysis, {}).compile(ANALYZER)


def test_without_queries_there_is_a_plan_all_the_same() -> None:
    cell = np.array([3, 9])
    none = np.zeros(0)
    stats = Statistics.of(
        GRID,
        CellTable(cell, np.ones(2)),
        UnitTable(np.zeros(0, np.int64), [], none, none, none, none),
        SignatureTable(np.zeros(0, np.int64), []),
    )
    assert cell_load(stats, Costs()).tolist() == [0.0, 0.0]
    partition = hybrid_plus(stats, 3, PartitionOptions())
    assert len(partition.cells) == GRID.rows() * GRID.columns()


def test_an_empty_sample_is_refused() -> None:
    none, empty = np.zeros(0), np.zeros(0, np.int64)
    with pytest.raises(PlanError, match="empty"):
        Statistics.of(
            GRID,
            CellTable(empty, none),
            UnitTable(empty, [], none, none, none, none),
            SignatureTable(empty, []),
        )
