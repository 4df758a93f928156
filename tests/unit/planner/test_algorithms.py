"""Every algorithm on hostile statistics: a total plan that compiles, or a stated reason."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.load import worker_loads
from ps2stream.planner.partition import PartitionOptions, owners, predicted, to_plan
from ps2stream.routing.plan import Space
from tests.support.statistics_of import hostile

ANALYZER = Analyzer(Analysis(salt=3))
CASES = hostile(1)
SPACE = ("grid", "kdtree", "kdtree-load", "rtree", "lpt")
TEXT = ("hash", "frequency", "hypergraph", "metric", "gC", "gFC", "gFCL", "gNFCL")
LITERAL = PartitionOptions(load="definition1")


@pytest.mark.takes_turns
@pytest.mark.parametrize("workers", [1, 2, 5, 40])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_cell_and_term_has_one_owner(name: str, case: str, workers: int) -> None:
    stats = CASES[case]
    for options in (PartitionOptions(), LITERAL):
        partition = ALGORITHMS[name](stats, workers, options)
        assert len(partition.cells) == stats.grid.rows() * stats.grid.columns()
        assert partition.cells.max() < len(partition.leaves)
        owner = owners(partition, stats, workers, ANALYZER)
        assert ((owner >= 0) & (owner < workers)).all()
        h1 = to_plan(partition, stats, workers, ANALYZER.analysis, {}).compile(ANALYZER)
        every = np.arange(len(partition.cells), dtype=np.uint32)
        for term in (TOP, ANALYZER.hash_terms(["unheard"])[0]):
            assert h1.owners(every, np.full(len(every), term)).max() < workers
        told = predicted(partition, stats, workers, options, ANALYZER)
        assert len(told["loads"]) == workers


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_plan_is_a_function_of_its_sample(name: str) -> None:
    stats = CASES["many cells"]
    one, two = (
        to_plan(ALGORITHMS[name](s, 4, PartitionOptions()), s, 4, ANALYZER.analysis, {}).to_dict()
        for s in (stats, hostile(1)["many cells"])
    )
    assert one == two


@pytest.mark.parametrize("name", SPACE)
def test_space_algorithms_give_whole_cells(name: str) -> None:
    partition = ALGORITHMS[name](CASES["many cells"], 5, PartitionOptions())
    assert all(isinstance(leaf, Space) for leaf in partition.leaves)
    assert {leaf.worker for leaf in partition.leaves if isinstance(leaf, Space)} == set(range(5))
    assert not partition.warnings


@pytest.mark.parametrize("name", TEXT)
def test_text_algorithms_give_one_map_for_all_cells(name: str) -> None:
    stats = CASES["many cells"]
    partition = ALGORITHMS[name](stats, 5, PartitionOptions())
    assert len(partition.leaves) == 1
    assert not isinstance(partition.leaves[0], Space)
    owner = owners(partition, stats, 5, ANALYZER)
    for term in range(len(stats.terms)):
        assert len(set(owner[stats.term == term].tolist())) == 1


@pytest.mark.parametrize("name", sorted({*ALGORITHMS} - {"hash", "gC", "gFC"}))
def test_workers_without_work_are_a_warning(name: str) -> None:
    stats = CASES["one unit"]
    partition = ALGORITHMS[name](stats, 3, PartitionOptions())
    owner = owners(partition, stats, 3, ANALYZER)
    assert np.count_nonzero(worker_loads(stats, owner, 3, PartitionOptions().costs)) == 1
    assert partition.warnings
