"""What an operator and a subscriber see of replicated units: plans, loads, status, explanations."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_file import load_plan, save_plan
from ps2stream.routing.replicas import ReplicatedUnit

HERE = {"lon": 20.5, "lat": 10.5}
BOX = (20.0, 10.0, 21.0, 11.0)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Three workers; nothing is replicated but by the test's plan, which stays."""
    data = tmp_path_factory.mktemp("replicas")
    settings = Settings(
        runtime="local",
        port=0,
        adjust="off",
        workers=3,
        data_dir=data,
        hot="off",
        load_period_s=0.5,
    )
    with start(settings) as running:
        yield running


@pytest.fixture(scope="module")
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.targets[0], timeout=90) as found:
        yield found


def hot_plan(client: Client) -> RoutingPlan:
    """The plan in force and its successor with a replicated cell and a replicated word."""
    plan = RoutingPlan.from_dict(json.loads(client.plan()))
    cell = int(plan.grid.cells(np.array([HERE["lon"]]), np.array([HERE["lat"]]), 0)[0])
    units = (ReplicatedUnit(cell, None, (2, 0)), ReplicatedUnit(None, "flood", (0, 1, 2)))
    version = plan.version
    return dataclasses.replace(plan, version=version + 1, base_version=version, replicas=units)


@pytest.fixture(scope="module")
def plan(client: Client, service: RunningService, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the plan with replicated units, which is in force."""
    path = tmp_path_factory.mktemp("plan") / "hot.json"
    save_plan(hot_plan(client), path)
    client.insert("q-flood", "flood", BOX, session="s")
    client.insert("q-two", "(flood OR river)", BOX, session="s")
    run(service, "apply", str(path), "--wait")
    assert client.migrations().plan_version == 2
    return path


def run(service: RunningService, *words: str, code: int = 0) -> str:
    found = CliRunner().invoke(main, [*words, "--server", service.targets[0], "--timeout", "90"])
    assert found.exit_code == code, found.output + str(found.exception)
    return found.output


def await_units(client: Client, count: int) -> None:
    """Waits until the controller reports so many replicated units."""
    deadline = time.monotonic() + 60
    while (client.status()["census"] or {}).get("replicated_units") != count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(client.load()["replicated"]) == count


def await_loads(client: Client) -> dict[str, Any]:
    deadline = time.monotonic() + 60
    while not (found := client.load())["replicated"]:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


def test_loads_and_status_list_what_is_replicated(
    service: RunningService, client: Client, plan: Path
) -> None:
    found = await_loads(client)
    assert [unit["workers"] for unit in found["replicated"]] == [[2, 0], [0, 1, 2]]
    cell, word = found["replicated"]
    assert (cell["term"], word["term"], word["cell"]) == (None, "flood", None)
    assert cell["west"] <= HERE["lon"] < cell["east"]
    assert cell["south"] <= HERE["lat"] < cell["north"]
    assert (cell["share"], found["hot_balance"]) == (None, None)  # nobody counts
    lines = run(service, "status", "--load").splitlines()
    assert any(line.split()[:4] == ["-", "replicated", "0-2", "flood"] for line in lines)
    await_units(client, 2)
    assert client.status()["census"]["hot_changes"] == 0
    assert "2 replicated, 0 sharded" in run(service, "status")


def test_the_plan_in_force_is_shown_with_its_replicated_units(
    service: RunningService, plan: Path, tmp_path: Path
) -> None:
    current = tmp_path / "current.json"
    run(service, "plan", "current", "-o", str(current))
    assert load_plan(current).replicas == load_plan(plan).replicas
    shown = CliRunner().invoke(main, ["plan", "show", str(current)]).output
    assert shown.splitlines()[-1].split(maxsplit=3) == ["0,", "1,", "2", "'flood' everywhere"]


def test_an_explanation_names_all_workers_of_the_unit(
    service: RunningService, client: Client, plan: Path, tmp_path: Path
) -> None:
    told = client.explain("q-two", HERE | {"text": "a flood"})
    assert told["matches"]
    assert (told["worker"], told["sent_to"]) == (None, [])
    assert told["sent_to_one_of"] == [{"workers": [0, 1, 2]}]
    assert "one of workers 0, 1, 2, which own this hot unit together" in told["reason"]
    units = {unit["term"]: unit["workers"] for unit in told["units"]}
    assert units == {"flood": [0, 1, 2], "river": [2, 0]}
    both = client.explain("q-two", HERE | {"text": "flood river"})
    assert sorted(group["workers"] for group in both["sent_to_one_of"]) == [[0, 1, 2], [2, 0]]
    post = tmp_path / "post.jsonl"
    post.write_text(json.dumps(HERE | {"text": "a river"}) + "\n")
    shown = run(service, "explain", "--query", "q-two", "--object", str(post))
    assert "sent to    one of workers 0, 2 (replicated)" in shown
    dry = client.explain("q-two", {"lon": 0.0, "lat": 0.0, "text": "flood"})
    assert (dry["matches"], dry["sent_to_one_of"]) == (False, [])


def test_a_price_counts_postings_at_each_worker_and_divides_objects(
    client: Client, plan: Path
) -> None:
    client.publish([HERE | {"text": "flood" if i % 2 else "calm"} for i in range(100)])
    told = client.price("flood", BOX)
    assert told["postings"] == told["cells"]
    assert [w["postings"] for w in told["workers"]] == [told["cells"]] * 3
    work = [w["load_us_per_second"] for w in told["workers"]]
    assert work == pytest.approx([told["load_us_per_second"] / 3] * 3)
    assert told["copies_per_second"] == pytest.approx(told["objects_per_second"] / 2)


def test_each_match_is_delivered_once(client: Client, plan: Path) -> None:
    texts = ["flood", "river", "flood river", "calm"] * 50
    rows = [HERE | {"id": str(i), "text": text} for i, text in enumerate(texts)]
    client.publish(rows)
    expected = {("q-two", str(i)) for i, text in enumerate(texts) if text != "calm"}
    expected |= {("q-flood", str(i)) for i, text in enumerate(texts) if "flood" in text}
    found: list[tuple[str, str]] = []
    with client.subscribe("s") as matches:
        for match in matches:
            if match.object_id:
                found.append((match.query_id, match.object_id))
            if len(found) >= len(expected):
                break
    assert len(found) == len(expected)
    assert set(found) == expected


def test_a_plan_with_replicated_units_cannot_coexist(
    service: RunningService, client: Client, plan: Path, tmp_path: Path
) -> None:
    path = tmp_path / "next.json"
    made = hot_plan(client)
    made = dataclasses.replace(made, replicas=made.replicas[:1])
    save_plan(made, path)
    shown = run(service, "apply", str(path), "--coexist", code=7)
    assert "it replicates units, so that it cannot coexist with another" in shown
    with pytest.raises(FailedPrecondition, match="it replicates units"):
        client.apply_plan(json.dumps(made.to_dict()).encode(), coexist=True)
    assert client.migrations().state == "none"


@pytest.mark.takes_turns
def test_replicated_units_are_ended_by_hand(
    service: RunningService, client: Client, plan: Path, root: Path, tmp_path: Path
) -> None:
    """As docs/operations.md says, and back again."""
    page = (root / "docs/operations.md").read_text("utf-8")
    now, later = tmp_path / "now.json", tmp_path / "next.json"
    run(service, "plan", "current", "-o", str(now))
    assert json.loads(now.read_text())["format"] == 3
    [recipe] = [line for line in page.splitlines() if line.startswith("jq ")]
    if shutil.which("jq") is None:
        pytest.skip("there is no jq here (Debian: apt-get install jq)")
    subprocess.run(recipe, shell=True, check=True, cwd=tmp_path)
    made = load_plan(later)
    assert (made.version, made.base_version, made.replicas) == (3, 2, ())
    run(service, "apply", str(later), "--wait")
    await_units(client, 0)
    back = dataclasses.replace(load_plan(now), version=4, base_version=3)
    save_plan(back, later)
    run(service, "apply", str(later), "--wait")
    await_units(client, 2)


def test_a_plan_made_anew_has_no_replicated_units(
    service: RunningService, client: Client, plan: Path, tmp_path: Path
) -> None:
    path = tmp_path / "anew.json"
    version = client.migrations().plan_version
    words = ("plan", "--from-service", service.targets[0], "--engine", "numpy", "-o", str(path))
    assert CliRunner().invoke(main, [*words]).exit_code == 0
    made = load_plan(path)
    assert (made.base_version, made.replicas) == (version, ())
    run(service, "apply", str(path), "--coexist")
    client.insert("q-young", "flood", BOX, session="s")
    post = HERE | {"text": "a flood"}
    assert client.explain("q-flood", post)["sent_to_one_of"] == [{"workers": [0, 1, 2]}]
    young = client.explain("q-young", post)
    assert (young["plan_version"], young["sent_to_one_of"]) == (version + 1, [])
    assert young["sent_to"] == [young["worker"]]
    run(service, "apply", "--unite", "--wait")
    assert client.migrations().plan_version == version + 1
    assert client.load()["replicated"] == []
    told = client.explain("q-flood", post)
    assert (told["matches"], told["sent_to_one_of"]) == (True, [])
    assert [unit["workers"] for unit in told["units"]] == [[]]
    assert told["sent_to"] == [told["worker"]]
    [*_, move] = client.migrations().migrations
    assert (move.outcome, move.missing, move.surplus) == ("done", 0, 0)
