"""A partition as a plan, and what the cost model predicts for it."""

from __future__ import annotations

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.partition import PartitionOptions, predicted
from tests.support.statistics_of import hostile

ANALYZER = Analyzer(Analysis(salt=3))
CASES = hostile(1)
LITERAL = PartitionOptions(load="definition1")


def test_the_bound_is_of_the_load_by_cells() -> None:
    """Definition 1's product has none: against this one it would seem fifty times too slow."""
    stats = CASES["many cells"]
    partition = ALGORITHMS["kdtree"](stats, 4, PartitionOptions())
    one, other = (
        predicted(partition, stats, 4, o, ANALYZER) for o in (PartitionOptions(), LITERAL)
    )
    assert one["loads"] != other["loads"]
    assert one["slowest_over_bound"] == other["slowest_over_bound"]
    assert 1.0 <= one["slowest_over_bound"] < 2.0
