"""Service to MQTT: each match is published with QoS 1, whatever is killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.connectors.conftest import Program, World
from tests.support.mqtt_server import PASSWORD, USER, Mosquitto, mosquitto

pytestmark = [pytest.mark.slow, pytest.mark.takes_turns]

HOSTILE = "flat\r\n\x00 <b> \u202e $SYS/#"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path_factory.mktemp("mosquitto")) as found:
        yield found


class Subscriber:
    """A persistent session at the broker, and what it got."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self._came = threading.Condition()

    def take(self, _: Any, __: Any, message: Any) -> None:
        with self._came:
            self.messages.append(message)
            self._came.notify_all()

    def until(self, count: int) -> list[Any]:
        with self._came:
            assert self._came.wait_for(lambda: len(self.messages) >= count, 60), self.messages
            return list(self.messages)

    def until_last(self, text: str) -> list[int]:
        """The numbers of all that came, once a match of this text has."""
        found = self.until(1)
        while json.loads(found[-1].payload)["text"] != text:
            found = self.until(len(found) + 1)
        return [json.loads(message.payload)["seq"] for message in found]


@contextmanager
def subscribing(broker: Mosquitto, topic: str) -> Iterator[Subscriber]:
    found = Subscriber()
    subscribed = threading.Event()
    kept: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    kept.SessionExpiryInterval = 600
    client = mqtt.Client(CallbackAPIVersion.VERSION2, f"of-{topic}", protocol=mqtt.MQTTv5)
    client.username_pw_set(USER, PASSWORD)
    client.reconnect_delay_set(1, 1)
    client.on_message = found.take
    client.on_subscribe = lambda *_: subscribed.set()
    client.connect("127.0.0.1", broker.port, clean_start=False, properties=kept)
    client.loop_start()
    client.subscribe(topic, qos=1)
    assert subscribed.wait(60)
    try:
        yield found
    finally:
        client.disconnect()
        client.loop_stop()


def publish(world: World, session: str, *texts: str, query: str = "") -> None:
    with world.client() as client:
        client.insert(query or session, "flat", session=session)
        rows = [
            {"id": str(n), "lon": 1, "lat": 2, "text": text, "time": 5, "payload": [n]}
            for n, text in enumerate(texts)
        ]
        client.publish(rows)


def sink(world: World, broker: Mosquitto, session: str, *more: str) -> Program:
    where = ["--broker", f"mqtts://localhost:{broker.tls_port}", "--broker-ca", str(broker.ca)]
    who = ["--username", USER, "--password-file", str(broker.password_file)]
    return world.connect("mqtt-sink", "--session", session, *where, *who, *more)


def test_each_match_is_a_message_of_its_query(world: World, broker: Mosquitto) -> None:
    publish(world, "to/mqtt", "flat a", HOSTILE, "flat " + "x" * 60_000, query="a+b/#")
    with subscribing(broker, "ps2stream/+/+") as subscriber:
        connector = sink(world, broker, "to/mqtt")
        found = subscriber.until(3)
        connector.until(lambda line: line.get("done") == 3)
        assert connector.stop()["bad"] == 0
    assert {message.topic for message in found} == {"ps2stream/to%2Fmqtt/a%2Bb%2F%23"}
    rows = [json.loads(message.payload) for message in found]
    assert [row["seq"] for row in rows] == [1, 2, 3]
    assert (rows[1]["text"], rows[1]["payload"], rows[1]["query_id"]) == (HOSTILE, [1], "a+b/#")
    assert dict(found[1].properties.UserProperty) == {
        "ps2stream-seq": "2", "ps2stream-session": "to/mqtt", "ps2stream-query": "a+b/#",
    }  # fmt: skip
    assert found[0].properties.ContentType == "application/json"
    assert {message.qos for message in found} == {1}


def test_kills_and_a_broker_that_is_away_lose_nothing(world: World, broker: Mosquitto) -> None:
    publish(world, "killed", "flat a", "flat b")
    with subscribing(broker, "killed/#") as subscriber:
        topic = ("--topic", "{session}/{query}", "--batch", "1")
        connector = sink(world, broker, "killed", *topic)
        subscriber.until(1)
        connector.kill()
        publish(world, "killed", "flat c")
        world.kill()
        world.start()
        connector = sink(world, broker, "killed", *topic)
        subscriber.until_last("flat c")
        broker.stop()
        publish(world, "killed", *(f"flat {n}" for n in range(50)), "flat d")
        connector.until(lambda line: line.get("waiting", 0) > 0)
        broker.start()
        publish(world, "killed", "flat e")
        numbers = subscriber.until_last("flat e")
        connector.stop()
    assert sorted(set(numbers)) == list(range(1, max(numbers) + 1))
    assert max(numbers) == 55
    assert sum(b <= a for a, b in pairwise(numbers)) <= 3, "once for each that was killed"


def test_messages_that_the_broker_refuses_are_put_away(
    world: World, broker: Mosquitto, tmp_path: Path
) -> None:
    letters = tmp_path / "letters"
    publish(world, "large", "flat a", "flat " + "\x01" * 60_000, "flat b")
    away = ("--dead-letters", str(letters))
    with subscribing(broker, "ps2stream/large/#") as subscriber:
        connector = sink(world, broker, "large", *away)
        assert subscriber.until_last("flat b") == [1, 3]
        connector.until(lambda line: line.get("done") == 3)
        assert connector.stop()["bad"] == 1
    [letter] = map(json.loads, letters.read_text().splitlines())
    assert letter["reason"] == "answered Packet too large"
    assert [(m["match"]["seq"], m["reason"]) for m in letter["body"]] == [(2, "Packet too large")]
    publish(world, "denied", "flat a")
    connector = sink(world, broker, "denied", "--topic", "denied/{query}")
    code, error = connector.failed()
    assert (code, error["code"]) == (7, "failed_precondition")
    assert "answered Not authorized" in error["message"]


def test_what_the_broker_refuses_ends_the_sink(
    world: World, broker: Mosquitto, tmp_path: Path
) -> None:
    publish(world, "refused", "flat a")
    wrong = tmp_path / "password"
    wrong.write_text("guess")
    assert sink(world, broker, "refused", "--password-file", str(wrong)).failed()[0] in (10, 11)
    for topic in ("a/+", "#", "$SYS/x", "a/{text}", ""):
        code, error = sink(world, broker, "refused", "--topic", topic).failed()
        assert (code, error["violations"][0]["field"]) == (2, "topic"), topic
