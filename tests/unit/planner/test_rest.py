"""Units that are summed by cell, against the same sample with every unit by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner import rest
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.job import PlanJob, plan_of
from ps2stream.planner.load import bound_error, cell_load, worker_loads
from ps2stream.planner.partition import PartitionOptions, plan_holders, to_plan
from ps2stream.planner.rest import choose_parts, classify_units, find_least_class
from ps2stream.planner.sample import PlannerSample, posts, take
from ps2stream.planner.statistics import REST_TERMS
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan import Text
from tests.support.samples import GRID, batch

WORDS = [f"w{i}" for i in range(60)]
COLUMNS = ("o", "q", "inserts", "deletes", "candidates")
COSTS = Costs(1.0, 3.0, 5.0, 7.0)


def some_units(seed: int, max_units: int = 10**9) -> PlannerSample:
    """Skewed words over several cells, queries of words and phrases; inserts and deletes."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, 61)
    words = [" ".join(rng.choice(WORDS, 8, p=share / share.sum())) for _ in range(400)]
    lon, lat = rng.uniform(0, 40, 400), rng.uniform(0, 20, 400)
    rows: list[dict[str, Any]] = []
    for i in range(300):
        west, south = rng.uniform(0, 30), rng.uniform(0, 15)
        rect = [west, south, west + rng.uniform(0, 8), south + rng.uniform(0, 5)]
        word = " OR ".join(rng.choice(WORDS, rng.integers(1, 3)))
        expression = word if i % 9 else f'"{WORDS[0]} {WORDS[i % 4]}"'
        row = {"id": f"{i}", "expression": expression, "region": {"rect": rect}, "time": 1}
        rows.append(row | {"op": "insert" if i % 3 else "live"})
        if i % 7 == 0:
            rows.append({"id": f"{i}", "op": "delete", "time": 2})
    one = posts(lon, lat, words)
    return take(
        lambda: [one.slice(0, 150), one.slice(150)], [batch(rows)], Analysis(0), GRID,
        max_units=max_units,
    )  # fmt: skip


@pytest.mark.parametrize(("seed", "limit"), [(1, 200), (2, 100), (3, 5)])
def test_the_sums_of_cells_are_exact(seed: int, limit: int) -> None:
    exact, found = some_units(seed), some_units(seed, limit)
    assert found.rest > 0
    assert exact.rest == 0
    listed = np.array([term in REST_TERMS for term in found.stats.terms])[found.stats.term]
    assert 0 < (~listed).sum() <= limit
    assert (~listed).sum() + found.rest == exact.stats.units
    assert found.stats.cell.tolist() == exact.stats.cell.tolist()
    for name in COLUMNS:
        of_cells = [
            np.bincount(s.unit_cell(), getattr(s, name), s.cells).tolist()
            for s in (exact.stats, found.stats)
        ]
        assert of_cells[0] == of_cells[1], name
    loads = [cell_load(sample.stats, COSTS) for sample in (exact, found)]
    assert loads[1] == pytest.approx(loads[0])
    before, after = (units_by_name(sample) for sample in (exact, found))
    kept = [name for name in after if name[1] not in REST_TERMS]
    assert all(after[name] == before[name] for name in kept)

    def weight(names: list[Any]) -> np.ndarray[Any, Any]:
        o, q, inserts, deletes, _ = np.array([before[n] for n in names]).T.astype(np.int64)
        return classify_units(o, q, inserts, deletes)

    assert weight(kept).min() > weight([name for name in before if name not in after]).max()


def test_signatures_are_numbered_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = some_units(2, 100).stats
    monkeypatch.setattr(rest, "_ROWS", 7)
    parts = some_units(2, 100).stats
    for name in ("row_off", "row_start", "row_unit", "weight"):
        assert getattr(parts, name).tolist() == getattr(whole, name).tolist()


def units_by_name(sample: PlannerSample) -> dict[tuple[int, str], tuple[float, ...]]:
    stats = sample.stats
    names = [stats.terms[t] for t in stats.term.tolist()]
    keys = zip(stats.cell[stats.unit_cell()].tolist(), names, strict=True)
    columns = (getattr(stats, name).tolist() for name in COLUMNS)
    return dict(zip(keys, zip(*columns, strict=True), strict=True))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("algorithm", ["metric", "hybrid+", "hybrid", "kdtree"])
def test_no_worker_is_off_by_more_than_the_bound(algorithm: str, seed: int) -> None:
    """The bound holds against exact counts; it is 0 where no cell is divided by terms."""
    exact, found = some_units(seed), some_units(seed, 100)
    options = PartitionOptions(costs=COSTS)
    partition = ALGORITHMS[algorithm](found.stats, 4, options)
    analyzer = Analyzer(Analysis(0))
    plan = to_plan(partition, found.stats, 4, analyzer.analysis, {})
    texts = [isinstance(leaf, Text) for leaf in plan.leaves]
    assert all(t not in REST_TERMS for leaf in plan.leaves if isinstance(leaf, Text)
               for t in leaf.terms)  # fmt: skip
    real, told = (
        worker_loads(sample.stats, plan_holders(plan, sample.stats, analyzer)[0], 4, COSTS)
        for sample in (exact, found)
    )
    bound = bound_error(found.stats, np.flatnonzero(np.array(texts)[plan.cells]), COSTS)
    off = np.abs(real - told).max()
    assert off <= bound + 1e-6 * real.max()
    if algorithm == "metric":
        assert 0 < off < bound < real.sum()
    if algorithm == "kdtree":
        assert bound == 0.0


def test_a_plan_states_the_bound_and_below_the_limit_is_the_same() -> None:
    exact = some_units(4)
    job = PlanJob(workers=3, engine="numpy", algorithm="metric")
    plan = plan_of(exact, job)
    same = plan_of(some_units(4, exact.stats.units), job)
    assert same.to_dict() == plan.to_dict()
    assert "rest" not in plan.made["sample"]
    made = plan_of(found := some_units(4, exact.stats.units - 1), job).made
    assert made["sample"]["rest"]["units"] == found.rest
    every = np.arange(GRID.rows() * GRID.columns())
    assert made["sample"]["rest"]["error"] == bound_error(found.stats, every, Costs())


def test_the_heaviest_classes_that_fit_are_kept() -> None:
    classes, units = np.array([0, 5, 3, 9]), np.array([100, 20, 30, 4])
    for limit, least in ((3, 10), (4, 9), (23, 9), (24, 5), (54, 3), (153, 3), (154, 0)):
        assert find_least_class(classes, units, limit) == least


def test_an_object_more_never_makes_a_unit_lighter() -> None:
    rng = np.random.default_rng(1)
    columns = [rng.integers(0, 1 << bits, 500) for bits in (20, 20, 9, 9)]
    light = classify_units(*columns)
    for column in range(4):
        more = [c + (i == column) for i, c in enumerate(columns)]
        assert (classify_units(*more) >= light).all()


def test_rests_are_few_against_the_limit() -> None:
    assert choose_parts(10, 1000) == 16
    assert choose_parts(100, 1000) == 2
    assert choose_parts(10_000, 1000) == 1
