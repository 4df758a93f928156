"""ps2stream/connectors/atom_feed.py and atom_file.py: well-formed whatever the posts are."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Literal
from xml.dom import minidom
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.connectors.atom_feed import (
    ATOM,
    AtomEntry,
    AtomHead,
    add_entries,
    make_id,
    write_feed,
)
from ps2stream.connectors.atom_file import AtomOptions, AtomReceiver
from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.connectors.readable import MessageStyle
from ps2stream.connectors.sink_loop import SinkPart, SinkVerdict
from ps2stream.errors import InvalidArgument
from ps2stream.v1 import delivery_pb2

NOW = datetime(2026, 1, 5, 8, tzinfo=UTC)
PLACE = delivery_pb2.Cursor(incarnation=7, session=1)
STYLE = MessageStyle("alerts <&>", "https://market.example/{object_id}?a=1&s={seq}")


def item_of(number: int, text: str) -> DeliveryItem:
    row: dict[str, Any] = {"object_id": f"a/{number}", "text": text, "lon": 1.5, "lat": 2}
    return DeliveryItem(number, "flats & <b>", json.dumps(row | {"time": 1767600000000}))


def add(receiver: AtomReceiver, *items: DeliveryItem) -> SinkVerdict:
    async def run() -> SinkVerdict:
        async with receiver:
            body = receiver.prepare(SinkPart("p", list(items), PLACE))
            return (await receiver.attempt("p", body)).verdict

    return asyncio.run(run())


def receiver_of(file: Path, kind: Literal["atom", "rss"] = "atom", most: int = 3) -> AtomReceiver:
    return AtomReceiver(AtomOptions(file, kind, most, "https://example.org/?a&b"), STYLE)


@given(st.text(), st.text(), st.sampled_from(["atom", "rss"]))
def test_any_text_makes_a_feed_that_a_parser_reads_back(title: str, text: str, kind: str) -> None:
    entry = AtomEntry(make_id(title), title, text, NOW, "https://example.org/?a&b", (1, 2))
    head = AtomHead(make_id("feed"), title, "https://example.org/", "https://example.org/x")
    data = write_feed(head, add_entries([], [entry], kind, 5), kind, NOW)
    minidom.parseString(data)
    root = ET.fromstring(data)
    found = root.iter(f"{{{ATOM}}}title" if kind == "atom" else "title")
    titles = [each.text or "" for each in found]
    kept = "".join(c for c in title if c in "\t\n\r" or " " <= c not in "\ufffe\uffff")
    kept = "".join(c for c in kept if not "\ud800" <= c <= "\udfff")
    assert titles == [kept.replace("\r\n", "\n").replace("\r", "\n")] * 2


@pytest.mark.parametrize("kind", ["atom", "rss"])
def test_repeats_change_nothing_and_another_service_goes_on(
    tmp_path: Path, kind: Literal["atom", "rss"]
) -> None:
    file = tmp_path / "feed.xml"
    name = "description" if kind == "rss" else f"{{{ATOM}}}content"

    def numbers() -> list[str]:
        return [str(e.text).split("\n")[0] for e in ET.parse(file).iter(name)][-3:]

    for number in range(1, 7):
        add(receiver_of(file, kind), item_of(number, str(number)))
    for number in range(1, 7):  # also those that are not in it any more
        add(receiver_of(file, kind), item_of(number, str(number)))
        assert numbers() == ["6", "5", "4"]
    later = receiver_of(file, kind)
    body = later.prepare(SinkPart("p", [item_of(1, "new")], delivery_pb2.Cursor(incarnation=8)))
    assert asyncio.run(later.attempt("p", body)).verdict is SinkVerdict.ACCEPTED
    assert numbers() == ["new", "6", "5"]


@pytest.mark.parametrize("kind", ["atom", "rss"])
def test_the_newest_stay_and_a_repeat_is_there_once(
    tmp_path: Path, kind: Literal["atom", "rss"]
) -> None:
    file = tmp_path / "feed.xml"
    assert (
        add(receiver_of(file, kind), item_of(1, "one"), item_of(2, "two")) is SinkVerdict.ACCEPTED
    )
    first = file.read_bytes()
    add(receiver_of(file, kind), item_of(2, "two"), item_of(3, "three"), item_of(4, "four"))
    name, id = ("description", "guid") if kind == "rss" else (f"{{{ATOM}}}content", f"{{{ATOM}}}id")
    entry = "item" if kind == "rss" else f"{{{ATOM}}}entry"
    entries = list(ET.parse(file).iter(entry))
    assert [str(e.findtext(name)).split("\n")[0] for e in entries] == ["four", "three", "two"]
    before = [e.findtext(id) for e in ET.fromstring(first).iter(entry)]
    assert entries[2].findtext(id) == before[0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["feed.xml"]


def test_an_atom_feed_has_what_the_standard_requires(tmp_path: Path) -> None:
    file = tmp_path / "feed.xml"
    add(receiver_of(file), item_of(1, "]]> <script>alert(1)</script> &amp; \x00\u202e"))
    root = ET.parse(file).getroot()
    named = {"a": ATOM, "g": "http://www.georss.org/georss"}
    assert root.tag == f"{{{ATOM}}}feed"
    for required in ("a:id", "a:title", "a:updated", "a:author/a:name"):
        assert root.findtext(required, namespaces=named), required
    [entry] = root.findall("a:entry", named)
    assert entry.findtext("a:updated", namespaces=named) == "2026-01-05T08:00:00.000Z"
    assert entry.findtext("g:point", namespaces=named) == "2.0000000 1.5000000"
    content = entry.find("a:content", named)
    assert content is not None
    assert content.get("type") == "text"
    assert (content.text or "").startswith("]]> <script>alert(1)</script> &amp;\n")
    [link] = [e.get("href") for e in entry.findall("a:link", named)]
    assert link == "https://market.example/a%2F1?a=1&s="
    assert not list(root.iter("script"))
    assert file.stat().st_mode & 0o444


def test_an_rss_channel_has_what_the_standard_requires(tmp_path: Path) -> None:
    file = tmp_path / "feed.xml"
    add(receiver_of(file, "rss"), item_of(1, "<b>bold</b>"))
    channel = ET.parse(file).getroot()[0]
    assert all(channel.findtext(name) for name in ("title", "link", "description"))
    item = channel.find("item")
    assert item is not None
    assert str(item.findtext("description")).startswith("&lt;b&gt;bold"), "as HTML it is text"
    assert parsedate_to_datetime(str(item.findtext("pubDate"))) == NOW
    with pytest.raises(InvalidArgument, match="page_url"):
        AtomReceiver(AtomOptions(file, "rss"), STYLE)


@pytest.mark.parametrize(
    "data",
    [
        b"my diary", b"<html/>", b"<rss version='2.0'/>", b"<feed/>",
        b'<!DOCTYPE x [<!ENTITY a "b">]><feed xmlns="http://www.w3.org/2005/Atom">&a;</feed>',
    ],
)  # fmt: skip
def test_a_file_that_is_something_else_is_not_overwritten(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "feed.xml"
    file.write_bytes(data)
    with pytest.raises(InvalidArgument, match="no feed of the format atom"):
        receiver_of(file)
    assert file.read_bytes() == data


def test_a_disk_that_does_not_take_it_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "www"
    folder.mkdir()
    receiver = receiver_of(folder / "feed.xml")
    body = receiver.prepare(SinkPart("p", [item_of(1, "one")], PLACE))
    folder.rmdir()
    failed = asyncio.run(receiver.attempt("p", body))
    assert failed.verdict is SinkVerdict.AGAIN
    assert "No such file" in failed.outcome
    folder.mkdir()
    assert asyncio.run(receiver.attempt("p", body)).verdict is SinkVerdict.ACCEPTED
