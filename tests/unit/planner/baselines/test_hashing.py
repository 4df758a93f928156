"""hash: one map of terms to workers, which no sample changes."""

from __future__ import annotations

import numpy as np

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.baselines.hashing import everywhere, hashing
from ps2stream.planner.partition import PartitionOptions, owners
from ps2stream.routing.plan import Text
from tests.support.by_hand import some_stats

ANALYZER = Analyzer(Analysis(salt=3))


def test_hash_learns_nothing() -> None:
    one, two = some_stats(1), some_stats(2)
    to: list[dict[str, int]] = []
    for stats in (one, two):
        owner = owners(hashing(stats, 4, PartitionOptions()), stats, 4, ANALYZER)
        to.append({stats.terms[t]: int(w) for t, w in zip(stats.term, owner, strict=True)})
    both = to[0].keys() & to[1].keys()
    assert len(both) > 10
    assert all(to[0][t] == to[1][t] for t in both)
    assert set(to[0].values()) == set(range(4))


def test_listed_terms_have_their_workers_and_the_others_go_by_hash() -> None:
    stats = some_stats(1)
    n = len(stats.terms)
    wanted = np.arange(n, dtype=np.int32) % 3
    load = np.ones(n)
    load[4:] = 0.0
    partition = everywhere(stats, 3, wanted, load)
    [leaf] = partition.leaves
    assert isinstance(leaf, Text)
    assert leaf.terms == {stats.terms[t]: t % 3 for t in range(4)}
    found = owners(partition, stats, 3, ANALYZER)
    assert found[stats.term < 4].tolist() == (stats.term[stats.term < 4] % 3).tolist()
    by_hash = owners(hashing(stats, 3, PartitionOptions()), stats, 3, ANALYZER)
    assert np.array_equal(found[stats.term >= 4], by_hash[stats.term >= 4])


def test_a_map_that_lists_all_terms_tells_of_idle_workers() -> None:
    stats = some_stats(1)
    n = len(stats.terms)
    one = np.zeros(n, np.int32)
    assert everywhere(stats, 3, one, np.ones(n)).warnings == ("2 of 3 workers have no load",)
    assert (
        everywhere(stats, 3, one, np.arange(n, dtype=np.float64)).warnings == ()
    )  # the first goes by hash
