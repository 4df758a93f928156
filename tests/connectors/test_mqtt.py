"""MQTT to service: what was published with QoS 1 arrives, whatever is killed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.conftest import Program, World, arrived
from tests.support.mqtt_server import USER, Mosquitto, mosquitto

pytestmark = [pytest.mark.slow, pytest.mark.takes_turns]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as found:
        yield found


def post(number: int, **more: Any) -> bytes:
    return json.dumps({"lat": 1, "lon": 2, "text": f"flood {number}", **more}).encode()


def source(world: World, broker: Mosquitto, topic: str, *more: str, tls: bool = False) -> Program:
    where = [f"mqtt://127.0.0.1:{broker.port}"]
    if tls:
        where = [f"mqtts://localhost:{broker.tls_port}", "--broker-ca", str(broker.ca)]
    who = ["--username", USER, "--password-file", str(broker.password_file)]
    name = ["--topic", f"{topic}/#", "--client-id", topic]
    return world.connect("mqtt-source", "--broker", *where, *who, *name, *more)


def test_locations_come_over_tls_with_their_own_fields(
    world: World, broker: Mosquitto, tmp_path: Path
) -> None:
    letters = tmp_path / "letters"
    fields = ("--fields", "text=desc,time=tst,id=", "--time-unit", "s", "--dead-letters", letters)
    with world.client() as client:
        client.insert("phones", "home", session="phones")
        connector = source(world, broker, "owntracks", *map(str, fields), tls=True)
        assert connector.ready()["topics"] == ["owntracks/#"]
        location = {"_type": "transition", "lat": 51.5, "lon": -0.1, "tst": 1767600000}
        good = json.dumps(location | {"desc": "home"}).encode()
        broker.publish("owntracks/me/phone", [b'{"_type": "lwt"}', good, good])
        with client.subscribe("phones") as matches:
            found = list(islice(matches, 2))
    assert {(m.time, m.lat, m.lon, m.text) for m in found} == {(1767600000000, 51.5, -0.1, "home")}
    assert len({m.object_id for m in found}) == 1  # the same topic and content
    assert [m.attributes for m in found] == [{"_type": "transition"}] * 2
    connector.until(lambda line: line.get("done") == 2)
    assert connector.stop()["bad"] == 1
    [letter] = map(json.loads, letters.read_text().splitlines())
    assert base64.b64decode(letter["payload"]) == b'{"_type": "lwt"}'
    assert (letter["topic"], letter["reason"]) == (
        "owntracks/me/phone", "lon: expected degrees in [-180, 180], got null",
    )  # fmt: skip


def test_a_session_outlives_connector_broker_and_service(world: World, broker: Mosquitto) -> None:
    n = 3000
    with world.client() as client:
        client.insert("lasting", "flood", session="lasting")
    connector = source(world, broker, "lasting")
    connector.ready()
    connector.stop()
    broker.publish("lasting/a", [post(i) for i in range(n)])  # while nobody is there
    connector = source(world, broker, "lasting")
    connector.until(lambda line: line.get("done", 0) > 100)
    connector.kill()
    assert connector.said[-1]["done"] < n
    connector = source(world, broker, "lasting")
    connector.until(lambda line: line.get("done", 0) > 100)
    world.kill()
    broker.stop()
    broker.start()
    world.start()
    broker.publish("lasting/b/c", [post(i) for i in range(n, n + 10)])
    with world.client() as client:
        found = arrived(client, "lasting", {f"flood {i}" for i in range(n + 10)})
    assert len(found) == n + 10  # a repeat has the id of the first
    connector.stop()


def test_notifications_of_wis2_are_objects_where_their_data_are(
    world: World, broker: Mosquitto, tmp_path: Path
) -> None:
    letters = tmp_path / "letters"
    notice = {
        "id": "31e9d66a-cd83-4174-9429-b932f1abe1be", "type": "Feature",
        "conformsTo": ["http://wis.wmo.int/spec/wnm/1/conf/core"],
        "geometry": {"type": "Point", "coordinates": [6.15, 46.2, 400]},
        "properties": {
            "data_id": "ch-meteoswiss/data/core/synop/x_1", "pubtime": "2026-01-05T08:00:00Z",
            "datetime": "2026-01-05T07:50:00Z", "wigos_station_identifier": "0-20000-0-06700",
        },
        "links": [{"rel": "canonical", "href": "https://example.org/x", "length": 99}],
    }  # fmt: skip
    area = {"type": "Polygon", "coordinates": [[[6, 46], [7, 46], [7, 47], [6, 46]]]}
    with world.client() as client:
        client.insert("synop", 'synop AND centre = "wis2"', session="wis2")
        connector = source(
            world, broker, "cache", "--format", "wis2", "--dead-letters", str(letters)
        )
        connector.ready()
        everywhere = notice | {"id": "no-place", "geometry": None}
        region = notice | {"id": "area", "geometry": area}
        sent = [json.dumps(each).encode() for each in (notice, everywhere, region)]
        broker.publish("cache/a/b/wis2/x", sent)
        with client.subscribe("wis2", payload=True) as matches:
            found = list(islice(matches, 50))
    [first] = [match for match in found if match.object_id == notice["id"]]
    assert (first.lon, first.lat, first.time) == (6.15, 46.2, 1767600000000)
    assert first.payload == notice
    assert first.attributes is not None
    assert first.attributes["wigos_station_identifier"] == "0-20000-0-06700"
    assert all(match.object_id.startswith("area/") for match in found if match is not first)
    connector.until(lambda line: line.get("done") == 2)
    assert connector.stop()["bad"] == 1
    [letter] = map(json.loads, letters.read_text().splitlines())
    assert letter["reason"] == "geometry: is null, so the notification has no position"


def test_refusals_end_the_connector_and_tell_why(
    world: World, broker: Mosquitto, tmp_path: Path
) -> None:
    wrong = tmp_path / "password"
    wrong.write_text("guess")
    refused = source(world, broker, "refused", "--password-file", str(wrong))
    assert refused.failed()[0] in (10, 11)
    connector = source(world, broker, "refused")
    connector.ready()
    broker.publish("refused/x", [post(1), b"no"])
    code, error = connector.failed()
    assert code == 2
    assert error["violations"][0]["field"] == "message of refused/x"
