"""The planning job by its command: what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ps2stream.cli import main


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


@pytest.mark.parametrize("name", ["none/plan.json", "."])
def test_a_plan_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    done = planned(tmp_path, "-o", str(tmp_path / name))
    assert done.exit_code == 2
    assert "--output: cannot write" in done.stderr
