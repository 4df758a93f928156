"""ps2stream/connectors/feed_http.py, against a server at a socket."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from ps2stream.connectors.feed_http import (
    UNKNOWN,
    BoundedUnpacker,
    FeedDocument,
    FeedFetcher,
    FeedUnavailable,
    FeedVersion,
    FetchLimits,
    check_feed_url,
    make_user_agent,
    read_retry_after,
)
from ps2stream.errors import FailedPrecondition, InvalidArgument
from tests.support.feed_server import FeedServer, ScriptedAnswer, feed_server


@pytest.fixture
def served() -> Iterator[FeedServer]:
    with feed_server() as found:
        yield found


def fetch(
    url: str, known: FeedVersion = UNKNOWN, limits: FetchLimits | None = None
) -> FeedDocument:
    async def run() -> FeedDocument:
        async with FeedFetcher(url, limits or FetchLimits()) as fetcher:
            return await fetcher.fetch(url, known)

    return asyncio.run(run())


def redirect(to: str) -> ScriptedAnswer:
    return ScriptedAnswer(302, {"Location": to})


def test_a_document_is_requested_again_only_if_it_changed(served: FeedServer) -> None:
    served.documents["/f"] = b"one"
    first = fetch(f"{served.url}/f")
    assert first.body == b"one"
    assert fetch(f"{served.url}/f", first.version).body is None
    served.documents["/f"] = b"two"
    assert fetch(f"{served.url}/f", first.version).body == b"two"
    served.wait_for("/f", 200, 2)
    served.wait_for("/f", 304)
    assert len(served.requests) == 3
    assert served.requests[0].headers["user-agent"].startswith("ps2stream/")


def test_redirects_are_followed_a_few_times(served: FeedServer) -> None:
    served.documents["/f"] = b"x"
    served.script["/f"] = [redirect("/f")] * 5
    assert fetch(f"{served.url}/f").body == b"x"
    served.script["/f"] = [redirect("/f")] * 6
    with pytest.raises(FailedPrecondition, match="more than 5 redirects"):
        fetch(f"{served.url}/f")


@pytest.mark.parametrize(
    ("to", "problem"),
    [
        ("http://localhost:1/x", "the host localhost, which is not allowed; to allow it: --allow"),
        ("file:///etc/passwd", "is no URL: expected http"),
        ("http://[", "no URL"),
        ("", "more than 5 redirects"),
    ],
)
def test_redirects_elsewhere_are_not_followed(served: FeedServer, to: str, problem: str) -> None:
    served.script["/f"] = [redirect(to)] * 9
    with pytest.raises(FailedPrecondition, match=problem):
        fetch(f"{served.url}/f")


def test_a_host_can_be_allowed(served: FeedServer) -> None:
    served.documents["/f"] = b"x"
    elsewhere = f"{served.url.replace('127.0.0.1', 'localhost')}/f"
    served.script["/f"] = [redirect(elsewhere)]
    assert fetch(f"{served.url}/f", limits=FetchLimits(hosts=("LOCALHOST",))).body == b"x"


def test_nothing_leads_from_https_to_http() -> None:
    async def run() -> Any:
        async with FeedFetcher("https://localhost:1/f", FetchLimits()) as fetcher:
            return await fetcher.fetch("http://localhost:1/f")

    with pytest.raises(FailedPrecondition, match="from https to http"):
        asyncio.run(run())


def test_failures_that_pass_tell_when_to_come_again(served: FeedServer) -> None:
    for status in (429, 503):
        served.script["/f"] = [ScriptedAnswer(status, {"Retry-After": "7"})]
        with pytest.raises(FeedUnavailable, match=str(status)) as caught:
            fetch(f"{served.url}/f?key=secret")
        assert "secret" not in str(caught.value)
    served.script["/f"] = [ScriptedAnswer(503, {"Retry-After": "9" * 12})]
    with pytest.raises(FeedUnavailable) as caught:
        fetch(f"{served.url}/f")
    assert caught.value.wait_s == 3600
    with pytest.raises(FeedUnavailable):
        fetch("http://127.0.0.1:1/f")
    with pytest.raises(FailedPrecondition, match="answered 404"):
        fetch(f"{served.url}/none")


def test_bytes_are_counted_after_unpacking(served: FeedServer) -> None:
    limits = FetchLimits(most_bytes=1000)
    served.documents["/f"] = b"x" * 1000
    assert fetch(f"{served.url}/f", limits=limits).body == b"x" * 1000
    served.documents["/f"] = b"x" * 50_000_000
    with pytest.raises(FailedPrecondition, match="more than 1000 bytes"):
        fetch(f"{served.url}/f", limits=limits)
    served.script["/f"] = [ScriptedAnswer(200, {}, b"x" * 1001)]
    with pytest.raises(FailedPrecondition, match="more than 1000 bytes"):
        fetch(f"{served.url}/f", limits=limits)


@pytest.mark.parametrize(
    ("coding", "body", "problem"),
    [
        ("gzip", b"plain", "is not gzip"),
        ("gzip", gzip.compress(b"x" * 99, mtime=0)[:-9], "ends too early"),
        ("br", b"x", "expected the content coding gzip"),
    ],
)
def test_bodies_that_cannot_be_unpacked_are_refused(
    served: FeedServer, coding: str, body: bytes, problem: str
) -> None:
    served.script["/f"] = [ScriptedAnswer(200, {"Content-Encoding": coding}, body)]
    with pytest.raises(FailedPrecondition, match=problem):
        fetch(f"{served.url}/f")


def test_gzip_may_have_several_members() -> None:
    unpacker = BoundedUnpacker("gzip", 100)
    whole = gzip.compress(b"one") + gzip.compress(b"two")
    for i in range(len(whole)):
        unpacker.add(whole[i : i + 1])
    assert unpacker.finish() == b"onetwo"


@pytest.mark.parametrize(
    "url",
    ["ftp://x/y", "http:///x", "x", "http://u:p@h/", "http://h:99999/", "http://h/" + "x" * 5000],
)
def test_urls_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        check_feed_url(url)


def test_retry_after_is_a_number_or_a_date() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert read_retry_after("12", now) == 12
    assert read_retry_after("Thu, 01 Jan 2026 00:01:00 GMT", now) == 60
    for nothing in ("", "soon", "-5", "nan", "Wed, 31 Dec 2025 00:00:00 GMT"):
        assert read_retry_after(nothing, now) == 0


def test_a_contact_is_sent_if_it_is_plain() -> None:
    assert make_user_agent("me@example.org").endswith("(me@example.org)")
    with pytest.raises(InvalidArgument, match="printable ASCII"):
        make_user_agent("a\r\nb")
