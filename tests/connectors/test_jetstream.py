"""Jetstream to service: posts with a place arrive, whatever is killed, and nothing else does."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.connectors.conftest import Program, World, arrived
from tests.support.jetstream_server import Jetstream, id_of, jetstream, make_commit, make_post

pytestmark = [pytest.mark.slow, pytest.mark.takes_turns]


@pytest.fixture
def upstream() -> Iterator[Jetstream]:
    with jetstream() as found:
        yield found


def source(world: World, upstream: Jetstream, *more: str | Path) -> Program:
    return world.connect("jetstream-source", "--url", upstream.url, *map(str, more))


def test_posts_with_a_place_arrive_with_language_and_origin(
    world: World, upstream: Jetstream, tmp_path: Path
) -> None:
    places = tmp_path / "places.csv"
    places.write_text("name,lat,lon,radius_km,population\nYork,53.96,-1.08,8,150000\n")
    letters = tmp_path / "letters"
    with world.client() as client:
        client.insert("floods", "flood", session="jet")
    more = ("--gazetteer", places, "--dead-letters", letters)
    connector = source(world, upstream, *more)
    connector.ready()
    upstream.send(
        make_commit(0, "create") | {"kind": "identity"},
        make_post(1, "flood here", "51.5", "-0.1"),
        make_post(2, "flood somewhere"),
        make_post(3, "flood in York"),
        make_post(4, "flood nowhere", "951.5", "-0.1"),
        "no json",
        make_commit(2, "delete"),
    )
    with world.client() as client, client.subscribe("jet") as matches:
        found = {match.object_id: match for match in islice(matches, 2)}
    assert found.keys() == {id_of(1), id_of(3)}
    assert (found[id_of(1)].lat, found[id_of(1)].lon) == (51.5, -0.1)
    assert found[id_of(1)].attributes == {"place_source": "post", "reply": False, "lang": "en"}
    by_name = {"place_source": "gazetteer", "place_radius_km": 8, "place_name": "York"}
    assert found[id_of(3)].attributes == by_name | {"reply": False, "lang": "en"}
    connector.until(lambda line: line.get("deleted") == 1)
    last = connector.stop()
    assert {n: last[n] for n in ("done", "no_place", "other", "bad")} == {
        "done": 2, "no_place": 1, "other": 1, "bad": 2,
    }  # fmt: skip
    assert len(letters.read_text().splitlines()) == 2
    assert upstream.asked[0]["wantedCollections"] == "app.bsky.feed.post"


def test_deleted_posts_are_withdrawn(world: World, upstream: Jetstream, tmp_path: Path) -> None:
    more = ("--state", tmp_path / "state")
    connector = source(world, upstream, *more)
    connector.ready()
    upstream.send(*(make_post(i, "hail", "1", "2") for i in range(3)))
    connector.until(lambda line: line.get("done") == 3)
    connector.stop()
    connector = source(world, upstream, *more)  # which remembers what the first one published
    connector.ready()
    upstream.send(make_commit(1, "delete"), make_commit(7, "delete"))
    last = connector.until(lambda line: line.get("deleted") == 2)
    assert last["withdrawn"] == 1
    connector.stop()


def test_nothing_is_lost_when_anything_ends(
    world: World, upstream: Jetstream, tmp_path: Path
) -> None:
    n = 1500
    state = tmp_path / "state"
    with world.client() as client:
        client.insert("lasting", "storm", session="lasting")
    connector = source(world, upstream, "--state", state)
    connector.ready()
    upstream.send(make_post(0, "storm 0", "1", "2"))
    connector.until(lambda line: line.get("done", 0) == 1)
    upstream.cut()
    upstream.send(*(make_post(i, f"storm {i}", "1", "2") for i in range(1, n)))
    connector.until(lambda line: line.get("done", 0) > 100)
    connector.kill()
    world.kill()
    upstream.send(*(make_post(i, f"storm {i}", "1", "2") for i in range(n, n + 10)))
    connector = source(world, upstream, "--state", state)
    world.start()
    with world.client() as client:
        found = arrived(client, "lasting", {f"storm {i}" for i in range(n + 10)})
    assert len(found) == n + 10  # a repeat has the id of the first
    connector.until(lambda line: line.get("done", 0) > 0)
    connector.stop()
    before = json.loads(state.read_text())["values"]["cursor"]
    connector = source(world, upstream, "--state", state)
    connector.until(lambda line: line.get("repeats", 0) > 0)
    assert connector.stop()["done"] == 0  # what was stored before an orderly end does not repeat
    assert int(upstream.asked[-1]["cursor"]) == before - 5_000_000


def test_redirects_and_refusals_end_the_connector(world: World, upstream: Jetstream) -> None:
    for status, problem in ((302, "redirects are not followed"), (403, "answered 403")):
        upstream.answer = status
        code, error = source(world, upstream).failed()
        assert code == 7, error
        assert problem in error["message"]


def test_the_commands_of_the_page_lead_to_matches(
    world: World, upstream: Jetstream, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PS2STREAM_SERVER", world.target)
    page = (root / "docs" / "howto" / "jetstream.md").read_text("utf-8").replace("\\\n", " ")
    commands = [
        shlex.split(line) for line in re.findall(r"^\$ ps2stream (.*)$", page, re.MULTILINE)
    ]
    assert [words[0] for words in commands] == ["serve", "insert", "connect", "subscribe"]
    inserted, connected, subscribed = commands[1:]
    assert Program(tmp_path / "insert", *inserted).until(lambda line: "lsn" in line)
    url = next(word for word in connected if word.startswith("wss://"))
    here = {url: upstream.url, "bluesky.state": str(tmp_path / "bluesky.state")}
    connector = world.connect(*(here.get(word, word) for word in connected[1:]))
    connector.ready()
    upstream.send(make_post(1, "gempa bumi", "-6.2", "106.8"), make_post(2, "gempa"))
    reader = Program(tmp_path / "subscribe", *subscribed)
    match = reader.until(lambda line: line.get("object_id") == id_of(1))
    assert match["query_id"] == "quake"
    reader.kill()
    assert connector.stop()["no_place"] == 1
