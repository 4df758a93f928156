"""Graph variants: the graph that METIS is given, and what its cuts must reach."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from ps2stream.planner.baselines import graph
from ps2stream.planner.partition import PartitionAlgorithm, PartitionOptions
from ps2stream.planner.statistics import Statistics
from ps2stream.space.grid import Grid
from tests.support.baselines_by_hand import frequency_of, rows_of, term_owner
from tests.support.by_hand import some_stats
from tests.support.statistics_of import hostile, tables

CUTS: dict[str, PartitionAlgorithm] = {
    "hypergraph": graph.hypergraph, "gC": graph.g_c, "gFC": graph.g_fc, "gFCL": graph.g_fcl,
    "gNFCL": graph.g_nfcl,
}  # fmt: skip


@pytest.mark.parametrize("cliques", [False, True])
def test_edges_are_the_objects_with_both_words(cliques: bool) -> None:
    stats = some_stats(4)
    want: Counter[tuple[int, int]] = Counter()
    for row, weight in rows_of(stats):
        share = weight / (len(row) - 1) if cliques and len(row) > 1 else weight
        for a, b in itertools.combinations(sorted(row), 2):
            want[a, b] += share  # type: ignore[assignment]
    found = graph.co_occurrence(stats, cliques)
    got = {(int(a), int(b)): w for a, b, w in zip(*found, strict=True)}
    assert got == pytest.approx(dict(want))


def given_to_metis(name: str, stats: Statistics, monkeypatch: pytest.MonkeyPatch) -> Any:
    """(options, weight of each edge in both directions, weight of each vertex or None)."""
    asked: list[Any] = []
    known = [t for t, n in frequency_of(stats).items() if n]

    def part_graph(k: int, adjacency: Any, **given: Any) -> Any:
        ends = itertools.pairwise(adjacency.adj_starts)
        edges = {}
        for word, (a, b) in zip(known, ends, strict=True):
            for other, weight in zip(adjacency.adjacent[a:b], given["eweights"][a:b], strict=True):
                edges[word, known[other]] = weight
        asked.append((k, given["options"], edges, given["vweights"]))
        return 0, [i % k for i in range(len(known))]

    monkeypatch.setattr("pymetis.part_graph", part_graph)
    CUTS[name](stats, 3, PartitionOptions())
    ((k, options, edges, vertices),) = asked
    assert k == 3
    assert all(edges[b, a] == weight for (a, b), weight in edges.items())
    return options, edges, vertices


@pytest.mark.parametrize("name", CUTS)
def test_what_metis_is_asked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """gC: no weights at all; gFC: edges' alone; both without balance, that is with unit
    vertices and a large ufactor. gFCL: vertices by f; gNFCL by f / (1 + fn / f)."""
    stats = some_stats(6)
    options, edges, vertices = given_to_metis(name, stats, monkeypatch)
    found = graph.co_occurrence(stats, cliques=name == "hypergraph")
    co = {(int(a), int(b)): float(w) for a, b, w in zip(*found, strict=True)}
    assert {(a, b) for a, b in edges if a < b} == set(co)
    if name == "gC":
        assert set(edges.values()) == {1}
    else:
        scale = sum(edges.values()) / 2 / sum(co.values())
        assert all(edges[pair] == pytest.approx(w * scale, abs=1) for pair, w in co.items())
    if name in ("gC", "gFC"):
        assert vertices is None
        assert options.ufactor >= 100_000
        return
    assert options.ufactor == 30
    f = frequency_of(stats)
    if name == "gNFCL":
        fn = Counter[int]()
        for (a, b), weight in co.items():
            fn[a] += weight  # type: ignore[assignment]
            fn[b] += weight  # type: ignore[assignment]
        f = {t: n / (1 + fn[t] / n) if n else 0.0 for t, n in f.items()}
    want = [n for _, n in sorted(f.items()) if n]
    assert vertices == pytest.approx(want, abs=1)


def test_words_that_always_occur_together_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.3: four such words weigh together what one of them would."""
    together = [f"w{i}" for i in range(4)]
    units = [(0, w, 8.0, 1.0, 0.0, 0.0) for w in [*together, "alone"]]
    stats = tables(Grid(0, 0), {0: 16.0}, units, [(0, together)] * 8 + [(0, ["alone"])] * 8)
    _, _, vertices = given_to_metis("gNFCL", stats, monkeypatch)
    assert vertices == [8, 2, 2, 2, 2]
    _, _, vertices = given_to_metis("gFCL", stats, monkeypatch)
    assert vertices == [8] * 5


@pytest.mark.parametrize(
    "values",
    [[1.0, 2.0, 3.0], [0.0, 0.25, 4.0], [1e-9, 1e9], [5e12, 1.0, 7e12], [0.0, 0.0], [1e-3] * 50],
)
def test_metis_is_given_positive_integers_whose_sum_it_can_hold(values: list[float]) -> None:
    found = graph.whole(np.array(values))
    assert found.min() >= 1
    assert found.sum() < 1 << 31
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert (np.diff(found[order]) >= 0).all()


def test_small_weights_keep_their_ratios() -> None:
    found = graph.whole(np.array([0.01, 0.02, 0.05]))
    assert (found / found[0]).tolist() == [1.0, 2.0, 5.0]
    assert graph.whole(np.array([3.0, 8.0])).tolist() == [3, 8]


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", ["hypergraph", "gFCL", "gNFCL"])
def test_words_that_occur_together_stay_together(name: str, workers: int) -> None:
    """Four groups of words: the least cut that is balanced cuts no object's words apart."""
    rng = np.random.default_rng(2)
    rows = [
        (0, [f"g{i % 4}w{int(w)}" for w in rng.choice(10, 4, replace=False)]) for i in range(400)
    ]
    seen = Counter(w for _, row in rows for w in row)
    units = [(0, w, float(n), 1.0, 0.0, 0.0) for w, n in seen.items()]
    stats = tables(Grid(0, 0), {0: 400.0}, units, rows)
    owner = term_owner(CUTS[name](stats, workers, PartitionOptions()), stats)
    group = {t: int(w[1]) for t, w in enumerate(stats.terms)}
    held = {(group[t], to) for t, to in owner.items()}
    assert len(held) == 4
    assert Counter(to for _, to in held) == dict.fromkeys(range(workers), 4 // workers)


@pytest.mark.parametrize("name", ["hypergraph", "gFCL", "gNFCL"])
def test_terms_that_no_object_has_balance_nothing(name: str) -> None:
    rng = np.random.default_rng(5)
    rows = [(0, [f"w{int(w)}" for w in rng.choice(40, 3, replace=False)]) for _ in range(300)]
    seen = Counter(w for _, row in rows for w in row)
    units = [(0, w, float(n), 1.0, 0.0, 0.0) for w, n in seen.items()]
    unseen = [(0, f"a{i}", 0.0, 1.0, 0.0, 0.0) for i in range(900)]
    both = [tables(Grid(0, 0), {0: 300.0}, u, rows) for u in (units, units + unseen)]
    few, many = (CUTS[name](stats, 4, PartitionOptions()).leaves for stats in both)
    assert few == many
    f = Counter[int]()
    for term, to in term_owner(CUTS[name](both[1], 4, PartitionOptions()), both[1]).items():
        f[to] += seen[both[1].terms[term]]
    assert max(f.values()) <= 1.4 * min(f.values())


@pytest.mark.parametrize("name", CUTS)
def test_metis_does_not_write_between_our_lines(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It tells C's standard output of parts that stay empty, where `--json` writes."""
    for workers in (8, 9, 15, 20):
        CUTS[name](hostile(0)["many cells"], workers, PartitionOptions())
    sys.stdout.write("ours\n")
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "ours\n"
