"""Every baseline is what its paper says, by hand on small samples."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.baselines import graph, rtree
from ps2stream.planner.load import cell_load
from ps2stream.planner.partition import Partition, PartitionOptions, owners
from ps2stream.planner.statistics import Statistics
from ps2stream.routing.plan import Space, Text
from ps2stream.space.grid import Grid
from tests.support.statistics_of import hostile, tables, words

ANALYZER = Analyzer(Analysis(salt=3))
CUTS = ("hypergraph", "gC", "gFC", "gFCL", "gNFCL")


def some_stats(seed: int) -> Statistics:
    rng = np.random.default_rng(seed)
    return words(Grid(4, 3), rng, rng.choice(128, 30, replace=False).tolist(), 600)


def rows_of(stats: Statistics) -> list[tuple[frozenset[int], float]]:
    """(terms, objects that it stands for) of each signature."""
    at = np.repeat(np.arange(stats.cells), np.diff(stats.row_off)).tolist()
    ends = itertools.pairwise(stats.row_start.tolist())
    return [
        (frozenset(stats.term[stats.row_unit[a:b]].tolist()), float(stats.weight[cell]))
        for (a, b), cell in zip(ends, at, strict=True)
    ]


def frequency_of(stats: Statistics) -> dict[int, float]:
    f = dict.fromkeys(range(len(stats.terms)), 0.0)
    for unit, term in enumerate(stats.term.tolist()):
        f[term] += float(stats.o[unit])
    return f


def term_owner(partition: Partition, stats: Statistics) -> dict[int, int]:
    (leaf,) = partition.leaves
    assert isinstance(leaf, Text)
    return {t: leaf.terms[w] for t, w in enumerate(stats.terms) if w in leaf.terms}


def assert_lightest_first(load: dict[int, float], owner: dict[int, int], workers: int) -> None:
    """By descending load each went to a worker with the least so far."""
    held = [0.0] * workers
    for item in sorted(load, key=lambda i: (-load[i], i)):
        if load[item] > 0:
            assert held[owner[item]] <= min(held) + 1e-9
            held[owner[item]] += load[item]


# --- text -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_frequency_balances_occurrences(seed: int) -> None:
    stats = some_stats(seed)
    owner = term_owner(ALGORITHMS["frequency"](stats, 3, PartitionOptions()), stats)
    assert_lightest_first(frequency_of(stats), owner, 3)


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


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_metric_is_salb(seed: int, workers: int) -> None:
    """Algorithm of S3-TM: argmax of -r b, r the spread, b stddev over mean of the loads."""
    stats = some_stats(seed)
    publications, f = rows_of(stats), frequency_of(stats)
    owner = term_owner(ALGORITHMS["metric"](stats, workers, PartitionOptions()), stats)
    total = sum(weight for _, weight in publications)
    held: list[set[int]] = [set() for _ in range(workers)]

    def loads(held: list[set[int]]) -> list[float]:
        return [sum(w for p, w in publications if p & words) for words in held]

    for word in sorted(f, key=lambda t: (-f[t], t)):
        if word not in owner:
            continue
        prices = []
        for i in range(workers):
            new = loads([h | {word} if j == i else h for j, h in enumerate(held)])
            prices.append(sum(new) / total * float(np.std(new) / np.mean(new)))
        assert prices[owner[word]] <= min(prices) * (1 + 1e-9) + 1e-12
        held[owner[word]].add(word)


# --- cuts of graphs -------------------------------------------------------


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
    ALGORITHMS[name](stats, 3, PartitionOptions())
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


def test_words_that_always_occur_together_count_once() -> None:
    """2.3: k such words weigh what one of them would."""
    together = [f"w{i}" for i in range(4)]
    units = [(0, w, 8.0, 1.0, 0.0, 0.0) for w in [*together, "alone"]]
    stats = tables(Grid(0, 0), {0: 16.0}, units, [(0, together)] * 8 + [(0, ["alone"])] * 8)
    f = frequency_of(stats)
    fn = 3 * 8.0
    assert sum(f[t] / (1 + fn / f[t]) for t in range(1, 5)) == pytest.approx(f[0])


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
    owner = term_owner(ALGORITHMS[name](stats, workers, PartitionOptions()), stats)
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
    few, many = (ALGORITHMS[name](stats, 4, PartitionOptions()).leaves for stats in both)
    assert few == many
    f = Counter[int]()
    for term, to in term_owner(ALGORITHMS[name](both[1], 4, PartitionOptions()), both[1]).items():
        f[to] += seen[both[1].terms[term]]
    assert max(f.values()) <= 1.4 * min(f.values())


@pytest.mark.parametrize("name", CUTS)
def test_metis_does_not_write_between_our_lines(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It tells C's standard output of parts that stay empty, where `--json` writes."""
    for workers in (8, 9, 15, 20):
        ALGORITHMS[name](hostile(0)["many cells"], workers, PartitionOptions())
    sys.stdout.write("ours\n")
    sys.stdout.flush()
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "ours\n"


# --- space ----------------------------------------------------------------


def cells_of_leaves(partition: Partition, stats: Statistics) -> dict[int, int]:
    """The leaf of each cell of the sample, by its number there."""
    assert all(isinstance(leaf, Space) for leaf in partition.leaves)
    return dict(enumerate(partition.cells[stats.cell].tolist()))


def test_grid_gives_cells_by_load_to_the_lightest() -> None:
    stats, options = some_stats(3), PartitionOptions()
    leaf = cells_of_leaves(ALGORITHMS["grid"](stats, 3, options), stats)
    load = dict(enumerate(cell_load(stats, options.costs).tolist()))
    assert_lightest_first(load, leaf, 3)


def test_grid_has_64_blocks_across_at_most() -> None:
    rng = np.random.default_rng(1)
    grid = Grid(8, 7)
    cells = [int(r) * 256 + int(c) for r, c in rng.integers(0, (128, 256), (300, 2))]
    stats = words(grid, rng, [0, grid.rows() * grid.columns() - 1, *cells], 600)
    plane = ALGORITHMS["grid"](stats, 5, PartitionOptions()).cells.reshape(128, 256)
    blocks = plane.reshape(64, 2, 64, 4)
    assert (blocks == blocks[:, :1, :, :1]).all()
    assert len(set(plane.ravel().tolist())) == 5


@pytest.mark.parametrize("seed", range(3))
def test_rtree_divides_packed_tiles_by_load(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, workers, options = some_stats(seed), 3, PartitionOptions()
    packed: list[tuple[set[tuple[int, int]], list[float]]] = []

    def leaves(x: Any, y: Any, count: int) -> Any:
        assert count == rtree.TILES * workers
        found = cut(x, y, count)
        packed.extend(({(int(x[i]), int(y[i])) for i in held}, box) for held, box in found)
        return found

    cut = rtree._pack_leaves
    monkeypatch.setattr(rtree, "_pack_leaves", leaves)
    partition = ALGORITHMS["rtree"](stats, workers, options)
    tile = cells_of_leaves(partition, stats)
    costs, load = cell_load(stats, options.costs), dict.fromkeys(tile.values(), 0.0)
    for cell, to in tile.items():
        load[to] += float(costs[cell])
    owner = {n: s.worker for n, s in enumerate(partition.leaves) if isinstance(s, Space)}
    assert_lightest_first(load, owner, workers)
    # Tiles hold about equally many objects, save where one cell has more.
    objects = dict.fromkeys(tile.values(), 0.0)
    for cell, to in tile.items():
        objects[to] += float(stats.objects[cell])
    share = float(stats.objects.sum()) / (rtree.TILES * workers)
    assert max(objects.values()) <= 2 * share + float(stats.objects.max())
    # A cell of the sample is in a leaf that holds it, any other in the nearest.
    at = {cell: (int(n % 16), int(n // 16)) for cell, n in enumerate(stats.cell)}
    last = {c: max(n for n, (held, _) in enumerate(packed) if at[c] in held) for c in tile}
    boxes = {to: packed[last[cell]][1] for cell, to in tile.items()}
    assert [last[c] for c in tile] == [sorted({*last.values()})[to] for to in tile.values()]
    for cell, to in enumerate(partition.cells.tolist()):
        if cell not in stats.cell:
            y, x = divmod(cell, 16)
            away = {
                n: np.hypot(max(left - x, x - right, 0), max(low - y, y - high, 0))
                for n, (left, low, right, high) in boxes.items()
            }
            assert away[to] <= min(away.values()) + 1e-9
