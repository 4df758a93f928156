"""`ps2stream match`: files in, a file out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from ps2stream.cli import main

QUERIES = [
    {"id": "a", "expression": "flood", "region": {"rect": [-1, -1, 1, 1]}},
    {"id": "b", "expression": "n >= 2", "region": None},
]
OBJECTS = [
    {"id": "x", "lon": 0.0, "lat": 0.0, "text": "Flood", "n": 1},
    {"id": "y", "lon": 5.0, "lat": 0.0, "text": "flood", "n": 2},
    {"id": "z", "lon": 0.0, "lat": 0.5, "text": "sun", "n": 0},
]
FOUND = [
    {"query": 0, "query_id": "a", "object": 0, "object_id": "x"},
    {"query": 1, "query_id": "b", "object": 1, "object_id": "y"},
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, records in (("queries", QUERIES), ("posts", OBJECTS)):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (tmp_path / f"{name}.jsonl").write_text(text)
    return tmp_path


def run(folder: Path, *more: str, out: str = "matches.parquet") -> Result:
    files = ["--queries", f"{folder}/queries.jsonl", "--objects", f"{folder}/posts.jsonl"]
    return CliRunner().invoke(main, ["match", *files, "-o", f"{folder}/{out}", *more])


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()  # type: ignore[no-any-return]
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    with path.open() as file:
        return [
            {k: int(v) if k in ("query", "object") else v for k, v in row.items()}
            for row in csv.DictReader(file)
        ]


@pytest.mark.parametrize("out", ["m.parquet", "m.jsonl", "m.csv"])
def test_matches_are_written(files: Path, out: str) -> None:
    done = run(files, "--json", out=out)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["objects"], told["matches"], told["output"]) == (3, 2, f"{files}/{out}")
    rows = read(files / out)
    assert [{name: row[name] for name in FOUND[0]} for row in rows] == FOUND
    assert [row["text"] for row in rows] == ["Flood", "flood"]
    assert not list(files.glob("*.part"))


def test_a_run_that_fails_leaves_the_file_as_it_was(files: Path) -> None:
    (files / "matches.parquet").write_text("before")
    with (files / "posts.jsonl").open("a") as file:
        file.write('{"lon": 0, "lat": 95, "text": "x"}\n')
    done = run(files)
    assert done.exit_code == 2
    assert "posts.jsonl:4 lat" in done.stderr
    assert (files / "matches.parquet").read_text() == "before"
    assert not list(files.glob("*.part"))


@pytest.mark.parametrize(
    ("more", "out", "problem"),
    [
        ((), "m.txt", "expected a name that ends in .parquet, .jsonl, .csv"),
        ((), "no/m.parquet", "its folder does not exist"),
        (("--attributes", "size"), "m.csv", "size"),
        (("--processes", "0"), "m.csv", "--processes"),
    ],
)
def test_what_cannot_be_is_refused(
    files: Path, more: tuple[str, ...], out: str, problem: str
) -> None:
    done = run(files, *more, out=out)
    if out == "m.csv" and "size" in problem:
        assert done.exit_code == 0  # nothing has it; the others stay as they are
        return
    assert done.exit_code == 2
    assert problem in done.stderr
