"""Attributes from files: each format gives the same posts, each defect names its place."""

from __future__ import annotations

import csv
import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.client.inputs import object_batch
from ps2stream.commands.publish import make_columns
from ps2stream.errors import InvalidArgument
from ps2stream.planner.objects import read_objects
from ps2stream.posts.members import AttributeChoice
from ps2stream.posts.readers import read_posts, read_rows

TEN = datetime(2026, 11, 24, 10, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
PLACE: dict[str, Any] = {"id": "a", "lat": 1.0, "lon": 2.0, "text": "x"}
ROWS = [
    PLACE | {"mag": 4.5, "felt": True, "at": "2026-11-24T10:00:00Z", "source": "usgs"},
    PLACE | {"mag": 5.0, "felt": False, "at": "2026-11-24T10:00:00Z", "payload": {"a": [1]}},
]
TYPED = [
    {"mag": 4.5, "felt": True, "at": TEN, "source": "usgs"},
    {"mag": 5.0, "felt": False, "at": TEN},
]
SPEC = "mag:number,felt:boolean,at:time,source"


def write_all(folder: Path) -> dict[str, str]:
    """The rows in each format."""
    (folder / "x.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    names = list(dict.fromkeys(name for row in ROWS for name in row))
    with (folder / "x.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in ROWS:
            cells = [
                json.dumps(c) if isinstance(c := row.get(n), dict | bool) else c for n in names
            ]
            writer.writerow(cells)
    features = [
        {
            "type": "Feature",
            "id": row["id"],
            "geometry": {"type": "Point", "coordinates": [row["lon"], row["lat"]]},
            "properties": {n: v for n, v in row.items() if n not in ("id", "lon", "lat")},
        }
        for row in ROWS
    ]
    whole = {"type": "FeatureCollection", "features": features}
    (folder / "x.geojson").write_text(json.dumps(whole))
    columns = {name: [row.get(name) for row in ROWS] for name in names}
    columns["payload"] = [None, '{"a":[1]}']
    pq.write_table(pa.table(columns), folder / "x.parquet")
    return {kind: str(folder / f"x.{kind}") for kind in ("jsonl", "csv", "geojson", "parquet")}


def test_formats_agree(tmp_path: Path) -> None:
    for kind, path in write_all(tmp_path).items():
        rows = [row for part in read_rows(path, choice=AttributeChoice(SPEC)) for row in part]
        assert [row["attributes"] for row in rows] == TYPED, kind
        assert [row.get("payload") for row in rows] == [None, '{"a":[1]}'], kind
        assert [row["id"] for row in rows] == ["a", "a"], kind
        plain = [row for part in read_rows(path) for row in part]
        assert set(plain[0]) == {"id", "time", "lon", "lat", "text"}, kind


def test_columns_of_csv_are_text_unless_typed(tmp_path: Path) -> None:
    paths = write_all(tmp_path)
    [rows] = read_rows(paths["csv"], choice=AttributeChoice())
    texts = {"mag": "4.5", "felt": "true", "at": "2026-11-24T10:00:00Z", "source": "usgs"}
    assert rows[0]["attributes"] == texts
    assert rows[1]["attributes"] == {"mag": "5.0", "felt": "false", "at": texts["at"]}
    for kind in ("jsonl", "geojson", "parquet"):
        [rows] = read_rows(paths[kind], choice=AttributeChoice())
        assert rows[0]["attributes"] == texts | {"mag": 4.5, "felt": True}, kind


def parquet(folder: Path, **columns: Any) -> str:
    rows = len(next(iter(columns.values())))
    place = {name: [value] * rows for name, value in PLACE.items()}
    path = str(folder / "y.parquet")
    pq.write_table(pa.table(place | columns), path)
    return path


def read(path: str, spec: str | None = None) -> tuple[dict[str, list[Any]], AttributeChoice]:
    choice = AttributeChoice(spec)
    table = pa.Table.from_batches(read_posts(path, choice=choice))
    return table.drop_columns(["id", "time", "lon", "lat", "text"]).to_pydict(), choice


def test_columns_of_parquet_keep_their_types(tmp_path: Path) -> None:
    columns = {
        "n": pa.array([1, None], pa.int16()),
        "u": pa.array([1, 2], pa.uint64()),
        "half": pa.array([0.5, 1], pa.float16()),
        "mag": pa.array([4.5, float("nan")]),
        "word": pa.array(["a", None]).dictionary_encode(),
        "day": pa.array([date(2026, 11, 24), None]),
        "naive": pa.array([TEN.replace(tzinfo=None), None], pa.timestamp("us")),
        "zoned": pa.array([TEN, None], pa.timestamp("ns", "Europe/Zurich")),
        "payload": pa.array([b"\xff", None]),
        "long": pa.array(["x" * 1025, "y"]),
        "far": pa.array([2**63, 5], pa.uint64()),
        "list": pa.array([[1], [2]]),
        "raw": pa.array([b"x", b"y"]),
    }
    found, choice = read(parquet(tmp_path, **columns))
    assert found == {
        "n": [1, None], "u": [1, 2], "half": [0.5, 1], "mag": [4.5, None], "word": ["a", None],
        "day": [datetime(2026, 11, 24, tzinfo=UTC), None], "naive": [TEN, None],
        "zoned": [TEN, None], "long": [None, "y"], "far": [None, 5], "payload": [b"\xff", None],
    }  # fmt: skip
    assert choice.pop_left_out() == [
        "list (of the type list<element: int64>)",
        "raw (of the type binary)",
        "long (values of more than 1024 bytes)",
        "far (values beyond 64 bits)",
    ]


def test_columns_of_parquet_are_cast_to_the_types_given(tmp_path: Path) -> None:
    columns = {
        "a": ["3", "4"],
        "b": ["3.5", "4"],
        "c": [3, 4],
        "d": ["true", "false"],
        "e": ["2026-11-24T10:00:00Z", "2026-11-24T11:00:00+01:00"],
        "f": ["2026-11-24T10:00:00", "2026-11-24"],
        "g": [round(TEN.timestamp() * 1000)] * 2,
        "h": [" 3", None],
        "i": [str(round(TEN.timestamp() * 1000)), "2026-11-24T11:00+01:00"],
        "j": pa.nulls(2),
    }
    spec = "a:number,b:number,c:text,d:boolean,e:time,f:time,g:time,h:number,i:time,j:number"
    found, choice = read(parquet(tmp_path, **columns), spec)
    assert found == {
        "a": [3, 4], "b": [3.5, 4.0], "c": ["3", "4"], "d": [True, False], "e": [TEN, TEN],
        "f": [TEN, datetime(2026, 11, 24, tzinfo=UTC)], "g": [TEN, TEN], "h": [3, None],
        "i": [TEN, TEN], "j": [None, None],
    }  # fmt: skip
    assert read(parquet(tmp_path, **columns), "none")[0] == {}
    assert choice.list_unseen() == []


@pytest.mark.parametrize("kind", ["number", "boolean", "time"])
@pytest.mark.parametrize(
    "values",
    [
        ["1e400", "1"], ["inf", "-Infinity"],
        [1, 0], [2, 7], [1.0, 0.0], [1.5, 2.0], [True, False], ["1", "0"], ["t", "yes"],
        ["true", " False"], ["1.5", "2"], [None, True], [None, 1], [None, "TRUE "],
    ],
    ids=str,
)  # fmt: skip
def test_a_type_is_what_it_is_in_every_format(tmp_path: Path, values: list[Any], kind: str) -> None:
    """A boolean is no number, and a number none, whether columns or records are read."""
    lines = "\n".join(json.dumps(PLACE | {"a": value}) for value in values)
    (tmp_path / "x.jsonl").write_text(lines)
    found, problems = [], []
    for path in (parquet(tmp_path, a=values), str(tmp_path / "x.jsonl")):
        try:
            rows = [r for p in read_rows(path, choice=AttributeChoice(f"a:{kind}")) for r in p]
            found.append([(row.get("attributes") or {}).get("a") for row in rows])
        except InvalidArgument as error:
            problems.append(str(error))
            found.append([])
    columns, records = found
    assert columns == records
    there = [value for value in columns + records if value is not None]
    assert all(isinstance(value, bool) == (kind == "boolean") for value in there)
    assert len(problems) in (0, 2)
    assert all(f"a: expected a {kind}" in problem for problem in problems)


def test_a_post_of_parquet_has_some_of_many_columns(tmp_path: Path) -> None:
    columns = {f"c{i}": [i if i % 3 == row else None for row in range(3)] for i in range(1030)}
    few = {name: columns[name] for name in list(columns)[:190]}
    found, choice = read(parquet(tmp_path, **few))
    assert (found, choice.pop_left_out()) == (few, [])
    found, choice = read(parquet(tmp_path, **columns))
    assert [sum(one is not None for one in row) for row in zip(*found.values(), strict=True)] == [
        64, 64, 64,
    ]  # fmt: skip
    assert {name: values for name, values in found.items() if values != [None] * 3} == {
        name: columns[name] for name in list(columns)[:192]
    }
    assert choice.pop_left_out()[0] == "c1024 (one of more than 1024 columns)"
    found, choice = read(parquet(tmp_path, **{n: columns[n] for n in list(columns)[:195]}))
    assert choice.pop_left_out() == [f"c{i} (one of more than 64)" for i in range(192, 195)]


def test_a_row_with_too_many_chosen_attributes_is_named(tmp_path: Path) -> None:
    columns = {f"c{i}": [None if i < 20 else i, i if i < 65 else None] for i in range(80)}
    spec = ",".join(columns)
    with pytest.raises(
        InvalidArgument, match=r"parquet row 1 attributes: expected at most 64, got 65"
    ):
        read(parquet(tmp_path, **columns), spec)
    (tmp_path / "x.jsonl").write_text(
        "\n".join(
            json.dumps(PLACE | {name: values[row] for name, values in columns.items()})
            for row in range(2)
        )
    )
    with pytest.raises(InvalidArgument, match=r"jsonl:2 attributes: expected at most 64, got 65"):
        list(read_rows(str(tmp_path / "x.jsonl"), choice=AttributeChoice(spec)))


@pytest.mark.parametrize(
    ("values", "spec", "problem"),
    [
        (pa.array([[1]]), "a", "y.parquet column a: cannot be an attribute: of the type list"),
        (pa.array(["x"]), "a:number", "y.parquet column a: expected a number: Failed to parse"),
        (pa.array([True]), "a:number", "column a: expected a number: the column is of the type b"),
        (pa.array(["noon"]), "a:time", "y.parquet column a: expected a time: "),
        (pa.array(["3", "nan"]), "a:number", "a: expected a number: got nan: not a number"),
        (pa.array([str(2**63)]), "a:number", "a: expected a number: Failed to parse"),
        (pa.array([str(2**53 + 1), "0.5"]), "a:number", "a: expected a number: Integer value 9007"),
        (pa.array(["2026-11-24", "noon"]), "a:time", "column a: expected a time: got 'noon'"),
        (pa.array([2**63], pa.uint64()), "a", "y.parquet column a: expected a number: Integer"),
        (pa.array(["y", "x" * 1025]), "a", "y.parquet row 1 a: expected an attribute, got 'xxx"),
    ],
)
def test_a_column_that_cannot_be_is_named(
    tmp_path: Path, values: Any, spec: str | None, problem: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read(parquet(tmp_path, a=values), spec)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (pa.array([3]), "y.parquet column payload: expected binary, or strings of JSON, got int64"),
        (pa.array([b"", b"x" * 65_537]), "y.parquet row 1 payload: expected at most 65536 bytes"),
    ],
)
def test_a_payload_that_cannot_be_is_named(tmp_path: Path, values: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read(parquet(tmp_path, payload=values))
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("x.csv", "lat,lon,text,mag\n1,2,x,high\n", "x.csv:2 mag: expected a number, got 'high'"),
        ("x.csv", "lat,lon,text,mag,payload\n1,2,x,,{\n", "x.csv:2 payload: expected JSON: "),
        ("x.jsonl", '{"lat":1,"lon":2,"text":"x","mag":[]}', "x.jsonl:1 mag: expected a number"),
        ("x.jsonl", '{"lat":1,"lon":2,"text":"x","payload":NaN}', "x.jsonl:1 payload: NaN is not"),
        ("x.geojson", "[1", "x.geojson: expected GeoJSON: "),
        ("x.geojson", '{"type": "Feature"}', "x.geojson: expected a FeatureCollection"),
        ("x.geojson", '{"features": [{}]}', "x.geojson feature 0 geometry: expected a Point"),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidArgument) as caught:
        list(read_rows(str(tmp_path / name), choice=AttributeChoice("mag:number")))
    assert problem in str(caught.value)


def test_no_value_is_lost_to_another_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("lat,lon,text,mag,mag,,\n1,2,x,3,4,,\n")
    (tmp_path / "y.csv").write_text("lat,lon,text,\u00e9,e\u0301\n1,2,x,3,4\n")
    (tmp_path / "x.jsonl").write_text('{"lat":1,"lon":2,"text":"x","mag":3,"mag":4}')
    (tmp_path / "y.jsonl").write_text('{"lat":1,"lon":2,"text":"x","\u00e9":3,"e\u0301":4}')
    columns = [pa.array([1.0]), pa.array([2.0]), pa.array(["x"]), pa.array([3]), pa.array([4])]
    table = pa.Table.from_arrays(columns, ["lat", "lon", "text", "mag", "mag"])
    pq.write_table(table, tmp_path / "x.parquet")
    for name, problem in {
        "x.csv": "x.csv:1: expected one column mag, got 2",
        "y.csv": "y.csv:1: expected one column \u00e9, got 2",
        "x.jsonl": "x.jsonl:1: expected one JSON object per line: the name 'mag' occurs 2 times",
        "y.jsonl": "y.jsonl:1 \u00e9: expected it once, got it twice",
        "x.parquet": "x.parquet: expected one column mag, got 2",
    }.items():
        with pytest.raises(InvalidArgument) as caught:
            list(read_rows(str(tmp_path / name), choice=AttributeChoice()))
        assert problem in str(caught.value)
    (tmp_path / "z.csv").write_text("lat,lon,text,mag,,\n1,2,x,3,,\n")  # columns without names
    [[row]] = read_rows(str(tmp_path / "z.csv"), choice=AttributeChoice())
    assert row["attributes"] == {"mag": "3"}


@pytest.mark.parametrize("finer_us", [-1500, -1, 1, 999_999, -(10**15) - 1, 10**15 + 999])
def test_times_are_rounded_down_whatever_they_come_in(tmp_path: Path, finer_us: int) -> None:
    at = TEN + timedelta(microseconds=finer_us)
    if finer_us < 0:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=finer_us)
    wanted = at.replace(microsecond=at.microsecond // 1000 * 1000)
    (tmp_path / "x.jsonl").write_text(json.dumps(PLACE | {"a": at.isoformat()}))
    [[row]] = read_rows(str(tmp_path / "x.jsonl"), choice=AttributeChoice("a:time"))
    columns = {
        "b": pa.array([at], pa.timestamp("us")),
        "c": pa.array([at], pa.timestamp("ns", "UTC")),
        "d": [at.isoformat()],
        "e": [at.isoformat().replace("+00:00", "")],
        "time": pa.array([at], pa.timestamp("us", "UTC")),
    }
    path = parquet(tmp_path, **columns)
    [part] = read_posts(path, choice=AttributeChoice("b,c,d:time,e:time"))
    sent = object_batch([PLACE | {"attributes": {"a": at}, "time": at}]).objects[0]
    assert sent.time_ms == part["time"][0].as_py() == sent.attributes.values["a"].time_ms
    assert EPOCH + timedelta(milliseconds=sent.time_ms) == wanted
    assert [row["attributes"]["a"], *(part[n][0].as_py() for n in "bcde")] == [wanted] * 5


def test_a_time_that_python_lacks_is_refused_where_rows_are_read(tmp_path: Path) -> None:
    path = parquet(tmp_path, at=pa.array([2**60], pa.timestamp("ms")))
    [part] = read_posts(path, choice=AttributeChoice())  # the service takes it
    assert part["at"].cast(pa.int64()).to_pylist() == [2**60]
    for rows in (read_rows(path, choice=AttributeChoice()), read_objects(path)):
        with pytest.raises(InvalidArgument, match="expected times of the years 1 to 9999"):
            list(rows)


def test_names_are_chosen_in_normal_form(tmp_path: Path) -> None:
    wanted = "\u00e9"
    path = parquet(tmp_path, é=["3"])
    [[row]] = read_rows(path, choice=AttributeChoice(f"{wanted}:number"))
    assert list(row["attributes"].values()) == [3]
    (tmp_path / "x.jsonl").write_text(json.dumps(PLACE | {wanted: 3}))
    [[row]] = read_rows(str(tmp_path / "x.jsonl"), choice=AttributeChoice("e\u0301"))
    assert row["attributes"] == {wanted: 3}


def test_a_column_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    paths = write_all(tmp_path)
    for kind, place in (("csv", "x.csv:1"), ("parquet", "x.parquet")):
        read_any = read_posts if kind == "parquet" else read_rows
        with pytest.raises(InvalidArgument) as caught:
            next(read_any(paths[kind], choice=AttributeChoice("mag,magnitude")))
        wanted = f"{place}: expected a column magnitude; there are: id, lat, lon, text, mag, "
        assert str(caught.value).partition("/x")[2].startswith(wanted.partition("x")[2])


def test_a_payload_that_is_too_large_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps(PLACE | {"payload": "x" * 65_535}))
    with pytest.raises(InvalidArgument, match="1 payload: expected at most 65536 bytes, got 65537"):
        list(read_rows(str(path), choice=AttributeChoice()))
    path.write_text(json.dumps(PLACE | {"payload": "x" * 65_534}))
    assert len(list(read_rows(str(path), choice=AttributeChoice()))) == 1


def test_parts_stay_below_what_a_request_carries(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    post = PLACE | {f"n{i}": "x" * 1000 for i in range(64)} | {"payload": "y" * 60_000}
    path.write_text("\n".join([json.dumps(post)] * 60))
    parts = list(read_rows(str(path), choice=AttributeChoice()))
    assert sum(map(len, parts)) == 60
    assert max(object_batch(make_columns(part)).ByteSize() for part in parts) <= 4 << 20


def test_rows_become_columns_where_they_can() -> None:
    place = PLACE | {"time": None}
    plain = [place | {"attributes": {"mag": 1}}, place | {"payload": "{}"}]
    assert object_batch(make_columns(plain)).arrow
    named_alike = [place | {"attributes": {"lat": 1}}]
    many = [place | {"attributes": {f"n{i}": i}} for i in range(65)]
    for posts in (named_alike, many):
        assert make_columns(posts) is posts
        assert len(object_batch(posts).objects) == len(posts)
    assert set(make_columns([place])) == {*place}
