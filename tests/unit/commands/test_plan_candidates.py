"""Options with several values, and the candidates that they make."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from ps2stream.cli import main
from ps2stream.commands.output import FiniteRange
from ps2stream.commands.plan_candidates import (
    ALGORITHMS,
    CandidateValues,
    list_candidates,
    parse_list,
)
from ps2stream.planner.algorithms import ALGORITHMS as KNOWN
from ps2stream.planner.algorithms import AUTO, BY_SIMILARITY
from ps2stream.planner.job import PlanJob
from ps2stream.planner.partition import PartitionOptions
from ps2stream.routing.plan_file import load_plan
from ps2stream.space.grid import Grid


def plan(folder: Path, *options: str) -> Result:
    objects, queries = folder / "o.jsonl", folder / "q.jsonl"
    rows = [{"text": f"flood w{i % 7}", "lon": i % 50, "lat": i % 31} for i in range(300)]
    objects.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [{"id": f"{i}", "expression": f"w{i % 7}", "region": {"circle": [i, i % 31, 300]}}
             for i in range(40)]  # fmt: skip
    queries.write_text("".join(json.dumps(row) + "\n" for row in asked))
    given = ["plan", "--engine", "numpy", "--objects", str(objects), "--queries", str(queries)]
    return CliRunner().invoke(main, [*given, "-o", str(folder / "plan.json"), *options])


def test_values_are_read_in_their_order_and_refused_as_one_would_be() -> None:
    context = click.Context(main)
    param = click.Option(["--some"])
    numbers = parse_list(FiniteRange(0, 1))
    assert numbers(context, param, "0.5,0,1") == (0.5, 0.0, 1.0)
    assert parse_list(click.Choice(["a", "b"]))(context, param, "b") == ("b",)
    for wrong in ("", "0.5,", "2", "nan", "0.5,0.50", "a"):
        with pytest.raises(click.BadParameter):
            numbers(context, param, wrong)


def test_each_value_makes_a_candidate_where_it_is_heeded() -> None:
    assert tuple(KNOWN) == ALGORITHMS
    job = PlanJob(grid=Grid(5, 4), options=PartitionOptions(sigma=1.5))
    values = CandidateValues(
        ("kdtree", "auto", "hybrid"), (0.3, 0.5), (0.02,), (0, 9), ("auto", "queries", "refine")
    )
    found = list_candidates(job, values)
    names = ["kdtree", *AUTO]
    per_grid = sum(4 if name in BY_SIMILARITY else 1 for name in names)
    assert len(found) == 3 * per_grid == len({str(one) for one in found})
    assert {one.algorithm for one in found} == set(names)
    assert all(one.options.sigma == 1.5 for one in found)
    kept = {(one.grid, one.refine) for one in found}
    assert kept == {(Grid(5, 4), False), (None, False), (Grid(5, 4), True)}
    alone = CandidateValues(("hybrid",), (0.5,), (0.02,), (0,), ("auto", "refine"))
    assert [one.refine for one in list_candidates(PlanJob(), alone)] == [True]


@pytest.mark.takes_turns
def test_the_candidates_are_shown_and_the_plan_is_that_of_the_best(tmp_path: Path) -> None:
    options = ("--algorithm", "hash,hybrid-paper,hybrid", "--delta", "0.2,0.7")
    done = plan(tmp_path, *options, "--json")
    assert done.exit_code == 0, done.output
    listed = json.loads(done.stdout)["candidates"]
    assert len(listed) == 5
    (best,) = [one for one in listed if one["chosen"]]
    assert best["slowest"] == min(one["slowest"] for one in listed)
    together = (tmp_path / "plan.json").read_bytes()
    found = load_plan(tmp_path / "plan.json").made
    assert found["algorithm"] == best["algorithm"]
    alone = plan(tmp_path, "--algorithm", best["algorithm"], "--delta", str(best["delta"]))
    assert alone.exit_code == 0
    assert (tmp_path / "plan.json").read_bytes() == together
    shown = plan(tmp_path, *options).stdout.splitlines()
    assert "slowest" in shown[0]
    (marked,) = [line for line in shown[1:6] if line.startswith("*")]
    assert marked.split()[1] == best["algorithm"]
    assert shown[6] == ""


def test_more_candidates_than_the_limit_are_refused(tmp_path: Path) -> None:
    deltas = ",".join(f"0.{i:02}" for i in range(65))
    done = plan(tmp_path, "--delta", deltas)
    assert done.exit_code != 0
    assert "expected 1 to 64, got 65" in done.stderr
    assert not (tmp_path / "plan.json").exists()
