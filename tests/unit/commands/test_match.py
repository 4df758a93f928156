"""`ps2stream match`: files in, a file out."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
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


@pytest.mark.parametrize("out", ["m.parquet", "m.jsonl"])
def test_more_attributes_than_a_table_has_columns(files: Path, out: str) -> None:
    posts = [OBJECTS[1] | {f"a{i}": i} for i in range(1100)]
    (files / "posts.jsonl").write_text("".join(json.dumps(post) + "\n" for post in posts))
    done = run(files, out=out)
    if out == "m.jsonl":
        assert [row[f"a{i}"] for i, row in enumerate(read(files / out))] == list(range(1100))
        return
    assert done.exit_code == 2
    some = (
        "some objects lack a0, a1, a10, a100, a1000 and 1,095 more, which others have: write .jso"
    )
    assert some in done.stderr


@pytest.mark.parametrize("out", ["m.parquet", "m.csv", "m.jsonl"])
def test_values_of_several_types_in_one_file(files: Path, out: str) -> None:
    (files / "queries.jsonl").write_text('{"id": "a", "expression": "flood AND n exists"}\n')
    values = [1, "1", True, 2.5]
    rows = [{"lon": 0.0, "lat": 0.0, "text": "flood", "n": value} for value in values]
    (files / "posts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run(files, out=out)
    assert done.exit_code == 0, done.output
    found = [row["n"] for row in read(files / out)]
    assert found == (values if out == "m.jsonl" else ["1", "1", "true", "2.5"])


@pytest.mark.parametrize("out", ["m.parquet", "m.csv", "m.jsonl"])
@pytest.mark.parametrize(
    ("first", "later", "kinds"),
    [(2, 2.5, "int64"), (2.5, 2, ""), (2, "2", "int64"), ("2", 2, "string"), (True, 2, "bool"),
     (2.5, 2**53 + 1, "double"), (2.5, "2", "double"), (2, 3, "")],
)  # fmt: skip
def test_later_files_keep_the_types_of_values_or_are_refused_by_name(
    files: Path, first: Any, later: Any, kinds: str, out: str
) -> None:
    (files / "queries.jsonl").write_text('{"id": "a", "expression": "flood"}\n')
    for name, value in (("posts", first), ("more", later)):
        row = {"lon": 0.0, "lat": 0.0, "text": "flood", "n": value}
        (files / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    done = run(files, "--objects", f"{files}/more.jsonl", out=out)
    if kinds and out != "m.jsonl":
        assert done.exit_code == 2
        assert f"n is {kinds} in some objects and " in " ".join(done.stderr.split())
        assert not (files / out).exists()
        return
    assert done.exit_code == 0, done.output
    found = [row["n"] for row in read(files / out)]
    if out == "m.csv":
        found = [float(value) for value in found]
    assert found == [first, later]


OF_ONE_KIND = {
    "text": (pa.string(), pa.large_string()),
    "k": (pa.string(), pa.large_string()),
    "n": (pa.int8(), pa.int64()),
    "f": (pa.float64(), pa.int32()),
    "none": (pa.int64(), pa.null()),
}
VALUES = {"text": "flood", "k": "v", "n": 1, "f": 2, "none": None}


@pytest.mark.parametrize("out", ["m.parquet", "m.csv"])
def test_files_whose_types_are_of_one_kind_are_written_together(files: Path, out: str) -> None:
    (files / "queries.jsonl").write_text('{"id": "a", "expression": "flood"}\n')
    more = list[str]()
    for number in (0, 1):
        columns = {
            name: pa.array([VALUES[name]], kinds[number]) for name, kinds in OF_ONE_KIND.items()
        }
        moment = pa.array([0], pa.timestamp("ms" if number == 0 else "s"))
        place = {"lon": pa.array([0.0]), "lat": pa.array([0.0]), "at": moment}
        pq.write_table(pa.table(place | columns), files / f"{number}.parquet")
        more += ["--objects", f"{files}/{number}.parquet"]
    (files / "posts.jsonl").unlink()
    run_files = ["match", "--queries", f"{files}/queries.jsonl", *more, "-o", f"{files}/{out}"]
    done = CliRunner().invoke(main, run_files)
    assert done.exit_code == 0, done.output
    first, second = read(files / out)
    assert first | {"object": 1} == second


@pytest.mark.parametrize(
    ("first", "later"), [(pa.float32(), pa.float64()), (pa.int8(), pa.int64())], ids=str
)
def test_a_value_that_the_first_type_does_not_hold_is_refused(
    files: Path, first: pa.DataType, later: pa.DataType
) -> None:
    (files / "queries.jsonl").write_text('{"id": "a", "expression": "flood"}\n')
    place = {"lon": [0.0], "lat": [0.0], "text": ["flood"]}
    for name, value, kind in (("0", 1, first), ("1", 300.1, later)):
        column = pa.array([int(value) if pa.types.is_integer(kind) else value], kind)
        pq.write_table(pa.table(place | {"n": column}), files / f"{name}.parquet")
    names = [f"--objects={files}/{name}.parquet" for name in ("0", "1")]
    words = ["match", f"--queries={files}/queries.jsonl", *names, "-o", f"{files}/m.parquet"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2
    assert f"n is {first} in some objects and {later} in others" in " ".join(done.stderr.split())
