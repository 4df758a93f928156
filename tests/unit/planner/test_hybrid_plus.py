"""hybrid+: balanced where that is possible, and a plan everywhere else."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.hybrid_plus import hybrid_plus
from ps2stream.planner.load import cell_load, lower_bound, worker_loads
from ps2stream.planner.partition import PartitionOptions, owners, predicted, to_plan
from ps2stream.planner.statistics import CellTable, SignatureTable, Statistics, UnitTable
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import Space, Text
from tests.support.statistics_of import TEXTS_GRID, texts_in_cells

ANALYZER = Analyzer(Analysis(salt=5))


@pytest.mark.parametrize("workers", [1, 2, 5, 8])
@pytest.mark.parametrize("skew", [0.0, 1.5])
def test_it_is_balanced_where_that_is_possible(workers: int, skew: float) -> None:
    stats = texts_in_cells(6, 40, 50, 200, skew)
    options = PartitionOptions()
    partition = hybrid_plus(stats, workers, options)
    owner = owners(partition, stats, workers, ANALYZER)
    loads = worker_loads(stats, owner, workers, options.costs)
    assert loads.max() <= 1.35 * lower_bound(stats, workers, options.costs)
    found = predicted(partition, stats, workers, options, ANALYZER)
    assert found["loads"] == pytest.approx(loads.tolist())


def test_a_hot_cell_is_split_by_text_and_its_wordless_queries_with_it() -> None:
    stats = texts_in_cells(7, 1, 40)
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
        TEXTS_GRID,
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
        TEXTS_GRID,
        CellTable(cell, np.ones(2)),
        UnitTable(np.zeros(0, np.int64), [], none, none, none, none),
        SignatureTable(np.zeros(0, np.int64), []),
    )
    assert cell_load(stats, Costs()).tolist() == [0.0, 0.0]
    partition = hybrid_plus(stats, 3, PartitionOptions())
    assert len(partition.cells) == TEXTS_GRID.rows() * TEXTS_GRID.columns()
