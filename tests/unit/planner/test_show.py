"""A plan as it is shown: what each worker has, and its map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps2stream.errors import InvalidArgument, PlanError
from ps2stream.language.analyzer import Analysis
from ps2stream.planner.chart import ChartPoints, draw, read_outlines, window
from ps2stream.planner.show import facts, scaled, show
from ps2stream.routing.plan import RoutingPlan, Space, Text
from ps2stream.routing.plan_file import save_plan
from ps2stream.space.grid import Grid

MADE = {
    "algorithm": "hybrid",
    "predicted": {"loads": [2e6, 1e6, 0.5e6], "balance": 4.0, "slowest_over_bound": 1.71},
    "warnings": ["sigma 1.2 was not met"],
}


def plan(made: dict[str, Any] | None = None) -> RoutingPlan:
    """4 x 2 cells: worker 0 has three, 1 has two; three are divided by text among 1 and 2."""
    leaves = (Space(0), Text((1, 2), {"storm": 2, "flood": 0, "rain": 2}), Space(1))
    cells = np.array([0, 0, 1, 1, 0, 2, 2, 1], np.uint32)
    return RoutingPlan(
        3, Analysis(salt=0), Grid(2, 1), leaves, cells, {"storm": 5}, made=made or {}
    )


class Said:
    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.line = ""

    def emit(self, value: dict[str, Any], line: str | None = None) -> None:
        self.value, self.line = value, line or ""


def test_the_parts_of_each_worker() -> None:
    found = facts(plan(MADE))
    names = ("space_leaves", "space_cells", "text_leaves", "text_cells", "terms", "load")
    assert [[part[name] for name in names] for part in found["parts"]] == [
        [1, 3, 1, 3, 1, 2e6],
        [1, 2, 1, 3, 0, 1e6],
        [0, 0, 1, 3, 2, 0.5e6],
    ]
    assert (found["leaves"], found["text_leaves"]) == (3, 1)


def test_a_plan_is_told_with_its_warnings(tmp_path: Path) -> None:
    save_plan(plan(MADE), tmp_path / "p.json")
    said = Said()
    show(str(tmp_path / "p.json"), said)
    json.dumps(said.value)
    assert "by hybrid" in said.line
    assert "slowest over fastest 4.00, slowest over the lower bound 1.71" in said.line
    assert "warning     sigma 1.2 was not met" in said.line
    assert said.line.splitlines()[-3].split() == ["0", "1", "3", "1", "3", "1", "2.00"]


@pytest.mark.parametrize(
    ("loads", "shown"),
    [
        ([12.5e6, 4e3], (["12.50", "0.00"], "s")),
        ([4500.0, 900.0], (["4.50", "0.90"], "ms")),
        ([0.25, 0.0], (["0.25", "0.00"], "us")),
        ([0.0], (["0.00"], "us")),
        ([], ([], "us")),
    ],
)
def test_loads_are_told_in_a_unit_that_shows_them(
    loads: list[float], shown: tuple[list[str], str]
) -> None:
    assert scaled(loads) == shown


def test_a_plan_written_by_hand_is_shown_without_predictions(root: Path) -> None:
    said = Said()
    show(str(root / "examples" / "plan-text.json"), said)
    assert "unknown" in said.line
    assert said.line.splitlines()[-1].split()[-1] == "-"


def test_a_map_colours_and_hatches(tmp_path: Path) -> None:
    from matplotlib.image import imread

    outline = np.array([[-170.0, -80.0], [170.0, -80.0], [0.0, 80.0], [-170.0, -80.0]])
    some = ChartPoints(np.linspace(-170, 170, 50), np.linspace(-80, 80, 50))
    pictures = []
    for name, kept in (("text", plan()), ("space", only_space(plan()))):
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
    draw(plan(), str(tmp_path / "m.png"), [ring])
    assert lines == [[170, 179], [-179, -170], [170]]


def only_space(of: RoutingPlan) -> RoutingPlan:
    leaves = (Space(0), Space(1), Space(1))
    return RoutingPlan(3, of.analysis, of.grid, leaves, of.cells)


def test_the_window_is_where_something_is() -> None:
    far = ChartPoints(
        np.r_[np.linspace(-100, -90, 98), 0, 170], np.r_[np.linspace(30, 35, 98), 0, -80]
    )
    west, south, east, north = window(plan(), far)
    assert (west, east) == pytest.approx((-100.5, -89.5), abs=0.3)
    assert (south, north) == pytest.approx((29.5, 35.5), abs=0.3)
    west, south, east, north = window(plan(), ChartPoints(np.array([10.0, 20]), np.array([1.0, 2])))
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


@pytest.mark.parametrize(
    "made",
    [
        {"predicted": 5},
        {"predicted": {"loads": ["x"]}},
        {"predicted": {"loads": [1e6], "balance": "even"}},
        {"warnings": 7},
    ],
)
def test_what_a_plan_says_of_itself_may_be_nonsense(tmp_path: Path, made: dict[str, Any]) -> None:
    save_plan(plan(made), tmp_path / "p.json")
    with pytest.raises(PlanError, match=r"p\.json: the field `made` does not have the form"):
        show(str(tmp_path / "p.json"), Said())


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    save_plan(plan(), tmp_path / "p.json")
    with pytest.raises(PlanError, match="not a plan"):
        show(str(tmp_path / "x.json"), Said())
    good = str(tmp_path / "p.json")
    with pytest.raises(InvalidArgument, match=r"--outlines.*No such file"):
        show(good, Said(), str(tmp_path / "m.png"), outlines=str(tmp_path / "none"))
    with pytest.raises(InvalidArgument, match=r"--outlines.*expected GeoJSON"):
        show(good, Said(), str(tmp_path / "m.png"), outlines=str(tmp_path / "x.json"))
    with pytest.raises(InvalidArgument, match=r"--png: cannot write.*No such file"):
        show(good, Said(), str(tmp_path / "no" / "m.png"))
