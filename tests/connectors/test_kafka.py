"""Kafka to service: nothing is lost, whatever is killed; what comes twice has one id."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.conftest import QUOTA, Program, World, arrived
from tests.support.kafka_broker import Broker

pytestmark = pytest.mark.slow


def post(number: int, **more: Any) -> bytes:
    return json.dumps({"lat": 1, "lon": 2, "text": f"flood {number}", **more}).encode()


def source(world: World, kafka: Broker, topic: str, *more: str) -> Program:
    where = ["--bootstrap", kafka.address, "--topic", topic, "--group", f"of-{topic}"]
    return world.connect("kafka-source", *where, *more)


@pytest.mark.takes_turns(0)
def test_posts_go_from_the_topic_to_a_subscriber(world: World, kafka: Broker) -> None:
    kafka.create("plain", "plain-dead", partitions=2)
    safely = ("--bootstrap", kafka.secure, "--kafka-config", str(kafka.librdkafka))
    bad: list[bytes | None] = [b"{", None, post(0, lat=91), b"[]"]
    some = {"mag": 4.5, "payload": {"a": 1}}
    kafka.produce("plain", [post(1, id="mine"), post(2), *bad, post(3, **some)])
    with world.client() as client:
        client.insert("plain", "flood", session="plain")
        client.insert("felt", "flood AND mag > 4", session="felt")
        connector = source(world, kafka, "plain", "--dead-letter-topic", "plain-dead", *safely)
        found = arrived(client, "plain", {"flood 1", "flood 2", "flood 3"})
        with client.subscribe("felt", payload=True) as matches:
            match = matches.next(60)
        assert (match.attributes, match.payload) == ({"mag": 4.5}, {"a": 1})
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


@pytest.mark.takes_turns(0)
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


@pytest.mark.takes_turns(1)
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


def sink(world: World, kafka: Broker, session: str, *more: str) -> Program:
    where = ["--bootstrap", kafka.address, "--topic", session, "--session", session]
    return world.connect("kafka-sink", *where, *more)


def written(kafka: Broker, topic: str) -> list[tuple[int, dict[str, Any]]]:
    """The number and the match of each message that was committed."""
    found = kafka.read(topic, **{"isolation.level": "read_committed"})
    return [(int(dict(m.headers())["ps2stream-seq"]), json.loads(m.value())) for m in found]


@pytest.mark.takes_turns(1)
def test_matches_of_a_session_go_to_a_topic(world: World, kafka: Broker) -> None:
    kafka.create("sunk")
    with world.client() as client:
        client.insert("a", "storm", session="sunk")
        client.insert("b", "storm OR Ärger", session="sunk")
        for number in range(3):
            row = {"id": f"o{number}", "lon": 1, "lat": 2, "text": "storm ö", "time": number}
            client.publish([row | {"attributes": {"wind": 30.5}, "payload": b"x"}])
        safely = ("--bootstrap", kafka.secure, "--kafka-config", str(kafka.librdkafka))
        connector = sink(world, kafka, "sunk", *safely)
        connector.until(lambda line: line.get("done") == 6)
        first = kafka.read("sunk")
        assert sorted({m.key() for m in first}) == [b"a", b"b"]
        assert {dict(m.headers())["ps2stream-session"] for m in first} == {b"sunk"}
        found = dict(written(kafka, "sunk"))
        assert list(found) == [1, 2, 3, 4, 5, 6]
        assert found[1] | {"query_id": "", "offset": 0} == {
            "seq": 1, "query_id": "", "partition": 0, "object_id": "o0", "offset": 0,
            "time": 0, "lon": 1.0, "lat": 2.0, "text": "storm ö",
            "attributes": {"wind": 30.5}, "payload_base64": "eA==",
        }  # fmt: skip
        newer = sink(world, kafka, "sunk")  # takes the place of the older one
        assert newer.ready()["after"] == 6
        code, error = connector.failed()
        assert (code, error["code"]) == (7, "failed_precondition")
        client.publish([{"lon": 1, "lat": 2, "text": "Ärger"}])
        newer.until(lambda line: line.get("done") == 1)
    assert newer.stop()["waiting"] == 0
    assert [number for number, _ in written(kafka, "sunk")] == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.takes_turns(2)
def test_kills_of_connectors_broker_and_service_lose_nothing(
    world: World, kafka: Broker, tmp_path: Path
) -> None:
    """From topic to topic, two sources in a group: everything is killed once while it works."""
    n = 12_000
    kafka.create("killed", partitions=4)
    kafka.create("out")
    with world.client() as client:
        client.insert("killed", "flood", session="out")
    kafka.produce("killed", [post(i) for i in range(n // 2)])
    soon = "session.timeout.ms=2000\nheartbeat.interval.ms=300\n"
    (tmp_path / "librdkafka").write_text(soon + "reconnect.backoff.max.ms=500\n")
    options = ("--batch", "200", "--kafka-config", str(tmp_path / "librdkafka"))
    first = source(world, kafka, "killed", *options)
    early = sink(world, kafka, "out")
    early.until(lambda line: line.get("done", 0) > 500)
    first.kill()
    early.kill()
    done = first.said[-1]["taken"]
    assert done < n // 2
    late = sink(world, kafka, "out")
    pair = [source(world, kafka, "killed", *options) for _ in range(2)]
    for connector in (late, *pair):
        connector.ready()
    late.until(lambda line: line.get("done", 0) > 0)
    world.kill()
    kafka.stop(signal.SIGKILL)
    kafka.launch()
    world.start()
    kafka.wait()
    kafka.produce("killed", [post(i) for i in range(n // 2, n)])
    deadline = time.monotonic() + 300
    texts: set[str] = set()
    while len(texts) < n:
        assert time.monotonic() < deadline, len(texts)
        time.sleep(0.2)  # what reads all takes the processor from what writes
        found = written(kafka, "out")
        texts = {match["text"] for _, match in found}
    assert all(connector.running for connector in (late, *pair))
    for connector in (*pair, late):
        connector.stop()
    found = written(kafka, "out")
    assert [number for number, _ in found] == list(range(1, len(found) + 1))  # each once
    posts = {(match["object_id"], match["text"]) for _, match in found}
    assert len(posts) == n  # a repeat has the id of the first
    assert kafka.committed("of-killed", "killed").keys() == {0, 1, 2, 3}
    assert sum(kafka.committed("of-killed", "killed").values()) == n
