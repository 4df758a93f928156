"""CAP, Atom, RSS and NWS GeoJSON as posts: what is published where, and what is refused."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ps2stream.connectors import alert_posts
from ps2stream.connectors.alert_messages import read_cap_alert
from ps2stream.connectors.alert_places import AlertPlaces
from ps2stream.connectors.alert_posts import AlertOptions, AlertPosts
from ps2stream.connectors.bounded_xml import parse_xml
from ps2stream.connectors.cap_feed import CapFeed
from ps2stream.connectors.counts import ConnectorCounts
from ps2stream.connectors.feed_source import EntryPosts, FeedEntry
from ps2stream.errors import InvalidArgument
from tests import naive
from tests.support.alerts import NS, SQUARE, alert, area, atom, info, nws, rss

NOW_MS = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)


class CapWorld:
    """A feed over a state; `counts` and `kept` as the source has them."""

    def __init__(self, places: AlertPlaces | None = None) -> None:
        self.counts = ConnectorCounts("coarse", "expired")
        self.kept: dict[str, Any] = {}
        options = AlertOptions(10.0, 2000, places or AlertPlaces())
        posts = AlertPosts(options, self.counts)
        self.feed = CapFeed("https://a.example/feeds/all", posts, lambda: NOW_MS)

    def entries(self, body: str | bytes) -> list[FeedEntry]:
        return self.feed.list_entries(body.encode() if isinstance(body, str) else body)

    def convert(self, body: str) -> EntryPosts:
        [found] = self.feed.convert(self.entries(body), [None], self.kept)
        return found


@pytest.fixture
def made() -> CapWorld:
    return CapWorld()


def spots(found: EntryPosts, inside: bool | None = None) -> set[tuple[float, float]]:
    return {
        (p["lon"], p["lat"])
        for p in found.posts
        if inside is None or p["attributes"]["inside"] is inside
    }


def test_an_alert_is_objects_over_its_area_with_all_that_it_says(made: CapWorld) -> None:
    found = made.convert(alert(info(area(SQUARE))))
    assert not found.problems
    assert 50 < len(found.posts) < 150
    assert len({p["id"] for p in found.posts}) == len(found.posts)
    post = found.posts[0]
    assert post["time"] == NOW_MS - 3_600_000
    assert post["until"] == NOW_MS + 3_600_000
    for word in ("Flood Warning", "River rises", "Square", "It rises & rises.", "Go up."):
        assert word in post["text"]
    attributes = post["attributes"]
    assert attributes["expires"] == datetime(2026, 1, 1, 13, tzinfo=UTC)
    expected = {
        "alert": "a1", "status": "Actual", "message": "Alert", "event": "Flood Warning",
        "severity": "Severe", "severity_level": 3, "urgency": "Immediate", "certainty": "Observed",
        "category": "Met", "language": "en", "area": "Square", "spacing_km": 10.0,
    }  # fmt: skip
    assert attributes.items() >= expected.items()
    payload = json.loads(post["payload"])
    assert payload["geometry"]["geometries"][0]["type"] == "Polygon"


def test_circles_and_languages(made: CapWorld) -> None:
    both = alert(info("<area><areaDesc>C</areaDesc><circle>47,8 20</circle></area>") * 2)
    found = made.convert(both)
    assert len(found.posts) % 2 == 0
    assert len({p["id"] for p in found.posts}) == len(found.posts)
    assert json.loads(found.posts[0]["payload"])["circles"] == [[8.0, 47.0, 20.0]]


def test_updates_and_cancellations_reach_all_that_got_the_alert(made: CapWorld) -> None:
    first = made.convert(alert(info(area(SQUARE))))
    reference = "<references>s,a1,2026-01-01T11:00:00Z</references>"
    small = "47.0,8.0 47.1,8.0 47.1,8.1 47.0,8.1 47.0,8.0"
    update = made.convert(alert(info(area(small)), id="a2", kind="Update", more=reference))
    assert spots(update) >= spots(first)
    assert spots(update, True) < spots(first, True)
    reference = "<references>s,a1,x s,a2,x</references>"
    cancel = made.convert(alert("", id="a3", kind="Cancel", more=reference))
    assert spots(cancel) >= spots(first)
    for word in ("Cancel: Flood Warning", "River rises", "It rises & rises.", "Square"):
        assert word in cancel.posts[0]["text"]  # whoever got the alert gets this
    assert cancel.posts[0]["attributes"]["words_of"] == "a1"
    assert cancel.posts[0]["attributes"]["severity_level"] == 3
    assert cancel.posts[0]["attributes"]["message"] == "Cancel"
    assert cancel.posts[0]["attributes"]["replaces"] == "a1 a2"


def referring(*ids: str) -> str:
    return f"<references>{' '.join(f's,{id},x' for id in ids)}</references>"


def reworded(words: str, severity: str) -> str:
    """The info of an alert with these words, and no others."""
    text = info(area(SQUARE)).replace("River rises", words).replace("Severe", severity)
    return text.replace("Flood Warning", "Statement").replace("It rises &amp; rises.", "More.")


@pytest.mark.parametrize("seed", range(4))
def test_whoever_got_an_alert_gets_what_becomes_of_it(made: CapWorld, seed: int) -> None:
    """Whatever a query asks of the words and levels of a message, one of the objects of each later
    message satisfies it, at each position; also if a message names only the one before."""
    rng = random.Random(seed)
    words = ["flood", "storm", "river", "minor", "over", "ebbs"]
    tests = ["severity_level >= 3", 'severity = "Minor"', 'area = "Square"', "severity_level < 2"]
    chain = [made.convert(alert(info(area(SQUARE))))]
    for number in range(2, 4):
        kind = rng.choice(["Update", "Cancel"])
        text = reworded(" ".join(rng.sample(words, 3)), rng.choice(["Minor", "Extreme"]))
        body = "" if kind == "Cancel" and rng.random() < 0.5 else text
        more = referring(f"a{number - 1}")
        chain.append(made.convert(alert(body, id=f"a{number}", kind=kind, more=more)))
    satisfied, queries = 0, list[str]()
    for _ in range(60):
        parts = [
            ("NOT " if rng.random() < 0.3 else "") + rng.choice([*words, "rises", *tests])
            for _ in range(rng.randint(1, 3))
        ]
        query = f"{rng.choice(['', 'NOT '])}({rng.choice([' AND ', ' OR ']).join(parts)})"
        with contextlib.suppress(ValueError):  # one that matches nothing or all
            naive.parsed(query)
            queries.append(query)
    for query in queries:
        for at, first in enumerate(chain):
            got = {
                (post["lon"], post["lat"])
                for post in first.posts
                if asks_for(query, post) and "words_of" not in post["attributes"]
            }
            satisfied += bool(got)
            for later in chain[at + 1 :]:
                assert got <= {(p["lon"], p["lat"]) for p in later.posts if asks_for(query, p)}
    assert satisfied > 20


def asks_for(query: str, post: dict[str, Any]) -> bool:
    """Whether the words and levels of an object satisfy a query."""
    levels = {name: v for name, v in post["attributes"].items() if name in alert_posts.FACE}
    return is_satisfied(query, post["text"], tuple(levels.items()))


@cache
def is_satisfied(query: str, text: str, attributes: tuple[tuple[str, Any], ...]) -> bool:
    return naive.satisfied(query, text, dict(attributes))


@pytest.mark.takes_turns
def test_words_are_repeated_once_and_not_without_end(made: CapWorld) -> None:
    first = made.convert(alert(info(area(SQUARE))))
    same = made.convert(alert(info(area(SQUARE)), id="a2", kind="Update", more=referring("a1")))
    assert len(same.posts) == len(first.posts)  # it repeats them itself
    for number in range(3, 9):
        text = reworded(f"word{number}", "Minor")
        more = referring(f"a{number - 1}")
        found = made.convert(alert(text, id=f"a{number}", kind="Update", more=more))
    assert len({post["id"] for post in found.posts}) == len(found.posts)
    words_of = [post["attributes"].get("words_of") for post in found.posts]
    assert Counter(words_of) == dict.fromkeys(
        [None, "a2", "a5", "a6", "a7"], len(first.posts)
    )  # the first, and the last ones
    assert {p["attributes"]["alert"] for p in found.posts} == {"a8"}
    repeated = [post for post in found.posts if "words_of" in post["attributes"]]
    assert all(json.loads(post["payload"])["headline"] == "word8" for post in repeated)


def test_what_is_kept_is_bounded(made: CapWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    long = info(area(SQUARE)).replace("River rises", "x" * 9_000)
    monkeypatch.setattr(alert_posts, "KEPT_TOTAL_BYTES", 30_000)
    for number in range(20):
        made.convert(alert(long, id=f"a{number}"))
        assert len(json.dumps(made.kept)) < 31_000
    assert list(made.kept) == [f"a{number}" for number in range(20 - len(made.kept), 20)]
    assert len(made.kept) > 3


def test_a_feed_that_begins_with_the_newest_is_read_from_the_oldest(made: CapWorld) -> None:
    more = "<references>s,a1,x</references>"
    cancel = alert("", id="a2", kind="Cancel", more=more, sent="2026-01-01T11:30:00Z")
    entries = made.entries(atom(("e2", "b.xml"), ("e1", "a.xml")))
    first = alert(info(area(SQUARE)))
    bodies = [(cancel if e.id == "e2" else first).encode() for e in entries[::-1]]
    found = made.feed.convert(entries[::-1], bodies, made.kept)
    assert all(each.posts and not each.problems for each in found)


def test_a_cancellation_of_what_is_not_known_is_reported(made: CapWorld) -> None:
    more = "<references>s,other,x</references>"
    found = made.convert(alert("", kind="Cancel", more=more))
    assert not found.posts
    assert found.problems == ["has no area, and the messages that it refers to are not known"]


def test_receipts_and_expired_alerts_are_no_objects(made: CapWorld) -> None:
    assert made.convert(alert(info(area(SQUARE)), kind="Ack")) == EntryPosts()
    old = info(area(SQUARE)).replace("2026-01-01T13:00:00Z", "2026-01-01T11:30:00Z")
    assert made.convert(alert(old)) == EntryPosts()
    assert made.counts["expired"] == 1


def places_file(folder: Path) -> Path:
    square = {"type": "Polygon", "coordinates": [[[8, 47], [9, 47], [9, 48], [8, 48], [8, 47]]]}
    features = [
        {"type": "Feature", "id": "https://a.example/zones/CAZ006", "geometry": square,
         "properties": {}},
        {"type": "Feature", "geometry": square, "properties": {"id": "UK505"}},
        {"type": "Feature", "geometry": None, "properties": {"id": "none"}},
    ]  # fmt: skip
    file = folder / "places.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return file


def test_an_alert_without_a_shape_needs_places(made: CapWorld, tmp_path: Path) -> None:
    coded = alert(info(area("", code=("EMMA_ID", "UK505"))))
    found = made.convert(coded)
    assert not found.posts
    assert found.problems == [
        "area 'Square' has no polygon or circle, and no place is known for EMMA_ID UK505"
    ]
    known = CapWorld(AlertPlaces(places_file(tmp_path)))
    assert len(known.convert(coded).posts) > 100
    half = known.convert(alert(info(area(SQUARE) + area("", code=("EMMA_ID", "UK999")))))
    assert half.posts
    assert half.problems[0].endswith("no place is known for EMMA_ID UK999")
    assert "no codes" in known.convert(alert(info(area("")))).problems[0]


def test_the_national_weather_service_names_zones(tmp_path: Path) -> None:
    known = CapWorld(AlertPlaces(places_file(tmp_path)))
    found = known.convert(json.dumps(nws()))
    assert not found.problems
    assert found.posts[0]["attributes"]["event"] == "Winter Storm Warning"
    assert found.posts[0]["until"] == NOW_MS + 3_600_000
    unknown = CapWorld().convert(json.dumps(nws()))
    assert unknown.problems[0].endswith("no place is known for SAME 006041, UGC CAZ006")
    square = {"type": "Polygon", "coordinates": [[[8, 47], [8.1, 47], [8.1, 47.1], [8, 47]]]}
    drawn = CapWorld().convert(json.dumps(nws(geometry=square)))
    assert len(drawn.posts) > 10
    assert drawn.posts[0]["id"].startswith("urn:oid:2.49.0.1.840.0.1/")


@pytest.mark.parametrize(
    ("path", "problem"),
    [("none", "cannot read"), ("text", "expected GeoJSON"), ("list", "FeatureCollection")],
)
def test_places_that_are_none_are_refused(tmp_path: Path, path: str, problem: str) -> None:
    (tmp_path / "text").write_text("x")
    (tmp_path / "list").write_text("[]")
    with pytest.raises(InvalidArgument, match=problem):
        AlertPlaces(tmp_path / path)


def test_feeds_lead_to_their_alerts(made: CapWorld) -> None:
    entries = made.entries(atom(("e1", "a.xml"), ("e2", "https://a.example/b.xml")))
    assert [(e.id, e.link) for e in entries] == [  # the oldest first
        ("e2", "https://a.example/b.xml"), ("e1", "https://a.example/feeds/a.xml"),
    ]  # fmt: skip
    [item] = made.entries(rss(("g1", "https://a.example/c.xml")))
    assert (item.id, item.version, item.link) == (
        "g1", "Thu, 01 Jan 2026 11:00:00 GMT", "https://a.example/c.xml",
    )  # fmt: skip
    [found] = made.feed.convert([item], [alert(info(area(SQUARE))).encode()], made.kept)
    assert found.posts
    [page] = made.feed.convert([item], [b"<html><body/></html>"], made.kept)
    assert page.problems == ["expected a CAP alert, got the element 'html'"]
    [bare] = made.entries(atom(("e3", "")))
    assert made.feed.convert([bare], [None], {})[0].problems == [
        "the entry has no link to an alert"
    ]


def test_an_alert_within_an_entry_needs_no_link(made: CapWorld) -> None:
    inner = alert(info(area(SQUARE))).partition("?>")[2]
    feed = f'<feed xmlns="http://www.w3.org/2005/Atom"><entry><content>{inner}</content></entry></feed>'
    [entry] = made.entries(feed)
    assert (entry.id, entry.link) == ("a1", "")
    assert made.feed.convert([entry], [None], {})[0].posts


def test_further_pages_are_not_passed_over_silently(
    made: CapWorld, caplog: pytest.LogCaptureFixture
) -> None:
    made.entries(atom(("e", "x")).replace("<entry>", '<link rel="next" href="?p=2"/><entry>'))
    made.entries(json.dumps(nws() | {"pagination": {"next": "https://a.example/?p=2"}}))
    assert caplog.text.count("further pages") == 2


LAUGHS = (
    '<!DOCTYPE l [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {chr(98 + i)} "{f"&{chr(97 + i)};" * 10}">' for i in range(9))
    + "]><alert>&j;</alert>"
)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (LAUGHS, "DTD or entities"),
        ('<!DOCTYPE x SYSTEM "file:///etc/passwd"><alert/>', "DTD or entities"),
        ('<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><alert>&e;</alert>', "DTD"),
        ("<a>" * 40 + "</a>" * 40, "more than 32 nested"),
        ("<a>", "expected XML"),
        ("", "expected XML"),
        ('<?xml version="1.0" encoding="x-none"?><a/>', "expected XML"),
        ("<html/>", "got the element 'html'"),
        ("{", "delimiter|property name"),
        ('{"type": "Topology"}', "expected a FeatureCollection"),
        ("{" + '"a":{' * 5000 + "}" * 5001, "nested too deeply"),
        ('{"a": NaN}', "expected JSON, got NaN"),
    ],
)  # fmt: skip
def test_documents_that_are_no_feed_are_refused(made: CapWorld, body: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        made.entries(body)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("<identifier>a1</identifier>", "", "identifier: is missing"),
        ("<sent>2026-01-01T11:00:00Z</sent>", "<sent>now</sent>", "sent: expected an ISO 8601"),
        ("<status>Actual</status>", "", "status: is missing"),
        ("<msgType>Alert</msgType>", "<msgType>X</msgType>", "msgType: expected Alert, Update"),
        ("<expires>2026-01-01T13:00:00Z", "<expires>99999999999999999", "expires: expected"),
        (SQUARE, "47,8 48,8 47,8", "polygon: a polygon needs at least four"),
        (SQUARE, "47,8 48,8 48,9 47,9", "polygon: .*the last as the first"),
        (SQUARE, "47,8 48,8 x,9 47,8", "polygon: expected LAT,LON, got 'x,9'"),
        (SQUARE, "47,8 48,8 nan,9 47,8", "polygon: expected LAT,LON"),
        (SQUARE, "8,147 8,148 9,148 8,247", "polygon: expected degrees"),
    ],
)
def test_alerts_that_are_none_are_refused(old: str, new: str, problem: str) -> None:
    whole = alert(info(area(SQUARE)))
    assert old in whole
    with pytest.raises(ValueError, match=problem):
        read_cap_alert(parse_xml(whole.replace(old, new).encode()))


def test_older_versions_of_cap_read_the_same(made: CapWorld) -> None:
    older = alert(info(area(SQUARE))).replace(NS, "http://www.incident.com/cap/1.0")
    assert made.convert(older).posts == CapWorld().convert(alert(info(area(SQUARE)))).posts
