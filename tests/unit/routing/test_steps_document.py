"""The file of migration steps: what it keeps, what is refused, and how far a service is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import RoutingPlan, Space, Text
from ps2stream.routing.plan_document import compute_route, read_document
from ps2stream.routing.plan_file import save_plan
from ps2stream.routing.steps_document import (
    find_reached_step,
    is_steps_file,
    read_steps,
    write_steps,
)
from ps2stream.space.grid import Grid


def plan(version: int, first: int) -> RoutingPlan:
    leaves = (Space(0), Space(1), Text((0, 1), {"flood": 1}))
    cells = [first, 1, 2, 2]
    return RoutingPlan(2, Analysis(salt=0), Grid(1, 1), leaves, cells, {"dam": 3}, version,  # type: ignore[arg-type]
                       version - 1)  # fmt: skip


def body_of(version: int, first: int) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(json.dumps(plan(version, first).to_dict()))
    return body


def migration(*versions: int) -> dict[str, Any]:
    steps = []
    for number, version in enumerate(versions):
        body = body_of(version, (number + 1) % 3)
        if number < len(versions) - 1:
            del body["frequencies"]
        steps.append({"queries": 1, "bytes": 9, "cells": 1, "loads": [1.0, 2.0], "plan": body})
    base = plan(4, 0)
    return {"base_version": 4, "base_route": base.route, "frequencies": {"dam": 3},
            "steps": steps, "made": {}}  # fmt: skip


def test_each_step_is_read_with_its_frequencies(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    write_steps(migration(5, 6), path)
    assert is_steps_file(path)
    found = read_steps(path)
    assert [step["plan"]["frequencies"] for step in found["steps"]] == [{"dam": 3}] * 2
    assert [step["plan"] for step in found["steps"]] == [body_of(5, 1), body_of(6, 2)]
    with pytest.raises(PlanError, match="format 'steps-1'"):
        read_document(path)


def test_what_is_no_steps_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "steps.json"
    save_plan(plan(1, 0), path)
    assert not is_steps_file(path)
    assert not is_steps_file(tmp_path / "none")
    with pytest.raises(PlanError, match="this version reads 'steps-1'"):
        read_steps(path)
    write_steps(migration(5, 7), path)
    with pytest.raises(PlanError, match="step 2 does not follow plan version 5"):
        read_steps(path)
    write_steps(migration(5), path)
    path.write_text(path.read_text().replace('"bytes": 9', '"bytes": 8'))
    with pytest.raises(PlanError, match="damaged"):
        read_steps(path)
    path.write_text("{")
    with pytest.raises(PlanError, match="not JSON"):
        read_steps(path)
    with pytest.raises(PlanError, match="No such file"):
        read_steps(tmp_path / "none")
    write_steps({**migration(5), "steps": []}, path)
    with pytest.raises(PlanError, match="expected the fields"):
        read_steps(path)


def test_the_plan_in_force_says_how_far_it_is() -> None:
    steps = migration(5, 6)
    assert find_reached_step(steps, body_of(4, 0)) == 0
    assert find_reached_step(steps, body_of(5, 1)) == 1
    assert find_reached_step(steps, body_of(6, 2)) == 2
    for strange in (body_of(3, 0), body_of(7, 2), body_of(5, 0), body_of(4, 2)):
        assert find_reached_step(steps, strange) is None


def test_the_route_in_json_is_that_of_the_plan() -> None:
    assert compute_route(body_of(9, 2)) == plan(9, 2).route
    assert compute_route(body_of(9, 2)) == compute_route(body_of(3, 2)) != plan(9, 1).route
