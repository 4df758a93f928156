"""Service to a feed: the newest matches are in the file once, whatever is killed."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.connectors.conftest import Program, World

pytestmark = pytest.mark.slow

ATOM = "{http://www.w3.org/2005/Atom}"


def publish(world: World, session: str, *texts: str) -> None:
    with world.client() as client:
        client.insert(session, "flat", session=session)
        rows = [
            {"id": str(n), "lon": 1, "lat": 2, "text": t, "time": 5} for n, t in enumerate(texts)
        ]
        client.publish(rows)


def numbers_in(file: Path) -> list[int]:
    entries = ET.parse(file).iter(f"{ATOM}entry")
    return [int(str(entry.findtext(f"{ATOM}content")).split()[1]) for entry in entries]


def feed(world: World, session: str, file: Path) -> Program:
    where = ["--session", session, "--file", str(file), "--entries", "20", "--batch", "1"]
    return world.connect("atom", *where)


@pytest.mark.takes_turns
def test_a_killed_feed_has_each_match_once_and_in_order(world: World, tmp_path: Path) -> None:
    file = tmp_path / "feed.xml"
    for first in range(0, 30, 10):
        publish(world, "fed", *(f"flat {n}" for n in range(first, first + 10)))
        connector = feed(world, "fed", file)
        connector.until(lambda line: line.get("done", 0) >= 3)
        numbers_in(file)  # whole, while it is being replaced
        connector.kill()
        numbers_in(file)
    world.kill()
    world.start()
    connector = feed(world, "fed", file)
    connector.ready()
    deadline = time.monotonic() + 60
    while numbers_in(file)[:1] != [29]:
        assert time.monotonic() < deadline, numbers_in(file)
        time.sleep(0.02)
    assert connector.stop()["bad"] == 0
    assert numbers_in(file) == list(range(29, 9, -1))
    assert [path.name for path in tmp_path.iterdir()] == ["feed.xml"]


def test_a_file_of_something_else_ends_the_sink(world: World, tmp_path: Path) -> None:
    file = tmp_path / "diary"
    file.write_text("dear diary")
    code, error = feed(world, "diary", file).failed()
    assert (code, error["violations"][0]["field"]) == (2, "file")
    assert file.read_text() == "dear diary"
