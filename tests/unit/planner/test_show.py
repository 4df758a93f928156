"""A plan as it is shown: what each worker has."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from ps2stream.errors import InvalidArgument, PlanError
from ps2stream.planner.phases import DecidedNodes, describe_phases
from ps2stream.planner.show import facts, scaled, show, text
from ps2stream.routing.plan_file import save_plan
from ps2stream.routing.replicas import ReplicatedUnit
from tests.support.shown_plans import shown_plan

MADE = {
    "algorithm": "hybrid",
    "predicted": {"loads": [2e6, 1e6, 0.5e6], "balance": 4.0, "slowest_over_bound": 1.71},
    "warnings": ["sigma 1.2 was not met"],
}


class Said:
    def __init__(self) -> None:
        self.value: dict[str, Any] = {}
        self.line = ""

    def emit(self, value: dict[str, Any], line: str | None = None) -> None:
        self.value, self.line = value, line or ""


def test_the_parts_of_each_worker() -> None:
    found = facts(shown_plan(MADE))
    names = ("space_leaves", "space_cells", "text_leaves", "text_cells", "terms", "load")
    assert [[part[name] for name in names] for part in found["parts"]] == [
        [1, 3, 1, 3, 1, 2e6],
        [1, 2, 1, 3, 0, 1e6],
        [0, 0, 1, 3, 2, 0.5e6],
    ]
    assert (found["leaves"], found["text_leaves"]) == (3, 1)


def test_what_summed_units_may_change_is_told() -> None:
    made = MADE | {"sample": {"units": 40, "rest": {"units": 1234, "error": 7e3}}}
    assert "rest " not in text(facts(shown_plan(MADE)))
    told = text(facts(shown_plan(made)))
    assert "1,234 light units were summed by cell" in told
    assert "by up to 0.60% of the mean" in told


def test_a_plan_is_told_with_its_warnings(tmp_path: Path) -> None:
    plan = shown_plan(MADE)
    counts = {"flood": 9, "river": 3, 'kind = "quake"': 4, "kind EXISTS": 7, "mag EXISTS": 2}
    save_plan(dataclasses.replace(plan, frequencies=counts), tmp_path / "p.json")
    said = Said()
    show(str(tmp_path / "p.json"), said)
    json.dumps(said.value)
    assert "by hybrid" in said.line
    assert "similarity" not in said.line  # a plan that was made before phases were told
    assert "slowest over fastest 4.00, slowest over the lower bound 1.71" in said.line
    assert "counted     2 words, 3 attributes and values" in said.line
    assert "warning     sigma 1.2 was not met" in said.line
    assert said.line.splitlines()[-3].split() == ["0", "1", "3", "1", "3", "1", "2.00"]


def test_a_plan_tells_which_phases_acted(tmp_path: Path) -> None:
    phases = describe_phases(0.97, 0.5, DecidedNodes(1, 0, (3,), told_apart=True), 0, 0)
    save_plan(shown_plan(MADE | {"phases": phases}), tmp_path / "p.json")
    said = Said()
    show(str(tmp_path / "p.json"), said)
    assert said.value["made"]["phases"] == phases
    assert "similarity  did not act: root 0.97, above delta = 0.5; Ns 1, Nt 0" in said.line


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


@pytest.mark.parametrize(
    "made",
    [
        {"predicted": 5},
        {"predicted": {"loads": ["x"]}},
        {"predicted": {"loads": [1e6], "balance": "even"}},
        {"warnings": 7},
        {"phases": {"acted": 3}},
    ],
)
def test_what_a_plan_says_of_itself_may_be_nonsense(tmp_path: Path, made: dict[str, Any]) -> None:
    save_plan(shown_plan(made), tmp_path / "p.json")
    with pytest.raises(PlanError, match=r"p\.json: the field `made` does not have the form"):
        show(str(tmp_path / "p.json"), Said())


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    save_plan(shown_plan(), tmp_path / "p.json")
    with pytest.raises(PlanError, match="not a plan"):
        show(str(tmp_path / "x.json"), Said())
    good = str(tmp_path / "p.json")
    with pytest.raises(InvalidArgument, match=r"--outlines.*No such file"):
        show(good, Said(), str(tmp_path / "m.png"), outlines=str(tmp_path / "none"))
    with pytest.raises(InvalidArgument, match=r"--outlines.*expected GeoJSON"):
        show(good, Said(), str(tmp_path / "m.png"), outlines=str(tmp_path / "x.json"))
    with pytest.raises(InvalidArgument, match=r"--png: cannot write.*No such file"):
        show(good, Said(), str(tmp_path / "no" / "m.png"))


def test_replicated_units_are_shown_with_their_workers(tmp_path: Path) -> None:
    units = (
        ReplicatedUnit(5, None, (2, 0), sharded=True),
        ReplicatedUnit(None, "storm", (0, 1, 2)),
    )
    save_plan(dataclasses.replace(shown_plan(MADE), replicas=units), tmp_path / "p.json")
    said = Said()
    show(str(tmp_path / "p.json"), said)
    assert said.value["replicas"] == [
        {"unit": "all terms in cell 5", "cell": 5, "workers": [2, 0], "sharded": True},
        {"unit": "'storm' everywhere", "term": "storm", "workers": [0, 1, 2]},
    ]
    assert said.line.splitlines()[-3:] == [
        "  workers  replicated or sharded unit", "  2, 0     all terms in cell 5, sharded",
        "  0, 1, 2  'storm' everywhere",
    ]  # fmt: skip
