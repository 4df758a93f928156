"""Service to HTTP: in order, each until it is there, whatever the receiver does."""

from __future__ import annotations

import json
import urllib.request
from itertools import pairwise
from pathlib import Path

import pytest

from tests.connectors.conftest import Program, World
from tests.support.certificates import Authority
from tests.support.kafka_broker import free_port
from tests.support.webhook_receiver import SECRET, Receiver, receiving

pytestmark = [pytest.mark.slow, pytest.mark.takes_turns]


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new secret and the one that receivers still have."""
    file: Path = tmp_path_factory.mktemp("secrets") / "secrets"
    file.write_text("whsec_" + "A" * 32 + f"\n{SECRET}\n")
    return file


def hook(world: World, session: str, to: Receiver, secrets: Path, *more: str) -> Program:
    where = ["--session", session, "--url", to.url, "--secret-file", str(secrets)]
    return world.connect("webhook", *where, *more)


def publish(world: World, session: str, *texts: str) -> None:
    with world.client() as client:
        client.insert(session, session, session=session)
        for number, text in enumerate(texts):
            row = {"id": str(number), "lon": 1, "lat": 2, "text": f"{session} {text}", "time": 5}
            client.publish([row | {"attributes": {"number": number}, "payload": [number]}])


def test_bodies_come_in_order_signed_and_again_until_they_are_taken(
    world: World, secrets: Path, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("127.0.0.1")
    publish(world, "hooked", "a", "b", "c", "d", "e")
    with receiving(pair.cert, pair.key) as receiver:
        receiver.script = [503, None, (429, {"retry-after": "1"}), 204, 408, 200]
        ca = ("--receiver-ca", str(authority.ca))
        connector = hook(world, "hooked", receiver, secrets, "--batch", "2", *ca)
        connector.until(lambda line: line.get("done") == 5)
        requests = receiver.requests
    last = connector.stop()
    assert [last[name] for name in ("taken", "done", "bad", "retries")] == [5, 5, 0, 4]
    assert all(r.good for r in requests)
    taken = [n for r in requests if 200 <= r.answered < 300 for n in r.numbers]
    assert taken == [1, 2, 3, 4, 5]
    assert len({r.id for r in requests[:4]}) == 1  # all attempts of one body
    assert len({r.id for r in requests}) == len({tuple(r.numbers) for r in requests})
    waited = [int(r.headers["webhook-timestamp"]) for r in requests]
    assert waited[3] > waited[2]
    match = requests[0].body["data"]["matches"][0]
    assert requests[0].body["type"] == "ps2stream.matches"
    assert requests[0].body["data"]["session"] == "hooked"
    wanted = {"seq": 1, "query_id": "hooked", "object_id": "0", "text": "hooked a", "time": 5}
    wanted |= {"attributes": {"number": 0}, "payload": [0]}
    assert match | wanted == match
    assert (match["lon"], match["lat"]) == (1, 2)


def test_kills_lose_nothing_and_what_comes_again_has_its_id(world: World, secrets: Path) -> None:
    publish(world, "killed", "a", "b")
    with receiving() as receiver:
        receiver.script = [204]
        connector = hook(world, "killed", receiver, secrets, "--batch", "1")
        receiver.until(2)
        connector.kill()
        publish(world, "killed", "c")
        world.kill()
        world.start()
        connector = hook(world, "killed", receiver, secrets, "--batch", "1")
        connector.until(lambda line: line.get("taken", 0) > 0 and line["waiting"] == 0)
        publish(world, "killed", "d")
        world.kill()
        world.start()
        publish(world, "killed", "e")
        while receiver.requests[-1].numbers[-1] < 5:
            receiver.until(len(receiver.requests) + 1)
        connector.stop()
    numbers = [n for r in receiver.requests for n in r.numbers]
    assert sorted(set(numbers)) == [1, 2, 3, 4, 5]
    falls = sum(b <= a for a, b in pairwise(numbers))
    assert falls <= 3  # once a kill: what was not acknowledged comes again, in order
    ids = {r.id for r in receiver.requests}
    assert len(ids) == 5  # a body that came twice had the same id


def test_what_is_refused_for_good_ends_the_connector_or_is_put_away(
    world: World, secrets: Path, tmp_path: Path
) -> None:
    publish(world, "refused", "a", "b", "c")
    letters = tmp_path / "letters"
    with receiving() as receiver:
        receiver.script = [(302, {"location": "http://127.0.0.2/"})]
        code, error = hook(world, "refused", receiver, secrets, "--batch", "1").failed()
        assert (code, error["code"]) == (7, "failed_precondition")
        assert "answered 302 Found (redirects are not followed)" in error["message"]
        receiver.script = [400]
        away = ("--batch", "1", "--dead-letters", str(letters))
        connector = hook(world, "refused", receiver, secrets, *away)
        connector.until(lambda line: line.get("done") == 3)
        assert connector.stop()["bad"] == 1
        [letter] = map(json.loads, letters.read_text().splitlines())
        assert letter["reason"] == "answered 400 Bad Request"
        assert [m["seq"] for m in letter["body"]["data"]["matches"]] == [1]
        publish(world, "refused", "d")
        receiver.script = [410]
        code, error = hook(world, "refused", receiver, secrets, *away).failed()
        assert code == 7
        assert "410 Gone" in error["message"]
    dead = receiver  # nobody listens there any more
    given = ("--batch", "1", "--give-up", "0.01", "--dead-letters", str(letters))
    connector = hook(world, "refused", dead, secrets, *given)
    connector.until(lambda line: line.get("done", 0) > 0)
    connector.stop()
    assert "ClientConnectorError" in letters.read_text()


def test_what_is_not_taken_stays_when_the_connector_is_stopped(world: World, secrets: Path) -> None:
    publish(world, "stays", "a")
    with receiving() as receiver:
        receiver.script = [500] * 1000
        port = str(free_port())
        connector = hook(world, "stays", receiver, secrets, "--metrics-port", port)
        receiver.until(1)
        connector.until(lambda line: line.get("waiting") == 1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            told = answer.read().decode()
        assert 'ps2stream_connector_waiting{connector="webhook"} 1.0' in told
        assert 'ps2stream_connector_taken_total{connector="webhook"} 1.0' in told
        assert connector.stop()["waiting"] == 1
        receiver.script = []
        connector = hook(world, "stays", receiver, secrets)
        connector.until(lambda line: line.get("done") == 1)
        connector.stop()
