"""The job as `spark-submit` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ps2stream.client.client import Client
from tests.support.spark_options import SETTINGS, submit_options

pytestmark = pytest.mark.spark


def submitted(root: Path) -> list[str]:
    """The program under spark-submit."""
    submit = [str(Path(sys.executable).with_name("spark-submit")), *submit_options(SETTINGS)]
    return [*submit, "--master", "local[2]", str(root / "ps2stream" / "__main__.py")]


def run(command: list[str], root: Path, folder: Path) -> list[dict[str, Any]]:
    """Runs a command in a folder; the JSON that it prints."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYSPARK_PYTHON": sys.executable}
    environment.pop("SPARK_HOME", None)
    done = subprocess.run(
        command, capture_output=True, check=False, text=True, cwd=folder, env=environment,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.repeats(
    "tests/spark/test_twins.py", "tests/spark/test_submit.py::test_spark_submit_runs_a_pipeline"
)
def test_spark_submit_runs_the_same_job(root: Path, tmp_path: Path) -> None:
    objects, queries = tmp_path / "o.jsonl", tmp_path / "q.jsonl"
    rows = [
        {"text": ["flood", "a river"][i % 2], "lon": 8 + i / 9, "lat": 47.4, "time": i}
        for i in range(60)
    ]
    objects.write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries.write_text('{"id": "a", "expression": "flood", "region": {"rect": [8, 47, 12, 48]}}\n')
    common = ["plan", "--objects", str(objects), "--queries", str(queries), "--workers", "2"]
    found = {}
    for name, command in (
        ("numpy", [sys.executable, "-m", "ps2stream", *common, "--engine", "numpy"]),
        ("spark", [*submitted(root), *common]),
    ):
        path = tmp_path / f"{name}.json"
        told = run([*command, "--json", "-o", str(path)], root, tmp_path)
        assert told[-1]["plan"] == str(path)
        assert ("collected" in told[-1]) == (name == "spark")
        found[name] = path.read_bytes()
    assert found["numpy"] == found["spark"]


@pytest.mark.takes_turns(1)
def test_spark_submit_runs_a_pipeline(
    root: Path, tmp_path: Path, target: str, client: Client
) -> None:
    client.insert("submitted", "flood", session="submitted")
    (tmp_path / "posts").mkdir()
    rows = [{"x": i, "lat": 1, "text": "flood", "id": str(i)} for i in range(3)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "posts" / "a.json").write_text(lines)
    (tmp_path / "feed.toml").write_text("""
checkpoint = "position"
trigger = "once"
[source]
format = "json"
path = "posts"
schema = "x DOUBLE, lat DOUBLE, text STRING, id STRING"
[posts]
lon = "x"
where = "x < 2"
""")
    words = ["pipeline", "feed.toml", "--server", target, "--partitions", "1", "--json"]
    told = run([*submitted(root), *words], root, tmp_path)
    assert [line["event"] for line in told if line["event"] != "status"] == ["ready", "stopped"]
    assert {k: told[-1][k] for k in ("done", "bad", "batches")} == {
        "done": 2,
        "bad": 0,
        "batches": 1,
    }
    with client.subscribe("submitted") as matches:
        assert {next(matches).object_id for _ in range(2)} == {"0", "1"}
