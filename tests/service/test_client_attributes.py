"""Attributes and payloads from what people type to what they get, over a real port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.client.matches import Match
from ps2stream.errors import InvalidArgument

PLACE: dict[str, Any] = {"lon": 8.5, "lat": 47.0, "text": "quake"}
TEN = datetime(2026, 11, 24, 10, tzinfo=UTC)
VALUES: dict[str, Any] = {"mag": 4.5, "felt": True, "depth": 12, "source": "usgs", "at": TEN}


@pytest.fixture(autouse=True)
def query(client: Client, request: pytest.FixtureRequest) -> Iterator[None]:
    """A query of a session that has the name of the test."""
    client.insert(request.node.name, "quake", session=request.node.name)
    yield
    client.delete(request.node.name)


def receive(client: Client, session: str, count: int) -> list[Match]:
    with client.subscribe(session, payload=True) as matches:
        return [matches.next(60) for _ in range(count)]


def invoke(target: str, *words: str, input: str = "") -> tuple[str, str]:
    """Standard output and error of a command that succeeds."""
    line = [*words, "--server", target, "--timeout", "60"]
    done = CliRunner().invoke(main, line, input=input)
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def test_rows(client: Client, request: pytest.FixtureRequest) -> None:
    client.publish([PLACE | {"attributes": VALUES, "payload": {"ü": [1]}}, PLACE])
    [full, bare] = receive(client, request.node.name, 2)
    assert (full.attributes, full.payload) == (VALUES, {"ü": [1]})
    assert (bare.attributes, bare.payload) == ({}, None)
    with client.subscribe(request.node.name) as matches:
        client.publish([PLACE | {"attributes": VALUES, "payload": b"x"}])
        match = matches.next(60)
    assert (match.attributes, match.payload) == (VALUES, None)


def test_tables(client: Client, request: pytest.FixtureRequest) -> None:
    columns = {name: [value, None] for name, value in VALUES.items()}
    place = {name: [value] * 2 for name, value in PLACE.items()}
    columns |= {"payload": [b"\xff", None]}
    forms: list[Any] = [
        place | columns,
        pa.table(place | columns),
        pa.RecordBatch.from_pydict(place | columns),
        pd.DataFrame(place | columns | {"mag": [4.5, np.nan]}),
    ]
    for form in forms:
        client.publish(form)
        [full, bare] = receive(client, request.node.name, 2)
        assert (full.attributes, full.payload) == (VALUES, b"\xff"), type(form)
        assert (bare.attributes, bare.payload) == ({}, None), type(form)
    with client.subscribe(request.node.name) as matches:
        client.publish(forms[0])
        frame = next(iter(matches.batches())).to_arrow().to_pandas()
    assert frame["mag"].tolist()[0] == 4.5
    assert frame["at"].tolist()[0] == pd.Timestamp(TEN)
    assert {"query_id", "text", *VALUES} <= {*frame.columns}


def test_many_columns_of_which_each_row_has_few(
    client: Client, target: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Of values of any types, from a data frame and from a file."""
    drawn: list[Any] = [5, "word", True, 2.5, TEN]
    rows = [{f"a{(7 * i + k) % 200}": drawn[(i + k) % 5] for k in range(64)} for i in range(10)]
    place = {name: [value] * 10 for name, value in PLACE.items()}
    columns = {n: pd.Series([row.get(n) for row in rows], dtype=object) for n in
               dict.fromkeys(name for row in rows for name in row)}  # fmt: skip
    assert len(columns) > 64
    client.publish(pd.DataFrame(place | columns))
    assert [match.attributes for match in receive(client, request.node.name, 10)] == rows
    texts = {name: [one if one is None else str(one) for one in values] for name, values
             in columns.items()}  # fmt: skip
    pq.write_table(pa.table(place | texts), tmp_path / "x.parquet")
    _, problems = invoke(target, "publish", str(tmp_path / "x.parquet"))
    found = [match.attributes for match in receive(client, request.node.name, 10)]
    assert found == [{name: str(value) for name, value in row.items()} for row in rows]
    assert "left out" not in problems
    with pytest.raises(InvalidArgument, match=r"objects\[3\]\.attributes: 65 attributes are over"):
        client.publish(pd.DataFrame(place | columns | {"more": [None] * 3 + [1] + [None] * 6}))


def test_every_type_of_column_is_taken(client: Client, request: pytest.FixtureRequest) -> None:
    ints: list[Any] = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]
    ints += [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    columns = {str(kind): pa.array([3], kind) for kind in ints}
    columns |= {
        "half": pa.array([0.5], pa.float16()),
        "float": pa.array([0.5], pa.float32()),
        "double": pa.array([0.5]),
        "word": pa.array(["x"]).dictionary_encode(),
        "long": pa.array(["x"], pa.large_string()),
        "view": pa.array(["x"], pa.string_view()),
        "null": pa.nulls(1),
        "day": pa.array([TEN.date()]),
        **{unit: pa.array([TEN], pa.timestamp(unit, "UTC")) for unit in ("s", "ms", "us", "ns")},
    }
    place = {name: pa.array([value]) for name, value in PLACE.items()}
    client.publish(pa.table(place | columns))
    [match] = receive(client, request.node.name, 1)
    assert match.attributes == {
        **{str(kind): 3 for kind in ints},
        "half": 0.5,
        "float": 0.5,
        "double": 0.5,
        "word": "x",
        "long": "x",
        "view": "x",
        "day": TEN.replace(hour=0),
        **dict.fromkeys(("s", "ms", "us", "ns"), TEN),
    }


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"attributes": {"a": "x" * 1025}}, "attributes.a: "),
        ({"attributes": {"a`b": 1}}, "attributes"),
        ({"attributes": {f"n{i}": i for i in range(65)}}, "64"),
        ({"payload": "{"}, "payload"),
        ({"payload": b"x" * 65_537}, "65536"),
    ],
)
def test_limits_are_the_services(client: Client, more: Any, problem: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.publish([PLACE | more])
    assert problem in str(caught.value)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "geojson", "parquet"])
def test_commands(
    client: Client, target: str, request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"quakes.{kind}"
    post = PLACE | {"id": "q1", "mag": 4.5, "at": "2026-11-24T10:00:00Z", "tags": "a,b"}
    if kind == "csv":
        path.write_text('id,lon,lat,text,mag,at,tags\nq1,8.5,47,quake,4.5,2026-11-24T10Z,"a,b"\n')
    elif kind == "jsonl":
        path.write_text(json.dumps(post | {"tags": ["a"]}))
    elif kind == "geojson":
        point = {"type": "Point", "coordinates": [8.5, 47.0]}
        feature = {"type": "Feature", "geometry": point, "properties": post}
        path.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    else:
        pq.write_table(pa.Table.from_pylist([post]), path)
    some = "" if kind in ("csv", "parquet") else ",none_such"
    chosen = ["--attributes", f"mag:number,at:time{some}"]
    shown, said = invoke(target, "publish", str(path), *chosen)
    assert shown.startswith("published 1 object")
    assert said == ("ps2stream: no post has the attributes none_such\n" if some else "")
    fields = ["--limit", "1", "--fields", "text,attributes,payload"]
    [line] = invoke(target, "subscribe", request.node.name, *fields)[0].splitlines()
    assert line == f'{request.node.name}  quake  at="2026-11-24T10:00:00Z" mag=4.5'


def test_what_is_left_out_is_said(
    client: Client, target: str, request: pytest.FixtureRequest
) -> None:
    posts = [
        PLACE | {"id": "q1", "mag": 4.5, "tags": ["a"], "payload": {"a": [1]}},
        PLACE | {"id": "q2", "mag": "high", "attributes": {"deep": True}},
    ]
    lines = "\n".join(map(json.dumps, posts))
    shown, said = invoke(target, "publish", "-", input=lines)
    assert said == "ps2stream: left out, as no attributes: tags (an array)\n"
    shown, said = invoke(target, "--json", "publish", "-", "--attributes", "mag,x", input=lines)
    assert (json.loads(shown)["published"], json.loads(shown)["not_found"]) == (2, ["x"])
    client.publish([PLACE | {"id": "q3", "payload": b"x"}])
    fields = ["--json", "--limit", "5", "--fields", "attributes,payload"]
    shown, _ = invoke(target, "subscribe", request.node.name, *fields)
    found = [json.loads(line) for line in shown.splitlines()]
    assert [(m["object_id"], m["attributes"]) for m in found] == [
        ("q1", {"mag": 4.5}),
        ("q2", {"deep": True, "mag": "high"}),
        ("q1", {"mag": 4.5}),
        ("q2", {"mag": "high"}),
        ("q3", {}),
    ]
    assert [m.get("payload", m.get("payload_base64")) for m in found] == [
        {"a": [1]}, None, {"a": [1]}, None, "eA=="
    ]  # fmt: skip
    assert found[0]["text"] is None


def test_fields_are_those_there_are(target: str) -> None:
    for words, problem in (
        (
            ["--fields", "texts"],
            "--fields: expected names of position, time, text, attri",
        ),
        (["--fields", "text", "--no-text"], "--no-text: cannot be combined with --fields"),
    ):
        done = CliRunner().invoke(main, ["subscribe", *words, "--server", target])
        assert done.exit_code == 2, done.output
        assert problem in done.stderr
