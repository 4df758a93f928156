"""examples/python, as a reader would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.client.client import Client
from ps2stream.space.regions import Circle
from tests.support.example_posts import QUERIES, expected, posts


def example(root: Path, name: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(root / "examples" / "python" / f"{name}.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
    )


def said(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out


def test_a_subscriber_and_a_publisher_in_one(root: Path, target: str) -> None:
    out = said(example(root, "first", target))
    assert out.splitlines() == ["thames 1 Flood by the river!", "thames 4 The creek: flood again"]


def counted(process: subprocess.Popen[str], wanted: Counter[str]) -> Counter[str]:
    """The first counts that are no smaller than these."""
    assert process.stdout is not None
    for line in process.stdout:
        counts = Counter(json.loads(line))
        if counts >= wanted:
            return counts
    raise AssertionError(process.communicate()[1])


def test_counts_are_right_however_often_the_counter_is_killed(
    root: Path,
    target: str,
    client: Client,
    tmp_path: Path,
    killed: list[subprocess.Popen[str]],
) -> None:
    for name, (expression, circle) in QUERIES.items():
        client.insert(name, expression, circle and Circle(*circle), session="counting")
    rows = posts(300, seed=1)
    arguments = ("counting", str(tmp_path / "state.db"), "counting", target)
    for begin in range(0, len(rows), 150):
        process = example(root, *arguments)
        killed.append(process)
        for at in range(begin, begin + 150, 5):
            client.publish(rows[at : at + 5])
        counted(process, Counter(query for query, _ in expected(rows[: begin + 75])))
        process.kill()  # in the middle of what is left
        process.wait(60)
    killed.append(process := example(root, *arguments))
    client.publish([last := {"id": "last", "lon": 0.0, "lat": 50.0, "text": "flood creek"}])
    wanted = Counter(query for query, _ in expected([*rows, last]))
    assert counted(process, wanted) == wanted


def test_bulk_by_arrow_brings_every_row(
    root: Path, target: str, client: Client, tmp_path: Path
) -> None:
    rows = [*posts(10_000, seed=2), {"id": "far", "lon": 200.0, "lat": 0.0, "text": "flood"}]
    columns = {name: [row[name] for row in rows] for name in ("id", "lon", "lat", "text")}
    pq.write_table(
        pa.table(columns | {"other": list(range(len(rows)))}), tmp_path / "posts.parquet"
    )
    client.insert("bulk", "storm hail snow", session="bulk")
    out = said(example(root, "bulk", str(tmp_path / "posts.parquet"), target))
    assert out.startswith("accepted 10000, refused 1 rows in ")
    wanted = [r["id"] for r in rows if {"storm", "hail", "snow"} <= set(str(r["text"]).split())]
    found: list[str] = []
    with client.subscribe("bulk") as matches:
        for match in matches:
            found.append(match.object_id)
            if len(found) == len(wanted):
                break
    assert sorted(found) == sorted(wanted)
