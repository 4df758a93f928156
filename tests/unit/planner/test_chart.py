"""The map of a plan: what it shows, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps2stream.language.analyzer import Analysis
from ps2stream.planner.chart import ChartPoints, draw, read_outlines, read_places, window
from ps2stream.routing.plan import RoutingPlan, Space
from ps2stream.space.grid import Grid
from tests.support.shown_plans import shown_plan


@pytest.mark.takes_turns
def test_a_map_colours_and_hatches(tmp_path: Path) -> None:
    from matplotlib.image import imread

    outline = np.array([[-170.0, -80.0], [170.0, -80.0], [0.0, 80.0], [-170.0, -80.0]])
    some = ChartPoints(np.linspace(-170, 170, 50), np.linspace(-80, 80, 50))
    pictures = []
    for name, kept in (("text", shown_plan()), ("space", only_space(shown_plan()))):
        draw(kept, str(tmp_path / name), [outline], some, some)
        pictures.append(imread(tmp_path / name, format="png"))
    assert len(np.unique(pictures[0].reshape(-1, 4), axis=0)) > 3
    assert (pictures[0].shape != pictures[1].shape) or (pictures[0] != pictures[1]).any()


def test_nothing_is_drawn_across_the_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.axes import Axes

    lines: list[list[float]] = []
    drawn = Axes.plot

    def plot(self: Axes, x: Any, y: Any, **how: Any) -> Any:
        lines.append(x.tolist())
        return drawn(self, x, y, **how)

    monkeypatch.setattr(Axes, "plot", plot)
    ring = np.array([[170.0, 0], [179, 5], [-179, 5], [-170, 0], [170, 0]])
    draw(shown_plan(), str(tmp_path / "m.png"), [ring])
    assert lines == [[170, 179], [-179, -170], [170]]


def test_a_map_shows_owners_where_the_lines_of_the_grid_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.axes import Axes

    images: list[Any] = []
    drawn = Axes.imshow

    def imshow(self: Axes, image: Any, **how: Any) -> Any:
        images.append(image)
        return drawn(self, image, **how)

    monkeypatch.setattr(Axes, "imshow", imshow)
    shown = shown_plan()
    grid = Grid(2, 1, 64, (-180.0, 90.0, 180.0))
    cells = np.tile(np.array([0, 0, 2, 2], np.uint32), 2)
    everywhere = ChartPoints(np.array([-180.0, 180.0] * 50), np.array([-90.0, 90.0] * 50))
    plan = RoutingPlan(3, shown.analysis, grid, shown.leaves, cells)
    draw(plan, str(tmp_path / "m.png"), (), everywhere)
    row = images[0][0, :, :3]
    border = np.flatnonzero((row[1:] != row[:-1]).any(axis=1))
    assert len(border) == 1
    assert border[0] / len(row) == pytest.approx(0.75, abs=0.01)


def only_space(of: RoutingPlan) -> RoutingPlan:
    leaves = (Space(0), Space(1), Space(1))
    return RoutingPlan(3, of.analysis, of.grid, leaves, of.cells)


def test_the_window_is_where_something_is() -> None:
    far = ChartPoints(
        np.r_[np.linspace(-100, -90, 98), 0, 170], np.r_[np.linspace(30, 35, 98), 0, -80]
    )
    west, south, east, north = window(shown_plan(), far)
    assert (west, east) == pytest.approx((-100.5, -89.5), abs=0.3)
    assert (south, north) == pytest.approx((29.5, 35.5), abs=0.3)
    west, south, east, north = window(
        shown_plan(), ChartPoints(np.array([10.0, 20]), np.array([1.0, 2]))
    )
    assert west == pytest.approx(9.5, abs=0.3)
    assert south == pytest.approx(0.5, abs=0.3)
    assert north == pytest.approx(2.5, abs=0.3)
    assert east == pytest.approx(20.5, abs=0.3)
    everywhere = RoutingPlan(1, Analysis(salt=0), Grid(2, 1), (Space(0),), np.zeros(8, np.uint32))
    assert window(everywhere) == (-180.0, -90.0, 180.0, 90.0)


def test_the_shared_outlines_are_read(data: Path) -> None:
    rings = read_outlines(str(data / "ne_110m_land.geojson"))
    assert len(rings) > 100
    assert len(read_outlines(str(data / "us_states.geojson"))) >= 50
    assert all(ring.shape[1] == 2 for ring in rings)


def test_places_are_the_objects_and_the_middles_of_the_queries(tmp_path: Path) -> None:
    objects, queries = tmp_path / "o.csv", tmp_path / "q.jsonl"
    objects.write_text("text,lon,lat\na,1,2\nb,-3.5,4\n")
    rects = [[0, 10, 4, 20], [170, -5, -170, 5]]
    rows: list[dict[str, Any]] = [
        {"id": str(i), "region": {"rect": r}} for i, r in enumerate(rects)
    ]
    rows.append({"id": "0", "op": "delete", "time": 9})
    queries.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen, asked = read_places([str(objects)], [str(queries)])
    assert (seen.lon.tolist(), seen.lat.tolist()) == ([1.0, -3.5], [2.0, 4.0])
    assert (asked.lon.tolist(), asked.lat.tolist()) == ([2.0, 175.0], [15.0, 0.0])
    seen, asked = read_places([], [])
    assert (len(seen.lon), len(asked.lat)) == (0, 0)
