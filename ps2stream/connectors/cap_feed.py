"""Feeds of alerts: Atom or RSS with links to CAP, a single CAP alert, or the GeoJSON of the
National Weather Service."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urljoin
from xml.etree.ElementTree import Element, tostring

from ps2stream.connectors.alert_messages import AlertMessage, read_cap_alert, read_nws_feature
from ps2stream.connectors.alert_posts import AlertPosts
from ps2stream.connectors.bounded_xml import child_text, list_children, local_name, parse_xml
from ps2stream.connectors.feed_source import EntryPosts, FeedEntry
from ps2stream.connectors.geojson_feed import hash_json, parse_json
from ps2stream.errors import short

log = logging.getLogger(__name__)

ENTRIES = 20_000
MORE = "the feed has further pages, which are not read; use a feed without pages"
CAP_TYPE = "application/cap+xml"


class CapFeed:
    """Reads feeds of alerts. url: what relative links are relative to."""

    batch = 20

    def __init__(
        self, url: str, posts: AlertPosts, now_ms: Callable[[], int] | None = None
    ) -> None:
        self._url = url
        self._posts = posts
        self._now_ms = now_ms or (lambda: int(time.time() * 1000))

    def list_entries(self, body: bytes) -> list[FeedEntry]:
        """Returns the alerts of a document, or links to them. Raises ValueError."""
        if body.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"{":
            return _list_features(body)
        root = parse_xml(body)
        if any(link.get("rel") == "next" for link in list_children(root, "link")):
            log.warning(MORE)
        match local_name(root):
            case "alert":
                return [_make_alert_entry(root)]
            case "feed":
                found = [self._make_link_entry(e, "id", "updated") for e in root
                         if local_name(e) == "entry"]  # fmt: skip
            case "rss":
                found = [self._make_link_entry(item, "guid", "pubDate")
                         for channel in list_children(root, "channel")
                         for item in list_children(channel, "item")]  # fmt: skip
            case other:
                expected = "expected an alert of CAP, a feed of Atom or RSS, or GeoJSON"
                raise ValueError(f"{expected}, got the element {short(other)}")
        if len(found) > ENTRIES:
            raise ValueError(f"has more than {ENTRIES} entries")
        return found[::-1]  # feeds begin with the newest, which may refer to the others

    def convert(
        self, entries: Sequence[FeedEntry], bodies: Sequence[bytes | None], kept: dict[str, Any]
    ) -> list[EntryPosts]:
        """Returns the posts of each alert. Those sent first are kept first, as later ones refer to
        them."""
        out = [EntryPosts() for _ in entries]
        alerts: list[tuple[int, int, AlertMessage]] = []
        for number, (entry, body) in enumerate(zip(entries, bodies, strict=True)):
            try:
                alert = _read_alert(entry, body)
                alerts.append((alert.sent_ms, number, alert))
            except ValueError as error:
                out[number].problems.append(str(error))
        for _, number, alert in sorted(alerts, key=lambda each: each[:2]):
            out[number] = self._posts.make_posts(alert, kept, self._now_ms())
        return out

    def _make_link_entry(self, item: Element, id_name: str, time_name: str) -> FeedEntry:
        for content in list_children(item, "content"):
            for alert in list_children(content, "alert"):
                return _make_alert_entry(alert)
        link = _find_link(item)
        id = child_text(item, id_name) or link
        shown = {"title": child_text(item, "title")[:1000], "link": link[:4096]}
        version = child_text(item, time_name) or hash_json(shown)
        return FeedEntry(id[:1000], version[:200], shown, self._resolve_link(link))

    def _resolve_link(self, link: str) -> str:
        try:
            return urljoin(self._url, link) if link else ""
        except ValueError:
            return ""


def _find_link(item: Element) -> str:
    """Returns where an entry leads: its link to CAP, else its first one."""
    links = list_children(item, "link")
    best = [one for one in links if one.get("type") == CAP_TYPE] or [
        one for one in links if one.get("rel", "alternate") == "alternate"
    ]
    for one in best or links:
        if found := (one.get("href") or one.text or "").strip():
            return found
    return ""


def _make_alert_entry(alert: Element) -> FeedEntry:
    source = tostring(alert, encoding="unicode")
    id, sent = child_text(alert, "identifier"), child_text(alert, "sent")
    digest = hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:16]
    return FeedEntry(id[:1000] or digest, sent[:200] or digest, source)


def _list_features(body: bytes) -> list[FeedEntry]:
    whole = parse_json(body)
    features = whole.get("features")
    pages = whole.get("pagination")
    if isinstance(pages, dict) and pages.get("next"):
        log.warning(MORE)
    if whole.get("type") == "Feature":
        features = [whole]
    if not isinstance(features, list):
        raise ValueError("expected a FeatureCollection")
    if len(features) > ENTRIES:
        raise ValueError(f"has more than {ENTRIES} features")
    out = []
    for feature in features:
        found = feature.get("properties") if isinstance(feature, dict) else None
        properties = found if isinstance(found, dict) else {}
        id, sent = properties.get("id"), properties.get("sent")
        digest = hash_json(feature)
        named = isinstance(id, str) and bool(id)
        version = sent if isinstance(sent, str) and named else digest
        out.append(FeedEntry(str(id)[:1000] if named else digest, version[:200], feature))
    return out[::-1]


def _read_alert(entry: FeedEntry, body: bytes | None) -> AlertMessage:
    if not isinstance(entry.record, str | dict):
        raise ValueError(f"expected a Feature, got {short(entry.record)}")
    if isinstance(entry.record, str):
        return read_cap_alert(parse_xml(entry.record.encode("utf-8", "replace")))
    if entry.link or body is not None:
        return read_cap_alert(parse_xml(body or b""))
    if "link" in entry.record:
        raise ValueError("the entry has no link to an alert")
    return read_nws_feature(entry.record)
