"""`plan --from-service`, then a service with that plan; `calibrate` and its file."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.planner.calibrate import fit
from ps2stream.routing.plan_file import load_plan


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(main, [*arguments, "--json"])
    assert result.exit_code == code, result.output + str(result.exception)
    text = result.stdout if code == 0 else result.stderr
    return json.loads(text.splitlines()[-1])


def test_a_plan_from_a_running_service(client: Client, target: str, tmp_path: Path) -> None:
    client.insert("p1", "flood AND river", [0, 0, 2, 2], session="p")
    client.insert("p2", "storm OR 😀", [0.5, 0.5, 1.5, 1.5], session="p")
    client.insert("p3", "storm", session="p")
    client.publish(
        [
            {"lon": 0.1 * i, "lat": 1, "text": ["storm", "a river in flood", "😀"][i % 3]}
            for i in range(20)
        ]
    )
    path = tmp_path / "plan.json"
    live = len(list(client.list()))
    found = run(
        "plan", "--from-service", target, "--engine", "numpy", "--workers", "2", "-o", str(path)
    )
    assert found["sample"]["live"] == live >= 3
    assert found["sample"]["objects"] >= 20
    assert found["sample"]["units"] > 0
    plan = load_plan(path, workers=2)
    assert plan.frequencies["storm"] >= 7
    shown = run("plan", "show", str(path))
    assert shown["workers"] == 2
    assert shown["made"]["algorithm"] == "hybrid"


@pytest.mark.takes_turns
def test_a_running_service_takes_the_plan_that_was_made_from_it(tmp_path: Path) -> None:
    """The tutorial's way: no --base, no --grid-bits, no --workers."""
    settings = Settings(
        runtime="local", port=0, hot="off", adjust="off", workers=3, data_dir=tmp_path / "data"
    )
    path = tmp_path / "plan.json"
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        target = service.targets[0]
        words = ["flood", "storm", "river", "train"]
        posts = [{"lon": i % 90 / 10, "lat": 40.5, "text": words[i % 4]} for i in range(600)]
        client.publish(posts)
        client.insert_many((f"q{i}", words[i % 4], [i % 9, 40, i % 9 + 1, 41]) for i in range(60))
        made = run("plan", "--from-service", target, "--engine", "numpy", "-o", str(path))
        assert (made["version"], made["base_version"], made["workers"]) == (2, 1, 3)
        own = tmp_path / "own-grid.json"
        own_grid = ("--grid-bits", "3", "3", "-o", str(own))
        run("plan", "--from-service", target, "--engine", "numpy", *own_grid)
        error = run("apply", str(own), "--server", target, code=7)["error"]
        assert "is not that of the service" in error["message"]
        fine = tmp_path / "fine.json"
        found = run(
            "plan", "--from-service", target, "--engine", "numpy", "--grid", "refine",
            "--workers", "24", "-o", str(fine),
        )  # fmt: skip
        assert (found["version"], found["base_version"]) == (2, 1)
        assert len(found["refinement"]["tried"]) > 1
        kept = run("apply", str(fine), "--regrid", "--server", target)
        assert (kept["event"], client.migrations().pending_version) == ("pending", 2)
        run("apply", str(path), "--wait", "--server", target)
        assert client.migrations().plan_version == 2
        client.publish([post | {"id": str(i)} for i, post in enumerate(posts)])
        expected = {
            (f"q{q}", str(i))
            for i, post in enumerate(posts)
            for q in range(60)
            if q % 4 == i % 4 and q % 9 <= i % 90 / 10 <= q % 9 + 1
        }
        with client.subscribe() as matches:
            found = [(m.query_id, m.object_id) for m in islice(matches, len(expected))]
    assert set(found) == expected


def test_dispatchers_count_for_what_they_accepted(tmp_path: Path) -> None:
    settings = Settings(
        runtime="local", port=0, workers=1, dispatchers=2, data_dir=tmp_path / "data",
        sample_objects=1000,
    )  # fmt: skip
    with start(settings) as service:
        for target, word, n in zip(service.targets, ("storm", "flood"), (40, 2), strict=True):
            with Client(target, timeout=90) as client:
                for _ in range(n):
                    client.publish([{"lon": 1, "lat": 1, "text": word}] * 500)
        path = tmp_path / "plan.json"
        targets = [word for t in service.targets for word in ("--from-service", t)]
        run("plan", *targets, "--engine", "numpy", "--workers", "1", "-o", str(path))
    counted = load_plan(path).frequencies
    assert counted["storm"] > 400
    assert counted["storm"] / counted["flood"] == pytest.approx(20, rel=0.6)


def test_a_service_without_objects_says_so(tmp_path: Path) -> None:
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path / "data")
    with start(settings) as service:
        error = run("plan", "--from-service", service.targets[0], code=2)["error"]
    assert "the service has accepted no objects yet" in error["message"]


def test_a_service_that_is_not_there_is_named() -> None:
    args = ("plan", "--from-service", "127.0.0.1:1", "--timeout", "0.5")
    error = run(*args, code=5)["error"]
    assert error["message"].startswith("--from-service 127.0.0.1:1: cannot connect")


@pytest.mark.parametrize("option", ["--from-service", "--objects", "--queries"])
def test_an_option_without_its_value_is_told(option: str) -> None:
    error = run("plan", option, "--engine", "numpy", code=2)["error"]
    assert f"Invalid value for '{option}'" in error["message"]
    assert "got '--engine'" in error["message"]


def test_nothing_to_plan_from(tmp_path: Path) -> None:
    error = run("plan", code=2)["error"]
    assert "give at least one file of objects, or --from-service" in error["message"]
    costs = tmp_path / "costs.json"
    for text in ("{", '{"c1": 1}', '{"c1": 1, "c2": 1, "c3": -1, "c4": 1}', "[]", '{"c1": 1e9}'):
        costs.write_text(text, "utf-8")
        error = run("plan", "--objects", "x.csv", "--costs", str(costs), code=2)["error"]
        assert "numbers from 0 to 1e+06 (microseconds) for c1, c2, c3, c4" in error["message"]


def test_fit_finds_the_constants_and_stays_above_zero() -> None:
    rng = np.random.default_rng(1)
    work = rng.integers(1, 1000, (40, 4)).astype(np.float64)
    truth = np.array([0.02, 0.6, 1.5, 0.3])
    costs, error = fit(work, work @ truth)
    assert np.allclose([costs.c1, costs.c2, costs.c3, costs.c4], truth)
    assert error < 1e-9
    free = work @ np.array([0.02, 0.6, 1.5, 0.0]) - 0.001 * work[:, 3]
    costs, _ = fit(work, free)
    assert costs.c4 == 0.0
    assert costs.c3 == pytest.approx(1.5, rel=0.01)


@pytest.mark.slow
def test_calibration_is_what_plan_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ps2stream.benchmarks import calibrate as bench
    from ps2stream.planner.job import read_costs

    monkeypatch.setattr(bench, "OBJECTS", 2048)
    monkeypatch.setattr(bench, "MIXES", ((500, "q1"), (900, "q2")))
    path = tmp_path / "costs.json"
    found = run("calibrate", "-o", str(path))
    costs = read_costs(str(path))
    assert costs.c1 == found["c1"] >= 0
    assert {"candidates", "objects", "inserts", "deletes"} < set(found["measured"][0])
    assert sum(row["candidates"] for row in found["measured"]) > 0
