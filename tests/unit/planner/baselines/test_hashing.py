"""hash: one map of terms to workers, which no sample changes."""

from __future__ import annotations

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.partition import PartitionOptions, owners
from tests.support.by_hand import some_stats

ANALYZER = Analyzer(Analysis(salt=3))


def test_hash_learns_nothing() -> None:
    one, two = some_stats(1), some_stats(2)
    to: list[dict[str, int]] = []
    for stats in (one, two):
        owner = owners(ALGORITHMS["hash"](stats, 4, PartitionOptions()), stats, 4, ANALYZER)
        to.append({stats.terms[t]: int(w) for t, w in zip(stats.term, owner, strict=True)})
    both = to[0].keys() & to[1].keys()
    assert len(both) > 10
    assert all(to[0][t] == to[1][t] for t in both)
    assert set(to[0].values()) == set(range(4))
