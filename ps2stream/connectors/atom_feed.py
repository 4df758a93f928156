"""A feed of matches as XML, Atom 1.0 or RSS 2.0: entries are added to what its file has."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import NamedTuple
from xml.etree import ElementTree as ET

from ps2stream import __version__
from ps2stream.errors import InvalidArgument, invalid

ATOM = "http://www.w3.org/2005/Atom"
GEORSS = "http://www.georss.org/georss"
FEED_BYTES = 64 << 20
"""The largest file that is read as a feed."""
_NAMESPACE = uuid.UUID("7c4c2a4e-6f0b-5d7e-9d0a-3f6c1f2b8e55")
_MOST_SEQ = (1 << 62) - 1
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_DECLARATION = b"<!DOCTYPE"

ET.register_namespace("georss", GEORSS)


class AtomEntry(NamedTuple):
    """A match or a gap of a feed. id: a URN. place: latitude and longitude in degrees."""

    id: str
    title: str
    text: str
    at: datetime
    link: str = ""
    place: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class AtomHead:
    """What a feed says of itself. id: a URN. page: the URL of a page about it, self_url: its own;
    both may be empty."""

    id: str
    title: str
    page: str = ""
    self_url: str = ""


def make_id(*names: object) -> str:
    """Returns the URN of what these names name: the same for the same names."""
    return f"urn:uuid:{uuid.uuid5(_NAMESPACE, repr(names))}"


def make_entry_id(service: int, session: int, seq: int) -> str:
    """Returns the URN of a match: a UUID of version 8, whose second half is its number, so that a
    feed can be ordered by the ids in it. service: its incarnation; session: the number there."""
    first = uuid.uuid5(_NAMESPACE, f"{service}/{session}").int >> 64
    first = first & ~0xF000 | 0x8000
    return f"urn:uuid:{uuid.UUID(int=first << 64 | 0b10 << 62 | seq & _MOST_SEQ)}"


def read_entries(data: bytes, kind: str) -> list[ET.Element]:
    """Returns the entries of a feed of this kind, `atom` or `rss`, which has been written before;
    none of an empty file. Raises InvalidArgument for any other file."""
    if not data.strip():
        return []
    other = _not_a_feed(kind)
    if len(data) > FEED_BYTES or _DECLARATION in data:
        raise other
    try:
        root = ET.fromstring(data)
    except (ET.ParseError, ValueError):
        raise other from None
    if kind == "atom" and root.tag == _atom("feed"):
        return root.findall(_atom("entry"))
    channel = root.find("channel")
    if kind == "rss" and root.tag == "rss" and channel is not None:
        return channel.findall("item")
    raise other


def add_entries(
    before: list[ET.Element], found: list[AtomEntry], kind: str, most: int
) -> list[ET.Element]:
    """Returns the newest `most` entries, the newest first. One that comes again stays where it was,
    and entries of other sessions or services stay behind those of this one."""
    make = _make_atom_entry if kind == "atom" else _make_rss_item
    name = _atom("id") if kind == "atom" else "guid"
    known = {entry.findtext(name) for entry in before}
    new = [make(entry) for entry in found if entry.id not in known]
    stream = _split_id(found[-1].id)[0] if found else ""

    def place(entry: ET.Element) -> tuple[bool, int]:
        of, seq = _split_id(entry.findtext(name) or "")
        return (False, -seq) if of == stream else (True, 0)

    return sorted([*new, *before], key=place)[:most]


def write_feed(head: AtomHead, entries: list[ET.Element], kind: str, now: datetime) -> bytes:
    """Returns the feed as a document in UTF-8."""
    root = (_make_atom if kind == "atom" else _make_rss)(head, now)
    (root if kind == "atom" else root[0]).extend(entries)
    ET.indent(root)
    if kind == "atom":
        ET.register_namespace("", ATOM)
    made: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _split_id(id: str) -> tuple[str, int]:
    """Returns what an entry's id has of its session, and its number."""
    try:
        made = uuid.UUID(id.removeprefix("urn:uuid:"))
    except ValueError:
        return "", 0
    return f"{made.int >> 64:x}", made.int & _MOST_SEQ


def _make_atom(head: AtomHead, now: datetime) -> ET.Element:
    root = ET.Element(_atom("feed"))
    _add_text(root, _atom("id"), head.id)
    _add_text(root, _atom("title"), head.title)
    _add_text(root, _atom("updated"), _format_rfc3339(now))
    _add_text(root, _atom("generator"), "PS2Stream").set("version", __version__)
    author = ET.SubElement(root, _atom("author"))
    _add_text(author, _atom("name"), "PS2Stream")
    for relation, url in (("alternate", head.page), ("self", head.self_url)):
        if url:
            ET.SubElement(root, _atom("link"), rel=relation, href=_clean_xml(url))
    return root


def _make_atom_entry(entry: AtomEntry) -> ET.Element:
    made = ET.Element(_atom("entry"))
    _add_text(made, _atom("id"), entry.id)
    _add_text(made, _atom("title"), entry.title)
    _add_text(made, _atom("updated"), _format_rfc3339(entry.at))
    _add_text(made, _atom("content"), entry.text).set("type", "text")
    if entry.link:
        ET.SubElement(made, _atom("link"), rel="alternate", href=_clean_xml(entry.link))
    _add_place(made, entry)
    return made


def _make_rss(head: AtomHead, now: datetime) -> ET.Element:
    root = ET.Element("rss", version="2.0")
    channel = ET.SubElement(root, "channel")
    _add_text(channel, "title", head.title)
    _add_text(channel, "link", head.page or head.self_url)
    _add_text(channel, "description", head.title)
    _add_text(channel, "lastBuildDate", format_datetime(now, usegmt=True))
    _add_text(channel, "generator", f"PS2Stream {__version__}")
    return root


def _make_rss_item(entry: AtomEntry) -> ET.Element:
    made = ET.Element("item")
    _add_text(made, "guid", entry.id).set("isPermaLink", "false")
    _add_text(made, "title", entry.title)
    # Readers take a description for HTML, so that the text is escaped once more than XML does.
    escaped = entry.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    _add_text(made, "description", escaped)
    _add_text(made, "pubDate", format_datetime(entry.at, usegmt=True))
    if entry.link:
        _add_text(made, "link", entry.link)
    _add_place(made, entry)
    return made


def _add_place(made: ET.Element, entry: AtomEntry) -> None:
    if entry.place is not None:
        lat, lon = entry.place
        _add_text(made, f"{{{GEORSS}}}point", f"{lat:.7f} {lon:.7f}")


def _add_text(parent: ET.Element, name: str, text: str) -> ET.Element:
    made = ET.SubElement(parent, name)
    made.text = _clean_xml(text)
    return made


def _clean_xml(text: str) -> str:
    """Returns the text without the characters that XML cannot have, escaped or not."""
    return _FORBIDDEN.sub("", text)


def _format_rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _atom(name: str) -> str:
    return f"{{{ATOM}}}{name}"


def _not_a_feed(kind: str) -> InvalidArgument:
    problem = f"exists, and is no feed of the format {kind} that this connector has written"
    return invalid("file", problem)
