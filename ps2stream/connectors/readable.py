"""Matches as people read them: a title, and a line each.

Texts, ids and attributes come from anybody. Here they become one line without control characters
and without characters that reverse or hide others; each sink escapes what its receiver gives a
meaning to.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from ps2stream.connectors.deliveries import DeliveryItem
from ps2stream.errors import invalid

FIELDS = frozenset({"object_id", "query_id", "session", "seq", "lat", "lon"})
"""What a link may contain."""
NAME_CHARACTERS = 80
"""Most characters of an id or an attribute's value."""
DETAILS_CHARACTERS = 300
"""Most characters of all details on one line."""
LINK_CHARACTERS = 1000
"""Most characters of a link; a match whose link would be longer has none."""
MOST_SHOWN = 10
"""Most attributes that a message shows."""
_SPACE = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Marks of direction, invisible separators and tags; joiners stay, as scripts and emoji need them.
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff\ud800-\udfff]"
)
_FIELD = re.compile(r"\{(\w+)\}")
_LINES_AHEAD = 8
"""Times the wanted length that is cleaned of a text at all: the rest would be cut anyway."""


class ReadableMatch(NamedTuple):
    """A match, clean and cut. details: attributes and the place, each as a text. at: its time, None
    if it has none that a calendar knows. place: latitude and longitude in degrees."""

    seq: int
    query_id: str
    text: str
    details: tuple[str, ...]
    link: str
    at: datetime | None
    place: tuple[float, float] | None

    def line(
        self,
        with_query: bool,
        escape: Callable[[str], str] = str,
        escape_link: Callable[[str], str] = str,
    ) -> str:
        """Returns all of it on one line, but the time."""
        start = f"{escape(self.query_id)}: " if with_query else ""
        shown = clean_text(", ".join(self.details), DETAILS_CHARACTERS)
        details = f" ({escape(shown)})" if shown else ""
        link = f" {escape_link(self.link)}" if self.link else ""
        return f"{start}{escape(self.text)}{details}{link}"


@dataclass(frozen=True, slots=True)
class MessageStyle:
    """How matches are shown. link: a template of an https URL, with FIELDS in braces. show: names
    of attributes. most_characters: of a text. Raises InvalidArgument."""

    session: str
    link: str = ""
    show: tuple[str, ...] = ()
    most_characters: int = 280

    def __post_init__(self) -> None:
        if len(self.show) > MOST_SHOWN:
            raise invalid("show", f"expected at most {MOST_SHOWN} names, got {len(self.show)}")
        if self.link:
            _check_link(self.link)

    def read(self, item: DeliveryItem) -> ReadableMatch:
        """Returns the match of an item, which is no gap."""
        row = json.loads(item.body)
        shown = row.get("attributes") or {}
        details = [
            f"{clean_text(name, NAME_CHARACTERS)}: {_show_value(shown[name])}"
            for name in self.show
            if name in shown
        ]
        place = None
        if (lat := row.get("lat")) is not None and (lon := row.get("lon")) is not None:
            place = (float(lat), float(lon))
            details.append(f"{lat:.5f}, {lon:.5f}")
        return ReadableMatch(
            item.number,
            clean_text(item.query_id or "", NAME_CHARACTERS),
            clean_text(row.get("text") or "", self.most_characters),
            tuple(details),
            self._fill_link(row),
            _read_time(row.get("time")),
            place,
        )

    def title(self, matches: list[ReadableMatch]) -> str:
        """Returns what is said above matches: the query of a single one, or how many there are."""
        if len(matches) == 1:
            return matches[0].query_id
        return f"{len(matches)} matches in {self.session_name}"

    @property
    def session_name(self) -> str:
        """The session as people read it."""
        return clean_text(self.session, NAME_CHARACTERS)

    def _fill_link(self, row: Mapping[str, Any]) -> str:
        values = {name: quote(str(row.get(name, "")), safe="") for name in FIELDS - {"session"}}
        made = _fill_fields(self.link, {**values, "session": quote(self.session, safe="")})
        return made if len(made) <= LINK_CHARACTERS else ""


class ReadableGap(NamedTuple):
    """Matches that a session has lost: a title and a sentence."""

    title: str
    text: str


def read_gap(item: DeliveryItem, session: str) -> ReadableGap:
    """Returns what a gap says. session: as people read it."""
    gap = json.loads(item.body)["gap"]
    if gap.get("shed") is not None:
        text = "The service had too many posts and left some out; matches may be missing."
    elif gap["count"]:
        text = f"{gap['count']} matches were dropped, because nobody took them in time."
    else:
        text = "Matches may be missing; how many is not known."
    return ReadableGap(f"Matches are missing in {session}", text)


def clean_text(text: str, most: int) -> str:
    """Returns the text on one line, without characters that control, reverse or hide others, and of
    at most `most` characters, the last of which is an ellipsis where it was cut."""
    some = text[: _LINES_AHEAD * most]
    line = _SPACE.sub(" ", _HIDDEN.sub("", some)).strip()
    cut = len(line) > most or len(some) < len(text)
    return line[: most - 1].rstrip() + "…" if cut else line


def _show_value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    return clean_text(str(value), NAME_CHARACTERS)


def _read_time(unix_ms: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(unix_ms / 1000, UTC)
    except (OSError, OverflowError, TypeError, ValueError):
        return None


def _fill_fields(link: str, values: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda found: values[found[1]], link)


def _check_link(link: str) -> None:
    if not set(_FIELD.findall(link)) <= FIELDS or set("{}") & set(_FIELD.sub("", link)):
        raise invalid("link", f"expected fields of {', '.join(sorted(FIELDS))} in braces")
    host = link.removeprefix("https://").partition("/")[0]
    if not link.startswith("https://") or not host or "{" in host:
        raise invalid("link", "expected a URL that begins with https:// and a host")
    if len(link) > LINK_CHARACTERS or _SPACE.search(link) or set('<>"|\\^`') & set(link):
        raise invalid(
            "link",
            f"expected at most {LINK_CHARACTERS} characters without spaces, quotes, <, > and |",
        )
