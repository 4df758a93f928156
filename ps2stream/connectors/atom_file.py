"""Service to a file: a session's newest matches as a feed, which a web server can serve."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from ps2stream.connectors.atom_feed import (
    FEED_BYTES,
    AtomEntry,
    AtomHead,
    add_entries,
    make_entry_id,
    make_id,
    read_entries,
    write_feed,
)
from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.connectors.readable import MessageStyle, read_gap
from ps2stream.connectors.sink_loop import SinkAttempt, SinkPart, SinkVerdict
from ps2stream.errors import invalid


@dataclass(frozen=True, slots=True)
class AtomOptions:
    """Options of a feed: its file, format and most entries, the URL of a page about it, and its
    own."""

    file: Path
    kind: Literal["atom", "rss"] = "atom"
    most: int = 100
    page: str = ""
    self_url: str = ""


class AtomReceiver:
    """A file that is replaced as a whole, and on the disk before its matches are acknowledged.
    After a kill, a match that comes again is known by its id: the feed has it once. Raises
    InvalidArgument."""

    def __init__(self, options: AtomOptions, style: MessageStyle) -> None:
        for field, url in (("page_url", options.page), ("self_url", options.self_url)):
            if url and not url.startswith(("https://", "http://")):
                raise invalid(field, "expected a URL that begins with https:// or http://")
        if options.kind == "rss" and not (options.page or options.self_url):
            raise invalid("page_url", "is needed for RSS, whose channels have a link")
        self._options = options
        self._style = style
        self._entries = read_entries(_read_file(options.file), options.kind)
        title = f"Matches of {style.session_name}"
        self._head = AtomHead(make_id(style.session), title, options.page, options.self_url)

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._write_entries)
        except OSError as error:
            problem = f"cannot write {self._options.file}: {error.strerror}"
            raise invalid("file", problem) from None
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def measure(self, item: DeliveryItem) -> int:
        """Returns the length of the item's JSON."""
        return len(item.body)

    def prepare(self, part: SinkPart) -> list[AtomEntry]:
        """Returns an entry for each match or gap."""
        return [self._build_entry(item, part) for item in part.items]

    async def attempt(self, name: str, body: list[AtomEntry]) -> SinkAttempt:
        """Adds the entries and replaces the file."""
        options = self._options
        self._entries = add_entries(self._entries, body, options.kind, options.most)
        try:
            await asyncio.to_thread(self._write_entries)
        except OSError as error:
            return SinkAttempt(SinkVerdict.AGAIN, f"{options.file}: {error.strerror}")
        return SinkAttempt(SinkVerdict.ACCEPTED)

    def describe(self, body: list[AtomEntry]) -> Any:
        """Returns the ids and texts of the entries."""
        return [{"id": entry.id, "title": entry.title, "text": entry.text} for entry in body]

    def _build_entry(self, item: DeliveryItem, part: SinkPart) -> AtomEntry:
        place = part.place
        id = make_entry_id(place.incarnation, place.session, item.number)
        if item.query_id is None:
            gap = read_gap(item, self._style.session_name)
            return AtomEntry(id, gap.title, gap.text, datetime.now(UTC))
        match = self._style.read(item)
        details = "".join(f"\n{detail}" for detail in match.details)
        at = match.at or datetime.now(UTC)
        return AtomEntry(
            id, match.query_id or "-", f"{match.text}{details}", at, match.link, match.place
        )

    def _write_entries(self) -> None:
        options = self._options
        data = write_feed(self._head, self._entries, options.kind, datetime.now(UTC))
        replace_synced(options.file, data)


def replace_synced(path: Path, data: bytes) -> None:
    """Replaces a file as a whole, with the permissions that new files have; it is on the disk when
    this returns. Raises OSError, with the old file in its place."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_file(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(FEED_BYTES + 1)
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise invalid("file", f"cannot read {path}: {error.strerror}") from None
