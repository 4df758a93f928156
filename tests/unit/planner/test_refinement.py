"""The choice of a finer grid: shares against sums over pairs, and the limits."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis
from ps2stream.planner import refinement
from ps2stream.planner.job import PlanJob, plan_of, sample_of
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.refinement import FullestCell, explain_imbalance, find_limit, refine
from ps2stream.planner.sample import PlannerSample, posts, take
from ps2stream.routing.costs import Costs
from ps2stream.space.grid import CELLS_MAX, Grid
from tests.support.samples import batch

CANDIDATES = Costs(1.0, 0.0, 0.0, 0.0)
START = Grid(9, 8)


class City:
    """Posts and queries within one cell of the grid to begin with; `side`: of the city, degrees."""

    def __init__(self, side: float, n: int = 400) -> None:
        rng = np.random.default_rng(5)
        self.lon = 8.5 + rng.random(n) * side
        self.lat = 47.2 + rng.random(n) * side * 0.7
        self.word = rng.integers(0, 2, n)
        self.boxes = np.stack(
            [self.lon[:60], self.lat[:60], self.lon[:60] + 0.03, self.lat[:60] + 0.03], axis=1
        )
        text = [("flood", "storm")[w] for w in self.word]
        self.objects = posts(self.lon, self.lat, text)
        self.rows: list[dict[str, Any]] = [
            {"id": f"q{i}", "expression": ("flood", "storm")[i % 2], "region": {"rect": box}}
            for i, box in enumerate(self.boxes.tolist())
        ]

    def take(self, grid: Grid) -> PlannerSample:
        return take(lambda: [self.objects], [batch(self.rows)], Analysis(0), grid)

    def find_share(self, grid: Grid) -> float:
        """The share of the fullest cell of all pairs of a post and a posting of its word in its
        cell."""
        cell = grid.cells(self.lon, self.lat, 0).tolist()
        off = 4 * np.arange(len(self.boxes) + 1)
        at, cover = grid.cover(off, self.boxes.reshape(-1))
        pairs: dict[int, int] = {}
        for i, (a, b) in enumerate(itertools.pairwise(at.tolist())):
            touched = set(cover[a:b].tolist())
            for c, word in zip(cell, self.word.tolist(), strict=True):
                pairs[c] = pairs.get(c, 0) + (c in touched and word == i % 2)
        return max(pairs.values()) / sum(pairs.values())


def test_the_share_of_the_fullest_cell_is_that_of_its_pairs() -> None:
    city = City(0.5)
    for grid in (START, Grid(12, 11), Grid(12, 12, 512)):
        found = FullestCell.of(city.take(grid).stats, CANDIDATES)
        assert found.share == pytest.approx(city.find_share(grid))
        west, south, width, height = grid.bounds(found.cell)
        assert west < found.lon < west + width
        assert south < found.lat < south + height


def test_a_city_is_divided_until_no_cell_holds_too_much() -> None:
    city = City(0.5)
    first = city.take(START)
    assert city.find_share(START) > 0.9
    found = refine(first, 1, PartitionOptions(costs=CANDIDATES), city.take)
    assert city.find_share(found.stats.grid) <= find_limit(1, first.objects) == 0.25
    assert found.stats.grid.size <= CELLS_MAX
    assert found.coarse <= first.coarse
    tried = found.refinement["tried"]
    assert [row["share"] for row in tried] == sorted((r["share"] for r in tried), reverse=True)
    assert "stopped" not in found.refinement
    kept = refine(found, 1, PartitionOptions(costs=CANDIDATES), city.take)
    assert kept.stats.grid == found.stats.grid
    assert len(kept.refinement["tried"]) == 1


def test_one_place_keeps_its_grid_and_says_so() -> None:
    city = City(0.0)
    city.boxes[:, :2] -= 0.001
    city.rows = [
        r | {"region": {"rect": b}} for r, b in zip(city.rows, city.boxes.tolist(), strict=True)
    ]
    found = refine(city.take(START), 8, PartitionOptions(costs=CANDIDATES), city.take)
    assert found.stats.grid == START
    assert len(found.refinement["tried"]) > 1
    assert "at most 16,777,216 cells" in found.refinement["stopped"]
    said = explain_imbalance(found, 8, CANDIDATES)
    assert "holds 100.0% of the load, more than the even share of 12.5%" in said
    assert "at one place, and only terms divide them" in said


def test_the_limits_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    city = City(0.5)
    monkeypatch.setattr(refinement, "POSTINGS_MAX", 100)
    found = refine(city.take(START), 8, PartitionOptions(costs=CANDIDATES), city.take)
    assert found.stats.grid == START
    assert found.refinement["stopped"] == "the sample would have more than 100 postings"
    assert "no finer grid was tried, as" in explain_imbalance(found, 8, CANDIDATES)


def test_a_small_sample_is_not_divided_for_many_workers() -> None:
    assert find_limit(1024, 320) == 16 / 320
    assert find_limit(1024, 3) == 1.0
    assert find_limit(8, 1e6) == 1 / 32
    city = City(30.0)
    found = refine(city.take(START), 1024, PartitionOptions(costs=CANDIDATES), city.take)
    assert found.refinement["limit"] == 16 / found.objects
    assert "stopped" not in found.refinement
    said = explain_imbalance(found, 1024, CANDIDATES)
    assert f"needs a larger sample than {found.objects:,} objects" in said


def test_a_plan_names_the_cell_and_the_remedy() -> None:
    city = City(0.5)
    plans = {}
    for refined in (False, True):
        job = PlanJob(
            posts=[city.objects], updates=[batch(city.rows)], workers=3, algorithm="kdtree",
            engine="numpy", grid=START, refine=refined,
        )  # fmt: skip
        plans[refined] = plan_of(sample_of(job), job)
    said = "\n".join(plans[False].made["warnings"])
    assert "of the load, more than the even share of 33.3%" in said
    assert "`ps2stream plan --grid refine`" in said
    assert plans[True].grid.size > START.size
    assert plans[True].made["refinement"]["share"] <= find_limit(3, len(city.objects))
    assert not any("plan --grid refine" in line for line in plans[True].made["warnings"])
    assert "refinement" not in plans[False].made


def test_an_even_load_needs_no_word() -> None:
    city = City(0.5)
    fine = city.take(Grid(12, 12, 512))
    assert explain_imbalance(fine, 1, CANDIDATES) == ""
