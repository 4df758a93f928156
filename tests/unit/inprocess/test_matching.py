"""Matching in this process equals brute force, whatever the objects and queries come in."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import ps2stream
from ps2stream.client.frames import build_batch
from ps2stream.client.requests import Query
from ps2stream.errors import FailedPrecondition, InvalidArgument, Ps2StreamError
from ps2stream.inprocess import processes
from ps2stream.inprocess.match_table import MatchTable
from ps2stream.inprocess.matching import match, match_batches
from ps2stream.space.regions import Circle, Polygon, Rect
from tests import naive
from tests.support.matching import brute_force, shown, some_object, some_query


def pairs(found: MatchTable) -> list[tuple[int, int]]:
    columns = (found.table.column(name).to_pylist() for name in ("object", "query"))
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_matches_are_those_of_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    queries = [some_query(rng, i) for i in range(40)]
    objects = [some_object(rng) for _ in range(60)]
    found = match(queries, objects)
    assert pairs(found) == brute_force(queries, objects)
    table = found.table.to_pylist()
    for row in table:
        assert row["query_id"] == f"q{row['query']}"
        assert row["text"] == objects[row["object"]]["text"]


@pytest.fixture(scope="module")
def world() -> tuple[list[Query], list[dict[str, Any]], list[tuple[int, int]]]:
    rng = random.Random(99)
    queries = [
        Query(f"q{i}", rng.choice(["flood OR river", "flood AND river", "creek"]),
              Rect(rng.randrange(-20, 20), -20, 30, rng.randrange(0, 20)))
        for i in range(30)
    ]  # fmt: skip
    objects = [
        {"lon": rng.uniform(-20, 20), "lat": rng.uniform(-20, 20), "n": rng.randrange(3),
         "text": " ".join(rng.choices(["flood", "river", "creek", "sun"], k=3))}
        for _ in range(300)
    ]  # fmt: skip
    found = brute_force(queries, objects)
    assert found
    return queries, objects, found


def list_object_sources(objects: list[dict[str, Any]], folder: Path) -> Iterator[Any]:
    table = pa.Table.from_pylist(objects)
    yield table
    yield table.to_batches(max_chunksize=7)
    yield iter(table.to_batches(max_chunksize=7))
    yield table.to_pandas()
    yield table.to_pandas().iloc[::1]
    yield table.to_pydict()
    yield objects
    pq.write_table(table, folder / "posts.parquet")
    yield folder / "posts.parquet"
    yield str(folder / "posts.parquet")
    lines = "".join(json.dumps(each) + "\n" for each in objects)
    (folder / "posts.jsonl").write_text(lines)
    yield folder / "posts.jsonl"
    with (folder / "posts.csv").open("w") as file:
        writer = csv.DictWriter(file, list(objects[0]))
        writer.writeheader()
        writer.writerows(objects)
    yield folder / "posts.csv"


def list_query_sources(queries: list[Query], folder: Path) -> Iterator[Any]:
    yield queries
    yield [(q.id, q.expression, q.region) for q in queries]
    records = [{"id": q.id, "expression": q.expression, "region": shown(q.region)} for q in queries]
    yield records
    yield iter(records)
    sides = pa.Table.from_pylist(
        [
            {"id": q.id, "expression": q.expression}
            | {k: float(v) for k, v in shown(q.region).items() if k != "type"}
            for q in queries
        ]
    )
    yield sides
    yield sides.to_pandas()
    as_text = pa.Table.from_pylist([r | {"region": json.dumps(r["region"])} for r in records])
    yield as_text
    pq.write_table(as_text, folder / "queries.parquet")
    yield folder / "queries.parquet"
    (folder / "queries.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    yield str(folder / "queries.jsonl")
    with (folder / "queries.csv").open("w") as file:
        writer = csv.DictWriter(file, sides.schema.names)
        writer.writeheader()
        writer.writerows(sides.to_pylist())
    yield folder / "queries.csv"


def test_every_source_gives_the_same(world: Any, tmp_path: Path) -> None:
    queries, objects, expected = world
    for source in list_object_sources(objects, tmp_path):
        assert pairs(match(queries, source)) == expected, type(source)
    for source in list_query_sources(queries, tmp_path):
        assert pairs(match(source, objects)) == expected, type(source)
    paths = [tmp_path / "posts.parquet", str(tmp_path / "posts.jsonl")]
    twice = expected + [(o + len(objects), q) for o, q in expected]
    assert pairs(match(queries, paths)) == twice


@pytest.mark.parametrize("in_memory", [True, False])
def test_several_processes_give_the_same(
    world: Any, in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, objects, expected = world
    table = pa.Table.from_pylist(objects)
    monkeypatch.setattr("ps2stream.inprocess.object_batches.ROWS", 16)
    source: Any = table if in_memory else iter([table])
    assert pairs(match(queries, source, processes=2)) == expected
    monkeypatch.setattr("ps2stream.inprocess.matching.ALONE", 40)
    monkeypatch.setattr("ps2stream.inprocess.matching.count_processes", lambda: 3)
    source = table if in_memory else iter([table])
    assert pairs(match(queries, source)) == expected


def test_a_process_that_dies_is_told(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    queries, objects, _ = world
    monkeypatch.setattr(processes, "_match_batch", end_process)
    with pytest.raises(Ps2StreamError, match="has died"):
        match(queries, objects, processes=2)


def end_process(task: Any) -> None:
    os._exit(1)


KILLED = """
import itertools, os, signal
import ps2stream
batch = {"lon": [0.0] * 1000, "lat": [0.0] * 1000, "text": ["sun"] * 1000}
found = ps2stream.match_batches([("a", "snow")], itertools.repeat(batch), processes=2)
next(found)
print(os.getpid(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.takes_turns
def test_processes_end_with_the_one_that_forked_them(root: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED],
        cwd=root, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    # Its pipes are held by its processes, too: their ends come only when all have ended.
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_an_error_in_a_process_names_the_object(world: Any) -> None:
    queries, objects, _ = world
    bad = [*objects, {"lon": 1.0, "lat": 91.0, "text": "flood", "n": 1}]
    with pytest.raises(InvalidArgument, match=r"objects\[300\]\.lat.*\[-90, 90\]"):
        match(queries, bad, processes=2)


def test_objects_are_read_as_matches_are_taken(world: Any) -> None:
    queries, objects, _ = world
    table, taken = pa.Table.from_pylist(objects), []

    def parts() -> Iterator[Any]:
        for batch in itertools.cycle(table.to_batches()):
            taken.append(len(batch))
            yield batch

    found = match_batches(queries, parts(), processes=1)
    for _ in range(3):
        batch, rows = next(found)
        assert rows == 300
        assert batch.table.column("object")[0].as_py() >= 0
    assert len(taken) <= 4


MIXED = [
    1,
    "2",
    True,
    None,
    2.5,
    (1 << 53) + 1,
    datetime(2026, 11, 30, 0, 0, 0, 999, UTC),
    "x",
    -0.0,
]


@pytest.mark.parametrize("form", ["list", "columns", "table", "tables"])
def test_types_are_those_of_values_and_not_of_columns(form: str) -> None:
    sources = ["n = 1", "n >= 2", 'n = "2"', "n = true", "n exists", "n != 2.5", "n < 2026-12-01"]
    records: list[dict[str, Any]] = [
        {"lon": 0.0, "lat": 0.0, "text": "x", "n": value} for value in MIXED
    ]
    objects: Any = records
    if form != "list":
        objects = {name: [record[name] for record in records] for name in records[0]}
    if form.startswith("table"):
        objects = pa.Table.from_batches([build_batch(objects)])
        assert pa.types.is_union(objects.schema.field("n").type)
    if form == "tables":  # among others of one type
        objects = iter(
            [objects.slice(0, 5), objects.slice(5), pa.Table.from_pylist([ONE[0] | {"n": 2}])]
        )
        records = [*records, ONE[0] | {"n": 2}]
    found = match([(source, source) for source in sources], objects)
    values = [record["n"] for record in records]
    assert set(pairs(found)) == {
        (o, q)
        for o in range(len(records))
        for q, source in enumerate(sources)
        if naive.satisfied(source, "x", {k: v for k, v in [("n", values[o])] if v is not None})
    }
    texts = dict(zip(found.table["object"].to_pylist(), found.table["n"].to_pylist(), strict=True))
    shown = ["1", "2", "true", None, "2.5", str((1 << 53) + 1), "2026-11-30T00:00:00Z", "x", "-0.0"]
    assert [texts.get(o) for o in range(len(MIXED))] == shown
    kept = {(o, type(v)) for b in found.list_batches() for o, v in zip(*columns_of(b), strict=True)}
    assert {kind for o, kind in kept if o < len(MIXED)} == {type(v) for v in MIXED if v is not None}


def columns_of(batch: pa.RecordBatch) -> tuple[list[int], list[Any]]:
    return batch.column("object").to_pylist(), batch.column("n").to_pylist()


def test_true_beside_a_number_is_none() -> None:
    """Nor a whole number beside a time one, which is what Arrow would make of them."""
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    queries = [("one", "n = 1"), ("true", "n = true"), ("time", f"n = {moment.isoformat()}")]
    for values in ([1.5, True, 1], [moment, True, 1], [moment, np.bool_(True), np.float64(1)]):
        expected = [(1, 1), (2, 0)] if values[0] == 1.5 else [(0, 2), (1, 1), (2, 0)]
        series = pd.Series(values, dtype=object)
        place = {name: [value] * 3 for name, value in ONE[0].items()}
        frame = pd.DataFrame(place).assign(n=series)
        rows = [ONE[0] | {"n": value} for value in values]
        for objects in (rows, place | {"n": values}, place | {"n": series}, frame):
            assert pairs(match(queries, objects)) == expected, objects


def test_a_column_of_pandas_may_have_several_types() -> None:
    columns = {name: pd.Series([value] * 3) for name, value in ONE[0].items()}
    columns["n"] = pd.Series([1, "one", math.nan])
    assert pairs(match([("a", 'n = "one"'), ("b", "n = 1"), ("c", "n exists")], columns)) == [
        (0, 1), (0, 2), (1, 0), (1, 2),
    ]  # fmt: skip


def test_nothing_matches_nothing() -> None:
    queries = [("a", "flood")]
    assert len(match([], [{"lon": 0.0, "lat": 0.0, "text": "flood"}])) == 0
    none: list[Any] = [[], pa.table({"lon": [0.0], "lat": [0.0], "text": ["x"]}).slice(0, 0)]
    for nothing in none:
        found = match(queries, nothing)
        assert len(found) == 0
        assert found.table.schema.names[:3] == ["query", "query_id", "object"]


def test_the_analysis_is_that_of_a_service() -> None:
    objects = [{"lon": 0.0, "lat": 0.0, "text": "the running foxes, café"}]
    queries = [("stem", "fox"), ("plain", "foxes"), ("stop", '"the running"'), ("fold", "cafe")]
    plain = match(queries, objects).table
    assert plain.column("query_id").to_pylist() == ["plain", "stop"]
    found = match(queries, objects, stemmer="english", fold=["accents"]).table
    assert found.column("query_id").to_pylist() == ["stem", "plain", "stop", "fold"]
    with pytest.raises(InvalidArgument, match=r"queries\[0\].*'the' has nothing to search for"):
        match([("stop", "the")], objects, stop_words="en")


def test_columns_of_the_same_names_are_kept() -> None:
    table = pa.table(
        {"id": [7], "query": [5], "object": ["x"], "lon": [0], "lat": [0.0], "text": ["flood"]}
    )
    (row,) = match([("a", "flood"), ("b", "query = 6")], table).table.to_pylist()
    assert row == {
        "query": 0, "query_id": "a", "object": 0, "object_id": "7", "object_query": 5,
        "object_object": "x", "lon": 0.0, "lat": 0.0, "text": "flood",
    }  # fmt: skip


NO_ZONE = datetime(2026, 11, 30)
ONE = [{"lon": 0.0, "lat": 0.0, "text": "flood"}]


@pytest.mark.parametrize(
    ("queries", "objects", "problem"),
    [
        ([("a", "flood AND")], ONE, r"queries\[0\]\.expression"),
        ([("a", "x"), ("", "flood")], ONE, r"queries\[1\]\.id"),
        ([("a", "")], ONE, r"queries\[0\]\.expression: a query needs an expression or a region"),
        ([(None, "flood")], ONE, r"queries\[0\]\.id: is required"),
        ([("a", 5)], ONE, r"queries\[0\]\.expression: expected text, got 5"),
        ([("a", "x", [1, 2])], ONE, r"queries\[0\]\.region"),
        ([("a", "x", '{"rect": [0, 0, 1')], ONE, r"queries\[0\]\.region: expected JSON"),
        ([("a", "x", {"rect": [0, 0, 1]})], ONE, r"queries\[0\]\.region"),
        ([("a", "x", {"rect": [0, 50, 1, 40]})], ONE, r"queries\[0\]\.region.*lat"),
        ([{"id": "a", "expresion": "x"}], ONE, r"queries\[0\]: unknown field 'expresion'"),
        ({"id": ["a"]}, ONE, "queries: expected a table, a path or queries"),
        (pa.table({"id": ["a"], "lon_min": [1.0]}), ONE, "no column lat_min"),
        (pa.table({"expression": ["a"]}), ONE, "no column id"),
        (pa.table({"id": ["a", None], "expression": ["b", "c"]}), ONE, r"queries\[1\]\.id"),
        (pa.table({"id": ["a"], "words": ["b"]}), ONE, "unknown column 'words'"),
        ("nowhere.parquet", ONE, "nowhere.parquet"),
        ([("a", "x")], [{"lon": 0.0, "text": "flood"}], "lat"),
        ([("a", "x")], [*ONE, {"lon": 0.0, "lat": None, "text": "x"}], r"objects\[1\]\.lat"),
        ([("a", "x")], [{"lon": 181.0, "lat": 0.0, "text": "x"}], r"objects\[0\]\.lon.*180"),
        ([("a", "x")], 5, "objects: expected a table"),
        ([("a", "x")], [5], "objects: expected a table.* got a list with 5"),
        ([("a", "x")], pa.table({"lon": ["west"], "lat": [0.0], "text": ["x"]}), "objects.lon"),
        (
            [("a", "x")],
            [ONE[0] | {"n": 1}, ONE[0] | {"n": [1]}],
            r"\[1\]\..*n: expected a nu.*list",
        ),
        (
            [("a", "x")],
            [ONE[0] | {"n": "1"}, ONE[0] | {"n": 1 << 63}],
            r"\[1\]\..*n: 9223.* beyond",
        ),
        (
            [("a", "x")],
            [ONE[0] | {"n": "1"}, ONE[0] | {"n": np.arange(2)}],
            r"objects\[1\]\.attributes\.n: expected a number, .*, got a ndarray",
        ),
        ([("a", "x")], [ONE[0] | {"n": "1"}, ONE[0] | {"n": NO_ZONE}], r"\[1\].*no time zone"),
        (
            [("a", "x")],
            [ONE[0] | {"n": "1"}, ONE[0] | {"n": math.nan}],
            r"objects\[1\]\..*n: .*NaN",
        ),
        ([("a", "x")], [ONE[0] | {"attributes": {"lat": 5}}], "attributes.lat: has the name"),
        ([("a", "x")], [ONE[0] | {"n": 1, "attributes": {"n": 2}}], "objects.attributes.n: has"),
        ([("a", "x")], "nowhere.parquet", "nowhere.parquet"),
    ],
)
def test_what_is_wrong_is_named(queries: Any, objects: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        match(queries, objects)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"processes": 0}, "processes: expected 1 or more, got 0"),
        ({"fold": ["everything"]}, "fold: expected"),
        ({"stemmer": "klingon"}, "stemmer"),
        ({"stop_words": "tlh"}, "stop_words"),
    ],
)
def test_wrong_options_are_named(options: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        match([("a", "x")], ONE, **options)


class Frame(pd.DataFrame):  # type: ignore[misc]
    """What this code needs of a GeoDataFrame; its projection counts in tenths of a degree."""

    _metadata = ("crs",)

    @property
    def __geo_interface__(self) -> Any:
        raise AssertionError("not read")

    @property
    def geometry(self) -> Any:
        return self["geometry"]

    def to_crs(self, code: int) -> Frame:
        assert code == 4326
        smaller = [shapely.transform(area, lambda at: at / 10) for area in self["geometry"]]
        return make_frame(self.drop(columns="geometry"), smaller, None)


def make_frame(columns: Any, geometries: list[Any], crs: str | None) -> Frame:
    frame = Frame(pd.DataFrame(columns))
    frame["geometry"] = geometries
    frame.crs = crs
    return frame


def test_geometries_are_regions() -> None:
    area = shapely.Polygon([(-1, -1), (1, -1), (0, 1)])
    queries = {"id": ["a"], "expression": ["flood"]}
    objects = [{"lon": lon, "lat": lat, "text": "Flood"} for lon, lat in ((0.0, 0.0), (0.9, 0.9))]
    assert pairs(match(make_frame(queries, [area], None), objects)) == [(0, 0)]
    projected = shapely.transform(area, lambda at: at * 10)
    assert pairs(match(make_frame(queries, [projected], "tenths"), objects)) == [(0, 0)]
    assert pairs(match([("a", "flood", area)], objects)) == [(0, 0)]
    assert pairs(match([("a", "", Circle(0.9, 0.9, 5))], objects)) == [(1, 0)]
    assert pairs(match([("a", "", Polygon(area))], objects)) == [(0, 0)]


def test_a_notebook_shows_text_as_text() -> None:
    objects = [{"lon": 0.0, "lat": 0.0, "text": f"<script>{i}</script> flood"} for i in range(20)]
    found = match([("<b>", "flood")], objects)
    html = found._repr_html_()
    assert "20 matches of 1 queries, of which 10 are shown" in html
    assert "<script>" not in html
    assert "&lt;script&gt;0&lt;/script&gt; flood" in html
    assert "<td>&lt;b&gt;</td>" in html
    assert repr(found) == "<20 matches of 1 queries>"
    assert pa.table(found).equals(found.table)
    assert len(found.to_pandas()) == len(found) == 20


def test_the_package_has_it() -> None:
    assert ps2stream.match is match
    assert ps2stream.match_batches is match_batches


def test_a_map_shows_text_as_text() -> None:
    objects = [
        {"lon": 1.5 * i, "lat": 2.0, "text": "</div><script>x</script> flood"} for i in (0, 1)
    ]
    found = match([("<i>a", "flood")], objects)
    page = found.map().get_root().render()
    assert "<script>x" not in page
    assert page.count("&lt;script&gt;x&lt;/script&gt; flood") == 2
    assert page.count("&lt;i&gt;a") == 2
    assert page.count("L.circleMarker(") == 2
    assert found.map(most=1).get_root().render().count("L.circleMarker(") == 1
    with pytest.raises(FailedPrecondition, match="no match to draw"):
        match([("a", "snow")], objects).map()
