"""A single insert is answered with what the service understood of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from ps2stream import AsyncClient, Client
from ps2stream.cli import main
from ps2stream.errors import InvalidArgument
from ps2stream.space.regions import Circle, Rect
from ps2stream.v1 import pubsub_pb2, pubsub_pb2_grpc, query_pb2

SWAPPED = "did you mean lon_min 5, lat_min 45, lon_max 16, lat_max 48"


def run(target: str, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--server", target, "--timeout", "90"])


def test_the_answer_has_expression_area_and_warnings(client: Client) -> None:
    inserted = client.insert("i1", "flood AND (river OR creek)", Circle(-0.12, 51.5, 30))
    assert inserted > 0
    assert inserted.expression == "creek AND flood OR flood AND river"
    assert inserted.area is not None
    assert inserted.area["area_km2"] == pytest.approx(2827, rel=1e-3)
    assert (inserted.area["nearest_place"], inserted.area["nearest_country"]) == ("London", "GB")
    assert inserted.warnings == ()
    again = client.insert("i1", "flood AND (river OR creek)", Circle(-0.12, 51.5, 30))
    assert (again, again.area) == (inserted, inserted.area)
    world = client.insert("i2", "flood")
    assert (world.area, world.warnings) == (None, ())
    swapped = client.insert("i3", "snow", Rect(45, 5, 48, 16))
    assert [SWAPPED in warning for warning in swapped.warnings] == [True]
    assert client.get("i3").region == Rect(45, 5, 48, 16)
    client.delete_many(["i1", "i2", "i3"])


async def insert_swapped(target: str) -> tuple[str, ...]:
    async with AsyncClient(target) as client:
        inserted = await client.insert("i4", "snow", Circle(51.5, -0.12, 30))
        await client.delete("i4")
        return inserted.warnings


def test_the_asynchronous_client_has_it_too(target: str) -> None:
    (warning,) = asyncio.run(insert_swapped(target))
    assert "did you mean lon -0.12, lat 51.5 (around London, GB)" in warning


def test_the_command_line_shows_it(target: str, client: Client) -> None:
    shown = run(target, "insert", "i5", "snow", "--rect", "45,5,48,16")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert lines[1] == "  text  snow"
    assert lines[2] == (
        "  area  328 x 1,223 km, 400,575 km2, around 10.5 N, 46.5 E; 96 km from Ceerigaabo, SO"
    )
    assert lines[3].startswith("warning: ")
    assert SWAPPED in lines[3]
    world = run(target, "insert", "i6", "snow OR ice")
    assert world.stdout.splitlines()[1:] == ["  text  ice OR snow", "  area  the whole world"]
    written = run(target, "insert", "i7", "snow", "--rect", "45,5,48,16", "--json")
    (line,) = written.stdout.splitlines()
    body = json.loads(line)
    assert (body["id"], body["expression"]) == ("i7", "snow")
    assert body["area"]["nearest_place"] == "Ceerigaabo"
    assert SWAPPED in body["warnings"][0]
    client.delete_many(["i5", "i6", "i7"])


def insert_geojson(target: str, region: dict[str, Any]) -> None:
    """Sends a polygon as it is."""
    query = query_pb2.Query(id="i8", expression="flood", session="s")
    query.region.geojson = json.dumps(region)
    with grpc.insecure_channel(target) as channel:
        stub = pubsub_pb2_grpc.PubSubStub(channel)
        stub.InsertQuery(pubsub_pb2.InsertQueryRequest(query=query), timeout=90)


def test_an_edge_that_may_go_either_way_is_refused_by_name(client: Client, target: str) -> None:
    wide = [[170.0, -10.0], [-170.0, -10.0], [-170.0, 10.0], [170.0, 10.0], [170.0, -10.0]]
    ring = [[170.0, -10.0], [0.0, -10.0], *wide[1:3], [0.0, 10.0], *wide[3:]]
    with pytest.raises(InvalidArgument) as error:
        client.insert("i8", "flood", {"type": "Polygon", "coordinates": [wide]})
    assert error.value.violations[0].field == "region.coordinates[0][0]"
    with pytest.raises(grpc.RpcError) as refused:  # other clients do not look before they send
        insert_geojson(target, {"type": "Polygon", "coordinates": [wide]})
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "[0][0]: the edge from [170, -10]" in str(refused.value.details())
    inserted = client.insert("i8", "flood", {"type": "Polygon", "coordinates": [ring]})
    assert inserted.area is not None
    assert inserted.area["width_km"] == pytest.approx(340 * 111.195, rel=1e-3)
    client.delete("i8")
