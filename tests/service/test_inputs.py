"""What people give to the clients: it works, or is refused in words; never anything else."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
import shapely
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.async_client import AsyncClient
from ps2stream.client.client import Client
from ps2stream.client.inputs import object_batch
from ps2stream.client.requests import region_to_proto
from ps2stream.errors import InvalidArgument, NotFound, Ps2StreamError, Unavailable
from ps2stream.limits import POLYGON_VERTICES
from ps2stream.service.objects import ObjectColumns, read_objects
from ps2stream.space.regions import Rect
from scripts import cli_docs


class Post(NamedTuple):
    lon: float
    lat: float
    text: str


ROWS: list[dict[str, Any]] = [
    {"id": "a", "lon": 8.5, "lat": 47.0, "text": "one"},
    {"lon": 9.0, "lat": 46.0, "text": "2"},
]
POINT = {"type": "Point", "coordinates": [8.5, 47.0]}
FEATURE = {"type": "Feature", "id": "a", "geometry": POINT, "properties": {"text": "one", "x": 1}}
SQUARE = shapely.box(8, 46, 9, 48)
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1e400, math.nan, "", "abcd", "\ud800", "x" * 200, b"\xff", (), (1,), [None],
    {}, {"a": {"b": 1}}, object(), Rect, np.zeros(3), np.array([]), pd.DataFrame(), pd.NaT, {1, 2},
    ("a", "b", "c", "d", "e"), pa.table({}), SQUARE, FEATURE, [[[]]], Path("x"), 10**400, "(a",
)  # fmt: skip


def taken(objects: Any) -> ObjectColumns:
    return read_objects(object_batch(objects), 5)


def test_rows_come_in_every_usual_form() -> None:
    frame = pd.DataFrame(ROWS, index=["x", "y"])
    forms: dict[str, Any] = {
        "rows": ROWS,
        "columns": {"id": ["a", None], "lon": [8.5, 9], "lat": [47, 46.0], "text": ["one", "2"]},
        "frame": frame,
        "part of a frame": pd.concat([frame, frame])[:2],
        "table": pa.Table.from_pylist(ROWS),
        "chunks": pa.Table.from_batches(pa.Table.from_pylist(ROWS).to_batches(1)),
        "batch": pa.RecordBatch.from_pylist(ROWS),
        "narrow types": pa.table(
            {
                "id": pa.array(["a", None]).dictionary_encode(),
                "lon": pa.array([8.5, 9], pa.float32()),
                "lat": pa.array([47, 46], pa.int8()),
                "text": pa.array(["one", "2"], pa.large_string()),
            }
        ),
    }
    for name, form in forms.items():
        found = taken(form)
        assert (found.lon.tolist(), found.lat.tolist()) == ([8.5, 9.0], [47.0, 46.0]), name
        assert found.text.tobytes() == b"one2", name
        assert found.id.tobytes() == b"a", name
        assert found.time.tolist() == [5, 5], name
    collection = {"type": "FeatureCollection", "features": [FEATURE]}
    for one in (ROWS[0], FEATURE, [FEATURE], collection, [Post(8.5, 47.0, "one")]):
        assert (taken(one).lon.tolist(), taken(one).text.tobytes()) == ([8.5], b"one"), one
    times = pd.DataFrame([ROWS[1] | {"time": pd.Timestamp(7, unit="ms", tz="UTC")}])
    assert taken(times).time.tolist() == [7]
    assert taken([ROWS[1] | {"time": datetime.fromtimestamp(7, UTC), "id": 7}]).time.tolist() == [
        7000
    ]


def test_regions_come_in_every_usual_form() -> None:
    def corners(value: Any) -> tuple[float, ...]:
        made = region_to_proto(value)
        assert made is not None
        if made.HasField("rectangle"):
            r = made.rectangle
            return r.lon_min, r.lat_min, r.lon_max, r.lat_max
        return tuple(shapely.from_geojson(made.geojson).bounds)

    feature = {"type": "Feature", "geometry": shapely.geometry.mapping(SQUARE), "properties": {}}
    collection = {"type": "FeatureCollection", "features": [feature]}
    sides = (8, 46, 9, 48)
    for value in (SQUARE, shapely.MultiPolygon([SQUARE]), feature, collection, sides, [*sides],
                  np.array(sides), Rect(*sides), Rect(*sides).to_json()):  # fmt: skip
        assert corners(value) == sides, value
    assert region_to_proto(None) is None


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda c: c.publish([{"lon": 1, "text": "x"}]), "lat: is missing"),
        (lambda c: c.publish([(8.5, 47.0, "x")]), r"objects\[0\]: expected a mapping .* a tuple"),
        (lambda c: c.publish("text"), "objects: expected rows such as .* got 'text'"),
        (
            lambda c: c.publish([{"lon": "8", "lat": 1}]),
            r"\[0\].lon: expected a number, got",
        ),
        (
            lambda c: c.publish([{"lon": True, "lat": 1}]),
            r"\[0\].lon: expected a number, got true",
        ),
        (
            lambda c: c.publish([{"lng": 8}]),
            "unknown field 'lng'; expected id, time, .* goes under",
        ),
        (lambda c: c.publish([{"time": "noon"}]), "time: expected Unix milliseconds or a datetime"),
        (lambda c: c.publish([FEATURE | {"geometry": None}]), "geometry: expected a Point"),
        (lambda c: c.insert("flood"), r"needs an expression or a region: insert\('flood', "),
        (lambda c: c.insert(5, "flood"), "query.id: expected a string, got 5"),
        (lambda c: c.insert("a", "x", (1, 2, 3)), r"got 3 values; a circle is Circle\("),
        (
            lambda c: c.insert("a", "x", Rect(None, 1, 2, 3)),  # type: ignore[arg-type]
            "region.lon_min: expected a number, got None",
        ),
        (lambda c: c.insert("a", "x", "here"), "region: expected a Rect, .* got 'here'"),
        (
            lambda c: c.insert("a", "x", shapely.Point(1, 2)),
            "expected Rect, Circle, .* got 'Point'",
        ),
        (lambda c: c.insert_many("abc"), "queries: expected several, got 'abc'"),
        (lambda c: c.insert_many(["abc"]), r"expected a Query, a mapping or \(id, expression, reg"),
        (lambda c: c.delete_many("abc"), "ids: expected several, got 'abc'"),
        (lambda c: c.delete(None), "id: cannot be None"),
        (lambda c: c.get(5), "id: cannot be 5"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_words(
    client: Client, call: Callable[[Client], Any], problem: str
) -> None:
    with pytest.raises(InvalidArgument, match=problem) as caught:
        call(client)
    assert "{'" not in str(caught.value)


def test_a_service_that_does_not_run_is_asked_for() -> None:
    with Client("127.0.0.1:1", timeout=0.2) as client, pytest.raises(Unavailable) as caught:
        client.status()
    expected = "cannot connect to 127.0.0.1:1: Connection refused; is `ps2stream serve` running"
    assert str(caught.value).startswith(expected)


def test_a_polygon_of_all_corners_that_a_polygon_may_have(client: Client) -> None:
    """One limit for a single query and for a batch, and for what a price is asked of."""
    turns = np.linspace(0, 2 * math.pi, POLYGON_VERTICES)[:-1]
    round_ = np.stack([8 + np.cos(turns) / 3, 47 + np.sin(turns) / 7], 1)
    circle = shapely.Polygon(round_)
    assert shapely.get_num_coordinates(circle) == POLYGON_VERTICES
    lsn = client.insert("round", "flood", circle)
    assert client.insert_many([("round", "flood", circle)]) == [lsn]
    client.publish([{"lon": 8, "lat": 47, "text": "flood"}])
    assert client.price("flood", circle)["matched"] >= 1
    one_more = shapely.Polygon(np.vstack([[8.4, 47], round_[:-1], [8.39, 47.001]]))
    with pytest.raises(InvalidArgument, match="limit polygon_vertices 10000"):
        client.insert("rounder", "flood", one_more)
    client.delete("round")


CALLS: dict[str, Callable[..., Any]] = {
    "publish": lambda c, a, b: c.publish(a, level=b),
    "publish one": lambda c, a, b: c.publish([a]),
    "publish field": lambda c, a, b: c.publish([{"lon": a, "lat": b, "text": "x"}]),
    "publish text": lambda c, a, b: c.publish([{"lon": 1, "lat": 2, "text": a, "time": b}]),
    "publish attributes": lambda c, a, b: c.publish([{**ROWS[0], "attributes": a, "payload": b}]),
    "publish values": lambda c, a, b: c.publish([{**ROWS[0], "attributes": {"a": a, "b": b}}]),
    "publish more": lambda c, a, b: c.publish({n: [v] for n, v in ROWS[0].items()} | {"a": [a]}),
    "publish columns": lambda c, a, b: c.publish({"lon": a, "lat": [1], "text": b}),
    "publish stream": lambda c, a, b: list(c.publish_stream([a], level="durable")),
    "insert": lambda c, a, b: c.insert(a, b),
    "insert region": lambda c, a, b: c.insert("x", a, b),
    "insert session": lambda c, a, b: c.insert("x", "y", session=a),
    "insert many": lambda c, a, b: c.insert_many([("i", a, b)]),
    "insert rows": lambda c, a, b: c.insert_many(a),
    "delete": lambda c, a, b: c.delete(a),
    "delete many": lambda c, a, b: c.delete_many(a),
    "get": lambda c, a, b: c.get(a),
    "list": lambda c, a, b: list(itertools.islice(c.list(a), 3)),
    "explain": lambda c, a, b: c.explain(a, b),
    "price": lambda c, a, b: c.price(a, b),
}


def test_odd_arguments_are_refused_with_the_packages_own_errors(client: Client) -> None:
    """Every call with every odd value, and with pairs of them; other exceptions are bugs."""
    rng, said = random.Random(1), []
    for (name, call), first in itertools.product(CALLS.items(), ODD):
        try:
            call(client, first, rng.choice(ODD))
        except (Ps2StreamError, TimeoutError) as error:
            said.append((name, str(error)))
        except Exception as error:
            raise AssertionError(f"{name}: {first!r:.80}") from error
    assert len(said) > len(CALLS) * len(ODD) / 2
    assert [it for it in said if not it[1] or "{'" in it[1] or "<object" in it[1]] == []
    client.delete_many([q.id for q in client.list()])


def test_the_asynchronous_client_refuses_alike(target: str) -> None:
    async def attempt() -> None:
        async with AsyncClient(target) as client:
            for odd in ODD[:12]:
                with pytest.raises((InvalidArgument, NotFound)):
                    await client.delete(odd)
            assert (await client.publish(pd.DataFrame(ROWS))).accepted == 2

    asyncio.run(attempt())


WORDS = (
    "", "x", "-", "--", "1", "-1", "nan", "1,2,3", "1,2,3,4", "\ud800", "none.jsonl", ".",
    "empty.jsonl", "binary.csv", "binary.parquet", "(", "a AND", "😀", "--json", "--limit",
)  # fmt: skip
COMMANDS = (
    "insert", "delete", "list", "explain", "price", "publish", "status", "health", "plan",
    "plan show", "plan current", "apply", "migrations", "regions", "nothing", "dashboards",
)  # fmt: skip


def test_odd_words_never_show_a_traceback(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PS2STREAM_SERVER", target)
    Path("empty.jsonl").touch()
    for name in ("binary.csv", "binary.parquet"):
        Path(name).write_bytes(bytes(range(256)) * 9)
    rng = random.Random(2)
    options = {
        " ".join(path): [o for p in cli_docs.command_of(path).params for o in p.opts]
        for path in cli_docs.commands()
    }
    for command in COMMANDS:
        for _ in range(14):
            words = [
                rng.choice((*WORDS, *options.get(command, ()))) for _ in range(rng.randrange(4))
            ]
            line = [*command.split(), *words]
            if {"--server", "--from-service", "--help", "-h"} & set(line):
                continue
            result = CliRunner().invoke(main, [*line, "--timeout", "5"], input="no post\n")
            shown = isinstance(result.exception, SystemExit | None)
            assert shown, (line, result.exception)
            assert "Traceback" not in result.output, line
            assert "{'" not in result.output, (line, result.output)
