"""Feeds, alerts, notifications and files that grow: targets as in readers.py. What a reader
publishes must be posts that the client can send."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from ps2stream.client.inputs import object_batch
from ps2stream.connectors.alert_places import AlertPlaces
from ps2stream.connectors.alert_posts import AlertOptions, AlertPosts
from ps2stream.connectors.cap_feed import CapFeed
from ps2stream.connectors.counts import ConnectorCounts
from ps2stream.connectors.feed_http import BoundedUnpacker
from ps2stream.connectors.feed_source import EntryPosts, FeedReader
from ps2stream.connectors.file_tail import CsvRecords, FilePlace, FileTail
from ps2stream.connectors.geojson_feed import GeoJsonFeed
from ps2stream.connectors.mapping import RecordFields
from ps2stream.connectors.wis2_notices import Wis2Notices
from tests.support.alerts import SQUARE, alert, area, atom, info, nws, rss

NOW_MS = 1_767_268_800_000
COUNTS = ConnectorCounts("coarse", "expired")
ALERTS = AlertPosts(AlertOptions(20.0, 200, AlertPlaces()), COUNTS)
HELD = tempfile.TemporaryDirectory(prefix="ps2stream-fuzz-feeds-")


def cap(data: bytes) -> None:
    """A feed of alerts, and an alert that a feed leads to."""
    feed = CapFeed("https://a.example/feed", ALERTS, lambda: NOW_MS)
    read_feed(feed, data, {})
    [entry] = feed.list_entries(atom(("e", "a.xml")).encode())
    check_posts(feed.convert([entry], [data], {}))


def geojson_feed(data: bytes) -> None:
    """A feed of GeoJSON."""
    read_feed(GeoJsonFeed(RecordFields("text=title"), "updated", 20.0, 200, COUNTS), data, {})


def read_feed(feed: FeedReader, data: bytes, kept: dict[str, Any]) -> None:
    try:
        entries = feed.list_entries(data)
    except ValueError:
        return
    check_posts(feed.convert(entries, [None] * len(entries), kept))


def check_posts(found: list[EntryPosts]) -> None:
    """Fails unless each entry is posts, a problem, or rightly neither."""
    for each in found:
        if each.posts:
            assert len(object_batch(each.posts).objects) == len(each.posts)


def wis2(data: bytes) -> None:
    """A notification: posts or a reason, never both and never neither."""
    topic = data[:40].decode("utf-8", "replace").replace("\0", "")
    found = Wis2Notices(20.0, 200).convert_messages([topic], [data], ["i"])
    assert bool(found.bad) != bool(len(found.posts))
    if len(found.posts):
        posts: Any = found.posts
        assert len(object_batch(posts).objects) == len(posts)


def gzip_body(data: bytes) -> None:
    """A packed body: never more than its bound."""
    try:
        unpacker = BoundedUnpacker("gzip", 1000)
        unpacker.add(data)
        assert len(unpacker.finish()) <= 1000
    except ValueError:
        return


def grown_file(data: bytes) -> None:
    """A file: its lines are its bytes, wherever it is read from."""
    path = Path(HELD.name) / "grown"
    path.write_bytes(data)
    tail = FileTail(path, FilePlace(), ends_partial=True)
    lines = []
    while some := tail.read_lines():
        lines += some
    assert b"\n".join(line.data or b"" for line in lines) == data.removesuffix(b"\n")
    if lines:
        place = tail.place(lines[len(lines) // 2].start)
        again = FileTail(path, place, ends_partial=True)
        rest = []
        while some := again.read_lines():
            rest += some
        assert rest == lines[len(lines) // 2 :]
        again.close()
    records = CsvRecords()
    joined = [*records.join_lines(lines), *records.flush()]
    assert b"\n".join(r.data or b"" for r in joined) == data.removesuffix(b"\n")
    tail.close()


_ALERT = alert(info(area(SQUARE) + "<area><circle>47,8 20</circle></area>"))
_POLYGON = {"type": "Polygon", "coordinates": [[[179, 0], [-179, 0], [-179, 1], [179, 0]]]}
_NOTICE = {
    "id": "31e9d66a-cd83-4174-9429-b932f1abe1be", "type": "Feature", "version": "v04",
    "geometry": {"type": "Point", "coordinates": [6.15, 46.2]},
    "properties": {
        "data_id": "wis2/ch/data/core/x_1", "pubtime": "2026-01-01T00:00:00Z",
        "datetime": None, "start_datetime": "2026-01-01T00:00:00Z",
        "content": {"encoding": "utf-8", "size": 1, "value": "x"},
    },
    "links": [{"rel": "canonical", "href": "https://a.example/x", "length": 5}],
}  # fmt: skip
_FEATURES = [
    {"type": "Feature", "id": i, "properties": {"title": "t", "updated": i}, "geometry": shape}
    for i, shape in enumerate(
        (None, {"type": "Point", "coordinates": [1, 2, 3]}, _POLYGON,
         {"type": "GeometryCollection", "geometries": [{"type": "MultiPoint",
          "coordinates": [[1, 2], [3, 4]]}]})
    )
]  # fmt: skip
CAP_SEEDS = [
    *(text.encode() for text in (_ALERT, alert("", kind="Cancel"), atom(("e", "x")))),
    *(text.encode() for text in (rss(("g", "x")), json.dumps(nws(geometry=_POLYGON)))),
    b'<!DOCTYPE l [<!ENTITY a "ha">]><alert>&a;</alert>',
]
GEOJSON_SEEDS = [json.dumps({"type": "FeatureCollection", "features": _FEATURES}).encode()]
WIS2_SEEDS = [json.dumps(_NOTICE | {"geometry": g}).encode() for g in
              (_NOTICE["geometry"], _POLYGON, None)]  # fmt: skip
FILE_SEEDS = [b'a,b\n1,"x\ny"\n\n2,z', b"{}\n[]\r\n\n", b'"\n"\n""']
