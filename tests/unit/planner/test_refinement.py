"""The choice of a finer grid: shares against sums over pairs, and the limits."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ps2stream.language.analyzer import Analysis
from ps2stream.planner import refinement
from ps2stream.planner.job import PlanJob, plan_of, sample_of
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.refinement import FullestCell, explain_imbalance, find_limit, refine
from ps2stream.planner.sample import PlannerSample, posts, take
from ps2stream.routing.costs import Costs
from ps2stream.space.grid import Grid
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
    assert found.stats.grid.size <= START.size
    assert found.coarse <= first.coarse
    tried = found.refinement["tried"]
    assert [row["share"] for row in tried] == sorted((r["share"] for r in tried), reverse=True)
    assert "stopped" not in found.refinement
    for workers, side in ((8, 0.5), (8, 0.05), (4, 0.01)):
        city = City(side)
        small = refine(city.take(START), workers, PartitionOptions(costs=CANDIDATES), city.take)
        limit = find_limit(workers, small.objects)
        assert city.find_share(small.stats.grid) <= limit < 0.07, (workers, side)
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
    assert [one["share"] for one in found.refinement["tried"]] == [1.0] * 3
    assert "queries touch more than 1,024 cells" in found.refinement["stopped"]
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


def test_a_hot_place_in_the_world_gets_cells_and_the_world_keeps_its_own() -> None:
    """Half of the posts are in a city, half are everywhere, and so are the queries."""
    city, rng = City(0.3, 2000), np.random.default_rng(7)
    city.lon[::2], city.lat[::2] = rng.uniform(-170, 170, 1000), rng.uniform(-60, 60, 1000)
    city.objects = posts(city.lon, city.lat, ["flood"] * 2000)
    middle = np.stack([city.lon, city.lat], axis=1)
    city.boxes = np.concatenate([middle, middle + 0.03], axis=1)
    city.rows = [
        {"id": f"q{i}", "expression": "flood", "region": {"rect": box}}
        for i, box in enumerate(city.boxes.tolist())
    ]
    costs = Costs(0.0, 1.0, 0.0, 0.0)  # only objects count
    found = refine(city.take(START), 8, PartitionOptions(costs=costs), city.take)
    grid = found.stats.grid
    assert found.refinement["share"] <= 1 / 32 < found.refinement["tried"][0]["share"]
    cells = grid.cells(city.lon[::2], city.lat[::2], 0).tolist()
    areas = np.prod([grid.bounds(cell)[2:] for cell in cells], axis=1)
    assert np.mean(areas > 2 * 360 * 180 / START.size) <= 0.2


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
    assert not plans[True].grid.is_even
    assert plans[True].made["refinement"]["share"] <= find_limit(3, len(city.objects))
    assert not any("plan --grid refine" in line for line in plans[True].made["warnings"])
    assert "refinement" not in plans[False].made


def test_an_even_load_needs_no_word() -> None:
    city = City(0.5)
    fine = city.take(Grid(12, 12, 512))
    assert explain_imbalance(fine, 1, CANDIDATES) == ""


def sample_city(data: Path, name: str, city: str) -> tuple[Any, list[dict[str, Any]]]:
    """The posts of a shared stream, and 5,000 queries around them: one or two words of a post, in
    squares of 1 to 50 km."""
    table = pq.read_table(data / name).to_pandas()
    table = table[table.city == city] if city else table
    rng = np.random.default_rng(1)
    lon, lat, text = table.lon.to_numpy(), table.lat.to_numpy(), table.text.tolist()
    rows: list[dict[str, Any]] = []
    while len(rows) < 5000:
        i, side = int(rng.integers(len(text))), rng.uniform(1, 50) / 2 / 111.2
        words = sorted(set(re.findall(r"[a-z]{3,}", text[i].lower())) - {"and", "not"})
        if not words:
            continue
        some = rng.permutation(words)[: rng.integers(1, 3)].tolist()
        wide = side / np.cos(np.radians(lat[i]))
        box = [lon[i] - wide, lat[i] - side, lon[i] + wide, lat[i] + side]
        sides = np.clip(box, [-180, -90] * 2, [180, 90] * 2).tolist()
        expression = (" AND ", " OR ")[rng.integers(2)].join(some)
        rows.append({"id": f"{len(rows)}", "expression": expression, "region": {"rect": sides}})
    return posts(lon, lat, text), rows


@pytest.mark.parametrize(
    ("name", "city", "most"),
    [
        ("osm_pois_vancouver.parquet", "", 1 / 32),
        ("airbnb_listings.parquet", "new_york", 1 / 32),
        ("earthquakes.parquet", "", 1 / 32),
    ],
)
def test_shared_streams_are_divided(data: Path, name: str, city: str, most: float) -> None:
    objects, rows = sample_city(data, name, city)
    options = PartitionOptions()
    first = take(lambda: [objects], [batch(rows)], Analysis(0), START)
    found = refine(
        first, 8, options, lambda grid: take(lambda: [objects], [batch(rows)], Analysis(0), grid)
    )
    assert found.refinement["share"] <= most < found.refinement["tried"][0]["share"] / 8
    assert FullestCell.of(found.stats, options.costs).share == found.refinement["share"]
    assert found.coarse <= max(first.coarse, 50)
