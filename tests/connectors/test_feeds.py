"""Feeds to service: nothing is left out, whatever is killed, and nothing bad is published."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from ps2stream.client.matches import Match
from ps2stream.space.regions import Circle
from tests.connectors.conftest import Program, World, arrived
from tests.support.alerts import SQUARE, alert, area, atom, info
from tests.support.feed_server import FeedServer, ScriptedAnswer, feed_server

pytestmark = [pytest.mark.slow, pytest.mark.takes_turns]


@pytest.fixture
def served() -> Iterator[FeedServer]:
    with feed_server() as found:
        yield found


def quake(number: int, updated: int = 1_767_600_000_000, **more: Any) -> dict[str, Any]:
    """A Feature as the USGS writes it."""
    return {
        "type": "Feature",
        "id": f"us{number}",
        "properties": {
            "mag": 4.5, "place": "sea", "time": 1_767_590_000_000, "updated": updated, "tz": None,
            "tsunami": 0, "types": ",origin,", "type": "earthquake", "title": f"quake {number}",
        } | more,
        "geometry": {"type": "Point", "coordinates": [142.1, 39.8, 41.2]},
    }  # fmt: skip


def quakes(*features: Any) -> bytes:
    return json.dumps({"type": "FeatureCollection", "features": features}).encode()


def poll(world: World, served: FeedServer, state: Path, *more: str, path: str = "/f") -> Program:
    words = ["--url", f"{served.url}{path}", "--state", str(state), "--every", "1", *more]
    return world.connect("geojson-source", *words)


def attribute(match: Match, name: str) -> Any:
    assert match.attributes is not None
    return match.attributes[name]


def payload(match: Match) -> Any:
    return match.payload


@pytest.mark.every_turn
def test_a_feed_is_polled_and_changes_are_published(
    world: World, served: FeedServer, tmp_path: Path
) -> None:
    letters = tmp_path / "letters"
    with world.client() as client:
        client.insert("quakes", 'mag > 4 AND type = "earthquake"', session="quakes")
        bad = {"type": "Feature", "id": "nowhere", "properties": {"title": "x"}, "geometry": None}
        served.documents["/f"] = quakes(quake(1), quake(2), bad)
        connector = poll(world, served, tmp_path / "state", "--dead-letters", str(letters))
        with client.subscribe("quakes", payload=True) as matches:
            found = list(islice(matches, 2))
            served.wait_for("/f", 304)
            served.script["/f"] = [ScriptedAnswer(503, {"Retry-After": "1"})]
            served.documents["/f"] = quakes(quake(1, 1_767_700_000_000, mag=5.5), quake(2), bad)
            changed = next(iter(matches))
    assert {m.object_id for m in found} == {"us1/1767600000000", "us2/1767600000000"}
    assert changed.object_id == "us1/1767700000000"
    assert attribute(changed, "mag") == 5.5
    assert attribute(changed, "feature") == "us1"
    assert payload(changed)["geometry"]["coordinates"] == [142.1, 39.8, 41.2]
    connector.until(lambda line: line.get("done") == 3)
    last = connector.stop()
    assert (last["taken"], last["done"], last["bad"], last["retries"]) == (4, 3, 1, 1)
    [letter] = map(json.loads, letters.read_text().splitlines())
    assert (letter["id"], letter["record"]) == ("nowhere", bad)
    assert "geometry: is null" in letter["reason"]


def test_a_killed_source_goes_on_where_it_was(
    world: World, served: FeedServer, tmp_path: Path
) -> None:
    n = 3000
    with world.client() as client:
        client.insert("lasting", "quake", session="lasting")
    served.documents["/f"] = quakes(*map(quake, range(n)))
    connector = poll(world, served, tmp_path / "state")
    connector.until(lambda line: line.get("done", 0) >= 300)
    connector.kill()
    done = connector.said[-1]["done"]
    assert done < n
    connector = poll(world, served, tmp_path / "state")
    connector.until(lambda line: line.get("done", 0) >= 300)
    world.kill()
    world.start()
    with world.client() as client:
        found = arrived(client, "lasting", {f"quake {i}" for i in range(n)})
    assert len(found) == n  # a repeat has the id of the first
    connector.until(lambda line: line.get("taken", 0) and line["done"] == line["taken"])
    last = connector.stop()
    assert last["taken"] <= n - done  # what was stored is not read again
    again = poll(world, served, tmp_path / "state", "--once")
    assert again.until(lambda line: line["event"] == "stopped")["taken"] == 0


def test_what_is_over_is_counted_and_not_bad(
    world: World, served: FeedServer, tmp_path: Path
) -> None:
    served.documents["/f"] = quakes(quake(1, until="2026-01-01T00:00:00Z"), quake(2))
    last = poll(world, served, tmp_path / "state", "--once").until(
        lambda line: line["event"] == "stopped"
    )
    assert (last["done"], last["expired"], last["bad"]) == (2, 1, 0)


def test_two_processes_do_not_share_a_state(
    world: World, served: FeedServer, tmp_path: Path
) -> None:
    served.documents["/f"] = served.documents["/g"] = quakes()
    connector = poll(world, served, tmp_path / "state")
    connector.ready()
    code, error = poll(world, served, tmp_path / "state").failed()
    assert code != 0
    assert "another process uses the state" in error["message"]
    connector.stop()
    code, error = poll(world, served, tmp_path / "state", path="/g").failed()
    assert error["violations"][0]["field"] == "state"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (b'{"type": "FeatureCollection"', "Expecting"),
        (b'{"features": 1}', "expected a FeatureCollection"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "nested too deeply"),
        (quakes({"type": "Feature", "geometry": None}), "geometry: is null"),
    ],
)
def test_a_bad_document_ends_the_source_and_says_why(
    world: World, served: FeedServer, tmp_path: Path, document: bytes, problem: str
) -> None:
    served.documents["/f"] = document
    code, error = poll(world, served, tmp_path / "state").failed()
    assert code == 2
    assert problem in error["message"]


def test_alerts_reach_who_lives_at_their_edge_and_so_does_the_cancellation(
    world: World, served: FeedServer, tmp_path: Path
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    sent, expires = now.isoformat(), (now + timedelta(hours=2)).isoformat()
    letters = tmp_path / "letters"
    served.documents["/a.xml"] = alert(info(area(SQUARE), expires=expires), sent=sent).encode()
    served.documents["/feed"] = atom(("e1", "/a.xml"), ("e2", "/none.xml")).encode()
    wanted = 'flood AND severity_level >= 3 AND status = "Actual"'
    with world.client() as client:
        # 9.9 km north of the area, and 30 km: the first touches it.
        client.insert("near", wanted, Circle(8.2, 47.5 + 9.9 / 111.2, 10), session="alerts")
        client.insert("far", wanted, Circle(8.2, 47.5 + 30 / 111.2, 10), session="alerts")
        state = ["--state", str(tmp_path / "state"), "--dead-letters", str(letters)]
        words = ["cap-source", "--url", f"{served.url}/feed", "--every", "1", *state]
        connector = world.connect(*words)
        with client.subscribe("alerts", payload=True) as matches:
            first = next(iter(matches))
            assert attribute(first, "message") == "Alert"
            assert payload(first)["identifier"] == "a1"
            connector.kill()
            reference = f"<references>s,a1,{sent}</references>"
            served.documents["/c.xml"] = alert(
                "", id="a2", kind="Cancel", more=reference, sent=sent
            ).encode()
            served.documents["/feed"] = atom(("e2", "/none.xml"), ("e3", "/c.xml")).encode()
            connector = world.connect(*words)  # which knows where the alert went
            queries = {first.query_id}
            for match in matches:
                queries.add(match.query_id)
                if attribute(match, "message") == "Cancel":
                    break
    assert queries == {"near"}
    connector.stop()
    [letter] = map(json.loads, letters.read_text().splitlines())
    assert (letter["id"], "answered 404" in letter["reason"]) == ("e2", True)


def test_a_file_is_followed_over_renames_and_kills(world: World, tmp_path: Path) -> None:
    path, letters = tmp_path / "posts.jsonl", tmp_path / "letters"
    with world.client() as client:
        client.insert("lines", "line", session="lines")

    def write(begin: int, end: int) -> None:
        with path.open("a") as file:
            for i in range(begin, end):
                file.write(json.dumps({"lat": 1, "lon": 2, "text": f"line {i}"}) + "\n")

    words = [str(path), "--follow", "--every", "0.05", "--state", str(tmp_path / "state")]
    words += ["--dead-letters", str(letters)]
    write(0, 3000)
    connector = world.connect("file-source", *words)
    connector.until(lambda line: line.get("done", 0) > 0)
    connector.kill()
    with path.open("a") as file:
        file.write("no post\n")
    path.rename(tmp_path / "posts.jsonl.1")
    write(3000, 6000)
    connector = world.connect("file-source", *words)
    connector.until(lambda line: line.get("done", 0) > 0)
    path.rename(tmp_path / "posts.jsonl.2")
    write(6000, 6100)
    with world.client() as client:
        found = arrived(client, "lines", {f"line {i}" for i in range(6100)})
    assert len(found) == 6100  # a repeat has the id of the first
    connector.stop()
    [letter] = map(json.loads, letters.read_text().splitlines())
    assert letter["line"] == "no post"


def test_a_file_without_follow_ends(world: World, tmp_path: Path) -> None:
    path = tmp_path / "quakes.csv"
    path.write_text('lat,lon,text,mag\n1,2,"two\nlines",3.5\n1,2,last,')
    with world.client() as client:
        client.insert("cells", "lines AND mag > 3", session="cells")
        begun = time.monotonic()
        connector = world.connect("file-source", str(path), "--attributes", "mag:number")
        last = connector.until(lambda line: line["event"] == "stopped")
        assert (last["done"], last["bad"]) == (2, 0)
        assert time.monotonic() - begun < 60
        with client.subscribe("cells") as matches:
            assert next(iter(matches)).text == "two\nlines"
    path.write_text("lat,lon,text\n1,2,ok\n1,2\n")
    code, error = world.connect("file-source", str(path)).failed()
    assert code == 2
    assert "expected 3 fields as in the header, got 2" in error["message"]
