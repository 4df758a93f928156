"""Files of posts: each format gives the same rows, each defect names its place."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.errors import InvalidArgument
from ps2stream.posts.arrow_columns import SCHEMA
from ps2stream.posts.readers import (
    MAX_LINE,
    PART_BYTES,
    check_query,
    read_feature,
    read_posts,
    read_queries,
    read_rows,
    row_count,
)

ROWS: list[dict[str, Any]] = [
    {"id": "a", "time": 1000, "lon": 8.5, "lat": 47.25, "text": "flood, river"},
    {"id": "b", "time": 2000, "lon": -180.0, "lat": 90.0, "text": "Zürich 🌊"},
    {"id": "c", "time": None, "lon": 180.0, "lat": -90.0, "text": ""},
]


def rows(path: str, **options: Any) -> list[dict[str, Any]]:
    return [row for part in read_posts(path, **options) for row in part.to_pylist()]


def write(path: Path, text: str) -> str:
    path.write_text(text, "utf-8")
    return str(path)


def error(path: str, **options: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        rows(path, **options)
    return str(caught.value)


def test_formats_agree(tmp_path: Path) -> None:
    lines = write(tmp_path / "x.jsonl", "\n".join(json.dumps(r) for r in ROWS) + "\n\n")
    table = write(
        tmp_path / "x.csv",
        'time,latitude,longitude,text,id\n1000,47.25,8.5,"flood, river",a\n'
        "2000,90,-180,Zürich 🌊,b\n,-90,180,,c\n",
    )
    parquet = str(tmp_path / "x.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS, schema=SCHEMA), parquet)
    for path in (lines, table, parquet):
        assert rows(path, batch=2) == ROWS, path
        assert list(map(len, read_rows(path, batch=2))) == [2, 1]
        assert [row for part in read_rows(path) for row in part] == ROWS
        assert all(part.schema == SCHEMA for part in read_posts(path))
    assert row_count(parquet) == 3
    assert row_count(lines) is None


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind, raw in {"jsonl": json.dumps(ROWS[0]), "csv": "text,lat,lon\nhi,1,2\n"}.items():
        stdin = SimpleNamespace(buffer=io.BytesIO(raw.encode()))
        monkeypatch.setattr("sys.stdin", stdin)
        assert len(rows("-", format=kind)) == 1
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS, schema=SCHEMA), sink)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(sink.getvalue())))
    assert rows("-", format="parquet") == ROWS


def test_absent_ids_are_row_numbers_and_times_are_understood(tmp_path: Path) -> None:
    post: dict[str, Any] = {"lat": 1, "lng": 2, "text": "x"}
    times = ["1970-01-01T00:00:02Z", "1970-01-01T01:00:02+01:00", "1970-01-01 00:00:02", 2000]
    path = write(tmp_path / "x.jsonl", "\n".join(json.dumps(post | {"ts": t}) for t in times))
    got = rows(path, batch=3)
    assert [r["id"] for r in got] == ["0", "1", "2", "3"]
    assert {r["time"] for r in got} == {2000}


def test_absent_ids_of_a_run_are_its_own(tmp_path: Path) -> None:
    post = {"lat": 1.0, "lon": 2.0, "text": "x"}
    lines = write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, [post] * 3 + [post | {"id": 7}])))
    parquet = str(tmp_path / "x.parquet")
    pq.write_table(pa.Table.from_pylist([post] * 3), parquet)
    for path, more in ((lines, ["7"]), (parquet, [])):
        parts = read_posts(path, batch=2, run="ab-")
        found = [row["id"] for part in parts for row in part.to_pylist()]
        assert found == ["ab-0", "ab-1", "ab-2", *more]


def test_parquet_timestamps_of_any_unit(tmp_path: Path) -> None:
    for unit, value in {"s": 2, "ms": 2000, "us": 2_000_000, "ns": 2_000_000_000}.items():
        path = str(tmp_path / f"{unit}.parquet")
        columns = {
            "ts": pa.array([value, None], pa.timestamp(unit)),
            "lat": [1.0, 1.0],
            "lon": [2, 2],
            "text": pa.array(["x", "y"]).dictionary_encode(),
        }
        pq.write_table(pa.table(columns), path)
        assert [r["time"] for r in rows(path)] == [2000, None]


def test_lone_surrogates_become_replacement_characters(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"lat": 1, "lon": 2, "text": "a\\ud800b"}')
    assert rows(path)[0]["text"].startswith("a�")


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"lat": 91}, "2 lat: expected degrees in [-90, 90], got 91"),
        ({"lat": float("nan")}, "2 lat: NaN is not a number of JSON"),
        ({"lon": float("-inf")}, "2 lon: -Infinity is not a number of JSON"),
        ({"lon": "east"}, "2 lon: expected degrees in [-180, 180], got 'east'"),
        ({"lon": None}, "2 lon: expected degrees in [-180, 180], got null"),
        ({"lon": True}, "2 lon: expected degrees in [-180, 180], got true"),
        ({"text": 5}, "2 text: expected a string, got 5"),
        ({"text": None}, "2 text: expected a string, got null"),
        ({"id": [1]}, "2 id: expected a string or an integer, got [1]"),
        ({"time": "noon"}, "2 time: expected Unix milliseconds or an ISO 8601 time, got 'noon'"),
        ({"time": 1.5}, "2 time: expected Unix milliseconds or an ISO 8601 time, got 1.5"),
    ],
)
def test_bad_json_values(tmp_path: Path, change: dict[str, Any], wanted: str) -> None:
    lines = json.dumps(ROWS[0]) + "\n" + json.dumps(ROWS[0] | change)
    path = write(tmp_path / "x.jsonl", lines)
    assert error(path) == f"{path}:{wanted}"


def test_bad_json_lines(tmp_path: Path) -> None:
    assert error(write(tmp_path / "y.jsonl", "[1]")).endswith(
        "y.jsonl:1: expected a JSON object, got [1]"
    )
    assert "z.jsonl:1: expected one JSON object per line" in error(write(tmp_path / "z.jsonl", "{"))
    deep = write(tmp_path / "deep.jsonl", "[" * 100_000)
    assert "deep.jsonl:1: expected one JSON object per line" in error(deep)
    large = error(write(tmp_path / "large.jsonl", '{"text": "x", "mag": -1e400}'))
    assert "large.jsonl:1 mag: '-1e400' is beyond the numbers of 64 bits" in large


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_lacks_are_refused_by_line_and_member(
    tmp_path: Path, number: str
) -> None:
    good = '{"lon": 1, "lat": 2, "text": "NaN"}\n'
    for record, member in (
        (f'{{"lon": {number}, "lat": 2, "text": "x"}}', "lon"),
        (
            f'{{"text": "x", "attributes": {{"mag": {number}}}}}',
            "attributes.mag",
        ),
        (f'{{"lon": 1, "lat": 2, "text": "x", "payload": [1, [{number}]]}}', "payload[1][0]"),
        (f'{{"lon": 1, "lat": 2, "text": "x", "other": {number}}}', "other"),
    ):
        path = write(tmp_path / "x.jsonl", good + record)
        assert error(path) == f"{path}:2 {member}: {number} is not a number of JSON"
    path = write(tmp_path / "y.jsonl", f"{good}{number}")
    assert error(path) == f"{path}:2: {number} is not a number of JSON"
    assert sum(map(len, read_rows(write(tmp_path / "z.jsonl", good)))) == 1


PLACES = {
    "properties": "properties.mag",
    "geometry": "geometry.coordinates[2]",
    "id": "id",
    "nested": "properties.mag.a[1]",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("number", "problem"),
    [
        ("-1e400", "'-1e400' is beyond the numbers of 64 bits"),
        ("-Infinity", "-Infinity is not a number of JSON"),
    ],
)
def test_a_number_of_geojson_that_would_be_infinite_is_named(
    tmp_path: Path, place: str, number: str, problem: str
) -> None:
    one = {
        "type": "Feature",
        "id": 7,
        "geometry": {"type": "Point", "coordinates": [1.5, 2]},
        "properties": {"text": "x", "mag": 4.5},
    }
    bad: dict[str, Any] = json.loads(json.dumps(one))
    if place == "geometry":
        bad["geometry"]["coordinates"].append("FAR")
    elif place == "id":
        bad["id"] = "FAR"
    else:
        bad["properties"]["mag"] = {"a": [1, "FAR"]} if place == "nested" else "FAR"
    text = json.dumps({"type": "FeatureCollection", "features": [one, bad, one]})
    path = write(tmp_path / "x.geojson", text.replace('"FAR"', number))
    assert error(path) == f"{path} feature 1 {PLACES[place]}: {problem}"
    path = write(tmp_path / "y.geojson", text.replace('"FAR"', "-3"))
    assert sum(map(len, read_rows(path))) == 3


def test_what_a_feature_has_beside_its_properties_becomes_attributes() -> None:
    feature = {
        "type": "Feature",
        "id": 7,
        "bbox": [1, 2, 1, 2],
        "geometry": {"type": "Point", "coordinates": [1.5, 2]},
        "mag": 3,
        "net": "us",
        "properties": {"text": "x", "mag": 4.5},
    }
    record = read_feature("here", feature)
    assert record == {"id": 7, "lon": 1.5, "lat": 2, "text": "x", "mag": 4.5, "net": "us"}


def test_bad_csv(tmp_path: Path) -> None:
    head = "text,lat,lon\n"
    missing = write(tmp_path / "a.csv", "text,lat\nx,1\n")
    assert error(missing) == (
        f"{missing}:1: expected a column lon or lng or longitude; there are: text, lat"
    )
    ragged = write(tmp_path / "b.csv", head + "x,1,2\nx,1\n")
    assert error(ragged) == f"{ragged}:3: expected 3 fields as in the header, got 2"
    word = write(tmp_path / "c.csv", head + '"two\nlines",1,2\nx,one,2\n')
    assert error(word) == f"{word}:4 lat: expected degrees in [-90, 90], got 'one'"
    latin = tmp_path / "d.csv"
    latin.write_bytes(head.encode() + b"z\xfcrich,1,2\n")
    assert f"{latin}:2: expected UTF-8" in error(str(latin))
    twice = write(tmp_path / "f.csv", "lat,lat,lon,text\n1,2,3,x\n")
    assert error(twice) == f"{twice}:1: expected one column lat, got 2"
    open_ = write(tmp_path / "g.csv", head + 'x,1,2\n"never closed,1,2\n')
    assert error(open_).startswith(f"{open_}:3: expected CSV")
    for row, name in (
        ("1,2,x," + "9" * 25, "time"),
        ("1,2,x,-9223372036854775809", "time"),
        ("1_0,2,x,0", "lat"),
    ):
        path = write(tmp_path / "h.csv", f"lat,lon,text,time\n{row}\n")
        assert f"{path}:2 {name}: expected" in error(path)
    assert "expected a column" in error(write(tmp_path / "e.csv", ""))


def test_bad_parquet(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    good: dict[str, Any] = {"lat": [1.0, 2.0], "lon": [1.0, 2.0], "text": ["a", "b"]}
    cases: list[tuple[dict[str, Any], str]] = [
        ({"lat": ["n", "s"]}, "column lat: expected numbers, got string"),
        ({"text": [1, 2]}, "column text: expected strings, got int64"),
        (
            {"ts": ["noon", "one"]},
            "column ts: expected timestamps or integers (Unix ms), got string",
        ),
        ({"lon": [0.0, 181.0]}, "row 1 lon: expected degrees in [-180, 180], got 181.0"),
        ({"lat": [0.0, float("nan")]}, "row 1 lat: expected degrees in [-90, 90], got nan"),
        ({"lat": [None, 1.0]}, "row 0 lat: expected degrees in [-90, 90], got null"),
        ({"text": ["a", None]}, "row 1 text: expected a value, got null"),
    ]
    for change, wanted in cases:
        pq.write_table(pa.table(good | change), path)
        assert error(path) == f"{path} {wanted}"
    pq.write_table(pa.table(good | {"text": ["a", "x" * 65_537]}), path)
    assert "row 1 text: expected at most 65536 bytes, got 'x" in error(path)
    pq.write_table(pa.table(good), path)
    raw = bytearray(Path(path).read_bytes())
    raw[4:40] = b"\xff" * 36
    Path(path).write_bytes(raw)
    assert "expected a Parquet file that is whole" in error(path)
    pq.write_table(pa.table({"key": [1]}), path)
    assert "expected a column lon or lng or longitude; there are: key" in error(path)
    assert "expected a Parquet file" in error(write(tmp_path / "y.parquet", "not parquet"))


def test_what_is_over_a_limit_names_its_line(tmp_path: Path) -> None:
    start = '{"lat": 1, "lon": 1, "text": "a"}\n'
    for bad_line, problem in (
        ({"text": "x" * 65_537}, "text: expected at most 65536 bytes, got 65537"),
        ({"text": "é" * 32_769}, "text: expected at most 65536 bytes, got 65538"),
        ({"id": "i" * 129}, "id: expected at most 128 bytes, got 129"),
        ({"time": 1 << 63}, "time: expected Unix milliseconds"),
        ({"text": "x" * MAX_LINE}, f": expected a line of at most {MAX_LINE} bytes"),
    ):
        line = json.dumps({"lat": 1, "lon": 1, "text": "a"} | bad_line, ensure_ascii=False)
        path = write(tmp_path / "x.jsonl", start + line)
        assert f"{path}:2" in error(path)
        assert problem in error(path)


def test_batches_of_long_texts_stay_below_what_a_request_may_carry(tmp_path: Path) -> None:
    line = json.dumps({"lat": 1, "lon": 1, "text": "word " * 12_000})
    path = write(tmp_path / "x.jsonl", f"{line}\n" * 100)
    parts = list(read_posts(path))
    assert all(0 < part.nbytes <= PART_BYTES for part in parts)
    found = [row["id"] for part in parts for row in part.to_pylist()]
    assert found == [str(i) for i in range(100)]
    lists = list(read_rows(path))
    assert all(0 < sum(len(post["text"]) for post in part) <= PART_BYTES for part in lists)
    assert [post["id"] for part in lists for post in part] == found


def test_unknown_files_and_formats(tmp_path: Path) -> None:
    assert "cannot read it: No such file" in error(str(tmp_path / "none.csv"))
    assert "the format is unknown" in error(write(tmp_path / "x.txt", ""))
    assert "cannot read it: Is a directory" in error(str(tmp_path), format="csv")


def test_queries(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", '{"id": "a", "expression": "flood"}\n')
    assert list(read_queries(path)) == [(f"{path}:1", {"id": "a", "expression": "flood"})]
    check_query("here", {"id": "a", "expression": None, "region": None, "session": "s"})
    for line, wanted in [
        ('{"id": 5, "expression": "x"}', "q.jsonl:1 id: expected a string, got 5"),
        ('{"id": "a", "words": "x"}', "unknown key 'words'; expected id, expression, region"),
        ("{}", "q.jsonl:1 id: expected a string, got null"),
        ('{"id": "a", "expression": 1}', "q.jsonl:1 expression: expected a string, got 1"),
    ]:
        ((where, record),) = read_queries(write(tmp_path / "q.jsonl", line))
        with pytest.raises(InvalidArgument, match=r"q\.jsonl:1") as caught:
            check_query(where, record)
        assert wanted in str(caught.value)


def test_real_files(data: Path) -> None:
    for name in ("tweets_us_2021_2022", "tweets_uk_2016", "earthquakes", "osm_pois_vancouver"):
        path = str(data / f"{name}.parquet")
        assert sum(len(part) for part in read_posts(path, batch=50_000)) == row_count(path)


def test_ids_and_times_may_be_left_out(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    table = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    pq.write_table(table.drop_columns(["id", "time"]), path)
    assert rows(path, complete=False) == [
        {name: row[name] for name in ("lon", "lat", "text")} for row in ROWS
    ]
    pq.write_table(table, path)
    assert rows(path, complete=False) == ROWS


def test_a_reader_leaves_the_pool_of_arrow_as_it_was(tmp_path: Path) -> None:
    usual = pa.default_memory_pool().backend_name
    path = str(tmp_path / "x.parquet")
    pq.write_table(pa.Table.from_pylist(ROWS, schema=SCHEMA), path)
    [part] = read_posts(path)
    assert part.to_pylist() == ROWS
    Path(path).write_bytes(b"PAR1 no PAR1")
    with pytest.raises(InvalidArgument, match="Parquet"):
        list(read_posts(path))
    assert pa.default_memory_pool().backend_name == usual


def test_batches_that_are_not_for_requests_are_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "x.parquet")
    columns = {"lon": [0.0] * 20_000, "lat": [0.0] * 20_000, "text": ["a" * 200] * 20_000}
    pq.write_table(pa.table(columns), path)
    assert [len(part) for part in read_posts(path, batch=15_000, complete=False)] == [15_000, 5_000]
    assert max(len(part) for part in read_posts(path, batch=15_000)) <= 8_192
