"""`plan --migrate` of a running service, and `apply` of its steps: what was predicted moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.routing.plan_document import compute_route
from ps2stream.routing.steps_document import read_steps
from tests.support.moving import settled

WORDS = ("flood", "river", "storm", "fire", "dam")


def run(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == code, result.output + str(result.exception)
    text = result.stdout if code == 0 else result.stderr
    return [json.loads(line) for line in text.splitlines()]


def fill(client: Client, seed: int, queries: int = 400, objects: int = 600) -> None:
    """Queries and objects around a few places, more in the west than in the east."""
    rng = np.random.default_rng(seed)
    lon, lat = rng.normal(-60, 35, queries).clip(-170, 150), rng.normal(10, 20, queries)
    first, second = rng.integers(0, 5, (2, queries))
    client.insert_many(
        (f"s{seed}-{i}", f"{WORDS[a]} OR {WORDS[b]}", [x, y, x + 1.5, y + 1])
        for i, (a, b, x, y) in enumerate(zip(first, second, lon, lat.clip(-80, 70), strict=True))
    )
    lon, lat = rng.normal(-55, 30, objects).clip(-179, 179), rng.normal(15, 15, objects)
    client.publish(
        [
            {"lon": x, "lat": y, "text": " ".join(rng.choice(WORDS, 2))}
            for x, y in zip(lon, lat.clip(-89, 89), strict=True)
        ]
    )


def everywhere(client: Client, leaf: dict[str, Any]) -> bytes:
    """A plan that follows the one in force, with one leaf for all cells."""
    now = json.loads(client.plan())
    cells = [[sum(n for n, _ in now["cells"]), 0]]
    versions = {"base_version": now["version"], "version": now["version"] + 1}
    return json.dumps(now | versions | {"cells": cells, "leaves": [leaf]}).encode()


def make_steps(target: str, path: Path, *options: str) -> dict[str, Any]:
    plan = ("plan", "--from-service", target, "--engine", "numpy", "--migrate", "-o", str(path))
    [found] = run(*plan, *options)
    return found


def test_what_was_predicted_is_moved_step_by_step(
    client: Client, target: str, tmp_path: Path
) -> None:
    fill(client, 1)
    path = tmp_path / "steps.json"
    made = make_steps(target, path, "--step-bytes", "20000", "--select", "all")
    steps = made["steps"]
    assert len(steps) > 2
    assert all(step["bytes"] <= 20_000 or step["cells"] == 1 for step in steps)
    assert run("plan", "show", str(path))[0]["steps"] == steps
    first = client.migrations().plan_version
    [refused] = run("apply", str(path), "--regrid", "--server", target, code=2)
    assert "--regrid: does not go with migration steps" in refused["error"]["message"]
    assert (client.migrations().plan_version, client.migrations().following_version) == (first, 0)
    told = run("apply", str(path), "--server", target)
    assert told[-1] | {"event": "migrated", "difference_bytes": 0} == told[-1]
    moved = [m for m in settled(client).migrations if m.from_version >= first]
    assert [(m.to_version, m.queries, m.bytes, m.missing, m.surplus) for m in moved] == [
        (step["version"], step["queries"], step["bytes"], 0, 0) for step in steps
    ]
    assert told[-1]["bytes"] == sum(m.bytes or 0 for m in moved) == made["bytes"] > 0
    wanted = read_steps(path)["steps"][-1]["plan"]
    assert compute_route(json.loads(client.plan())) == compute_route(wanted)


def test_queries_that_change_meanwhile_are_the_difference(
    client: Client, target: str, tmp_path: Path
) -> None:
    fill(client, 2)
    path = tmp_path / "steps.json"
    made = make_steps(target, path, "--workers", "3")
    fill(client, 3)
    [*_, told] = run("apply", str(path), "--server", target)
    assert told["predicted_bytes"] == made["bytes"]
    assert told["difference_bytes"] == told["bytes"] - made["bytes"] > 0
    assert settled(client).workers == 3


def test_it_goes_on_where_it_was_interrupted(client: Client, target: str, tmp_path: Path) -> None:
    fill(client, 4)
    path = tmp_path / "steps.json"
    made = make_steps(target, path, "--step-bytes", "80000", "--select", "all", "--workers", "2")
    steps = read_steps(path)["steps"]
    assert len(steps) > 3
    for step in steps[:2]:  # the second is under way, as after a kill
        settled(client)
        client.apply_plan(json.dumps({**step["plan"], "made": {}}).encode())
    told = run("apply", str(path), "--server", target)
    assert told[-1] | {"event": "migrated", "steps": len(steps) - 2} == told[-1]
    assert [e["steps"] for e in told if e["event"] == "resumed"] == [2]
    assert told[-1]["difference_bytes"] == 0
    version = client.migrations().plan_version
    assert version == made["version"]
    again = run("apply", str(path), "--server", target)
    assert [e["event"] for e in again] == ["resumed", "migrated"]
    assert client.migrations().plan_version == version
    client.apply_plan(everywhere(client, {"worker": 0}))
    settled(client)
    [refused] = run("apply", str(path), "--server", target, code=7)
    assert f"version {version + 1}, is none of the steps" in refused["error"]["message"]


def test_replanning_migrates_in_steps(client: Client, target: str) -> None:
    fill(client, 5)
    terms = {word: number % 2 for number, word in enumerate(WORDS)}
    client.apply_plan(everywhere(client, {"workers": [0, 1], "terms": terms}))
    before = settled(client).plan_version
    replan = ("replan", "--migrate", "--engine", "numpy", "--fall", "0.001", "--server", target)
    decided, *told = run(*replan, "--algorithm", "kdtree")
    assert decided["reason"] == "load", str(decided)
    assert told[-1] | {"event": "migrated", "difference_bytes": 0} == told[-1]
    assert client.migrations().plan_version == before + told[-1]["steps"] > before
