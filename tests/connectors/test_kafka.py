"""Kafka to service: nothing is lost, whatever is killed; what comes twice has one id."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ps2stream.client import Client
from tests.connectors.conftest import QUOTA, Program, World
from tests.connectors.kafka_broker import Broker

pytestmark = pytest.mark.slow


def post(number: int, **more: Any) -> bytes:
    return json.dumps({"lat": 1, "lon": 2, "text": f"flood {number}", **more}).encode()


def source(world: World, kafka: Broker, topic: str, *more: str) -> Program:
    where = ["--bootstrap", kafka.address, "--topic", topic, "--group", f"of-{topic}"]
    return world.connect("kafka-source", *where, *more)


def arrived(client: Client, session: str, texts: set[str]) -> Counter[tuple[str, str]]:
    """How often (object id, text) came, until all these texts have."""
    missing = set(texts)
    found: Counter[tuple[str, str]] = Counter()
    deadline = time.monotonic() + 60
    with client.subscribe(session) as matches:
        for match in matches:
            found[match.object_id, str(match.text)] += 1
            missing.discard(str(match.text))
            if not missing:
                return found
            assert time.monotonic() < deadline
    return found


def until_read(kafka: Broker, topic: str, count: int) -> None:
    deadline = time.monotonic() + 60
    while sum(max(0, n) for n in kafka.committed(f"of-{topic}", topic).values()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_posts_go_from_the_topic_to_a_subscriber(world: World, kafka: Broker) -> None:
    kafka.create("plain", "plain-dead", partitions=2)
    bad: list[bytes | None] = [b"{", None, post(0, lat=91), b"[]"]
    kafka.produce("plain", [post(1, id="mine"), post(2), *bad, post(3)])
    with world.client() as client:
        client.insert("plain", "flood", session="plain")
        connector = source(world, kafka, "plain", "--dead-letter-topic", "plain-dead")
        found = arrived(client, "plain", {"flood 1", "flood 2", "flood 3"})
        connector.until(lambda line: line.get("done") == 3 and line.get("bad") == 4)
    last = connector.stop()
    assert set(found) == {("mine", "flood 1"), ("plain/1/0", "flood 2"), ("plain/0/3", "flood 3")}
    assert (last["taken"], last["lag"], last["waiting"]) == (7, 0, 0)
    assert sum(kafka.committed("of-plain", "plain").values()) == 7
    letters = kafka.read("plain-dead")
    assert sorted(m.value() or b"" for m in letters) == sorted(b or b"" for b in bad)
    why = {m.value(): dict(m.headers()) for m in letters}
    assert why[post(0, lat=91)]["ps2stream-origin"] == b"plain/0/2"
    assert b"lat: expected degrees in [-90, 90], got 91" in why[post(0, lat=91)]["ps2stream-error"]


def test_without_an_option_a_bad_record_stops_the_connector(world: World, kafka: Broker) -> None:
    kafka.create("stops")
    kafka.produce("stops", [post(1), post(2), b'{"lat": 1}', post(4)])
    with world.client() as client:
        client.insert("stops", "flood", session="stops")
        for _ in range(2):  # what was before it is published once
            code, error = source(world, kafka, "stops").failed()
            assert code == 2
            assert error["violations"][0]["field"] == "record stops/0/2"
        assert kafka.committed("of-stops", "stops") == {0: 2}
        connector = source(world, kafka, "stops", "--skip-bad")
        found = arrived(client, "stops", {"flood 1", "flood 2", "flood 4"})
        assert set(found.values()) == {1}
        connector.until(lambda line: line.get("bad") == 1)
        connector.stop()


def test_a_service_that_refuses_gets_each_record_once(world: World, kafka: Broker) -> None:
    kafka.create("much", partitions=2)
    kafka.produce("much", [post(i) for i in range(4 * QUOTA)])
    with world.client() as client:
        client.insert("much", "flood", session="much")
        connector = source(world, kafka, "much")
        found = arrived(client, "much", {f"flood {i}" for i in range(4 * QUOTA)})
    connector.stop()
    assert len(found) == found.total() == 4 * QUOTA
    assert world.refused("quota") > 0


def test_kills_of_connector_broker_and_service_lose_nothing(
    world: World, kafka: Broker, tmp_path: Path
) -> None:
    """Everything is killed once while it works; two connectors share the group meanwhile."""
    topic, n = "killed", 12_000
    kafka.create(topic, partitions=4)
    with world.client() as client:
        client.insert(topic, "flood", session=topic)
    kafka.produce(topic, [post(i) for i in range(n // 2)])
    (tmp_path / "librdkafka").write_text(
        "session.timeout.ms=2000\nheartbeat.interval.ms=300\nreconnect.backoff.max.ms=500\n"
    )
    options = ("--batch", "200", "--kafka-config", str(tmp_path / "librdkafka"))
    first = source(world, kafka, topic, *options)
    first.until(lambda line: line.get("done", 0) > 1000)
    first.kill()
    done = first.said[-1]["taken"]
    pair = [source(world, kafka, topic, *options) for _ in range(2)]
    for connector in pair:
        connector.ready()
    pair[0].until(lambda line: line.get("done", 0) > 0)
    world.kill()
    kafka.stop(signal.SIGKILL)
    kafka.launch()
    world.start()
    kafka.wait()
    kafka.produce(topic, [post(i) for i in range(n // 2, n)])
    until_read(kafka, topic, n)
    assert all(connector.running for connector in pair)
    with world.client() as client:
        found = arrived(client, topic, {f"flood {i}" for i in range(n)})
    assert len(found) == n  # a repeat has the id of the first
    assert done < n // 2
    for connector in pair:
        connector.stop()
