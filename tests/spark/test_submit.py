"""The job as `spark-submit` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_options import SETTINGS, submit_options

pytestmark = pytest.mark.spark


def test_spark_submit_runs_the_same_job(root: Path, tmp_path: Path) -> None:
    objects, queries = tmp_path / "o.jsonl", tmp_path / "q.jsonl"
    rows = [
        {"text": ["flood", "a river"][i % 2], "lon": 8 + i / 9, "lat": 47.4, "time": i}
        for i in range(60)
    ]
    objects.write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries.write_text('{"id": "a", "expression": "flood", "region": {"rect": [8, 47, 12, 48]}}\n')
    common = ["plan", "--objects", str(objects), "--queries", str(queries), "--workers", "2"]
    submit = [str(Path(sys.executable).with_name("spark-submit")), *submit_options(SETTINGS)]
    program = root / "ps2stream" / "__main__.py"
    environment = os.environ | {"PYTHONPATH": str(root), "PYSPARK_PYTHON": sys.executable}
    environment.pop("SPARK_HOME", None)
    found = {}
    for name, command in (
        ("numpy", [sys.executable, "-m", "ps2stream", *common, "--engine", "numpy"]),
        ("spark", [*submit, "--master", "local[2]", str(program), *common]),
    ):
        path = tmp_path / f"{name}.json"
        done = subprocess.run(
            [*command, "--json", "-o", str(path)],
            capture_output=True, check=False, text=True, cwd=tmp_path, env=environment,
            timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        assert told[-1]["plan"] == str(path)
        assert ("collected" in told[-1]) == (name == "spark")
        found[name] = path.read_bytes()
    assert found["numpy"] == found["spark"]
