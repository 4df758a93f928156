"""The planning job by its command: what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ps2stream.cli import main
from ps2stream.errors import InvalidArgument, PlanError
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.job import PlanJob, plan_of, read_costs, run, sample_of
from ps2stream.planner.partition import PartitionOptions, predicted, to_plan
from ps2stream.routing.costs import Costs
from ps2stream.routing.plan_file import load_plan, save_plan
from tests.support.samples import batch, some_sample


def planned(folder: Path, *options: str) -> Result:
    objects = folder / "objects.jsonl"
    objects.write_text('{"text": "flood", "lon": 8.5, "lat": 47.4}\n')
    given = [
        "plan",
        "--engine",
        "numpy",
        "--algorithm",
        "hybrid+",
        "--objects",
        str(objects),
        *options,
    ]
    return CliRunner().invoke(main, given)


def refuse(name: str) -> Any:
    raise AssertionError(f"{name} is not JSON")


def test_a_plan_without_load_is_json_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    done = planned(tmp_path, "-o", str(path), "--json")
    assert done.exit_code == 0, done.output
    for text in (done.stdout, path.read_text()):
        json.loads(text, parse_constant=refuse)
    told = json.loads(done.stdout)
    assert told["predicted"]["balance"] is None
    assert any("no queries" in line for line in told["warnings"])
    assert any("a worker has no load" in line for line in told["warnings"])
    shown = planned(tmp_path, "-o", str(path)).stdout
    assert "slowest over fastest infinite" in shown


def test_a_plan_tells_its_salt_apart_and_serves_under_any(tmp_path: Path) -> None:
    rows = [
        {"text": f"flood {w}", "lon": 8.5 + i, "lat": 47.4}
        for i, w in enumerate(("river", "雨", "storm"))
    ]
    objects, queries = tmp_path / "o.jsonl", tmp_path / "q.jsonl"
    objects.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    queries.write_text('{"id": "a", "expression": "flood AND river"}\n', "utf-8")
    marks = []
    for salt in (0, 7):
        job = PlanJob([str(objects)], [str(queries)], workers=2, salt=salt, engine="numpy")
        plan, path = run(job), tmp_path / f"{salt}.json"
        save_plan(plan, path)
        assert "salt" not in json.loads(path.read_text())["plan"]["analysis"]
        for service in (Analysis(salt=99), Analysis(salt=7)):
            loaded = load_plan(path, service)
            assert loaded.made["salt"] == plan.made["salt"]
            loaded.compile(Analyzer(service))
        marks.append(plan.made["salt"])
        path.write_text(path.read_text().replace(plan.made["salt"], "01234567"))
        with pytest.raises(PlanError, match="checksum"):
            load_plan(path)
    assert marks == [Analysis(0).salt_mark(), Analysis(7).salt_mark()]
    assert marks[0] != marks[1]


@pytest.mark.takes_turns
def test_an_unmet_sigma_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"id": "a", "expression": "flood", "region": {"circle": [8.5, 47.4, 5]}}\n')
    for algorithm in ("hybrid", "hybrid+", "kdtree"):
        done = planned(
            tmp_path, "--queries", str(path), "--algorithm", algorithm,
            "-o", str(tmp_path / "p.json"), "--json",
        )  # fmt: skip
        warnings = json.loads(done.stdout)["warnings"]
        assert sum("sigma" in line for line in warnings) == 1, warnings


@pytest.mark.parametrize("name", ["none/plan.json", "."])
def test_a_plan_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    done = planned(tmp_path, "-o", str(tmp_path / name))
    assert done.exit_code == 2
    assert "--output: cannot write" in done.stderr
    done = CliRunner().invoke(main, ["calibrate", "-o", str(tmp_path / name)])
    assert done.exit_code == 2
    assert "--output: cannot write" in done.stderr


def test_an_unknown_algorithm_is_refused_before_anything_is_read() -> None:
    with pytest.raises(PlanError, match="algorithm: expected one of hash, frequency"):
        sample_of(PlanJob(["/none.csv"], algorithm="best", engine="numpy"))


@pytest.mark.parametrize("algorithm", ["kdtree", "frequency"])
def test_a_plan_says_how_it_was_made(algorithm: str) -> None:
    objects, rows = some_sample(2)
    options = PartitionOptions(sigma=1.01, seed=5)
    job = PlanJob(posts=[objects], updates=[batch(rows)], workers=3, algorithm=algorithm,
                  options=options, engine="numpy")  # fmt: skip
    sample = sample_of(job)
    plan = plan_of(sample, job)
    partition = ALGORITHMS[algorithm](sample.stats, 3, options)
    bare = to_plan(partition, sample.stats, 3, job.analysis, sample.frequencies)
    assert (plan.leaves, plan.cells.tolist()) == (bare.leaves, bare.cells.tolist())
    found = predicted(partition, sample.stats, 3, options, Analyzer(job.analysis))
    made = plan.made
    assert made["predicted"]["loads"] == found["loads"]
    assert (made["algorithm"], made["options"]["seed"]) == (algorithm, 5)
    assert made["options"]["theta"] == 48
    assert made["sample"]["objects"] == 400
    assert made["sample"]["units"] == sample.stats.units
    assert any("sigma is 1.01" in line for line in made["warnings"])
    assert any(line.startswith(f"{sample.coarse} of {sample.live}") for line in made["warnings"])
    assert "tree" in made


def test_costs_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text('{"c1": 1, "c2": 0.5, "c3": 0, "c4": 2e3, "measured": []}')
    assert read_costs(str(path)) == Costs(1.0, 0.5, 0.0, 2000.0)


@pytest.mark.parametrize(
    "text",
    ["{", '{"c1": 1}', "[]", '{"c1": 1, "c2": 1, "c3": -1, "c4": 1}',
     '{"c1": 1e7, "c2": 1, "c3": 1, "c4": 1}', '{"c1": true, "c2": 1, "c3": 1, "c4": 1}',
     '{"c1": NaN, "c2": 1, "c3": 1, "c4": 1}'],
)  # fmt: skip
def test_costs_that_are_no_costs_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    path.write_text(text)
    with pytest.raises(InvalidArgument, match=r"numbers from 0 to 1e\+06 \(microseconds\)"):
        read_costs(str(path))
    with pytest.raises(InvalidArgument, match="cannot read it: No such file"):
        read_costs(str(tmp_path / "none.json"))
