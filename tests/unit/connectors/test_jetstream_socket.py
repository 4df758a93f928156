"""What a Jetstream is asked for, and which URLs are none."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from ps2stream.connectors.jetstream_socket import JetstreamAddress
from ps2stream.errors import InvalidArgument


def test_posts_are_asked_for_from_the_cursor_uncompressed() -> None:
    url = "wss://j.example/subscribe?wantedDids=did:plc:a&compress=true&cursor=1&wantedDids=b"
    found = urlsplit(JetstreamAddress(url, 1000).ask_from(7))
    assert parse_qs(found.query) == {
        "wantedDids": ["did:plc:a", "b"],
        "wantedCollections": ["app.bsky.feed.post"],
        "maxMessageSizeBytes": ["1000"],
        "cursor": ["7"],
    }
    assert "cursor" not in JetstreamAddress(url).ask_from(0)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("https://j.example/subscribe", "expected wss://HOST/subscribe, or ws://"),
        ("wss:///subscribe", "expected wss://HOST/subscribe, or ws://"),
        ("wss://me:secret@j.example/", "must not contain a name or password"),
        ("wss://j.example/#x", "must not contain a fragment"),
    ],
)
def test_urls_that_are_none_are_refused(url: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match="url") as error:
        JetstreamAddress(url)
    assert problem in str(error.value)
    assert "secret" not in str(error.value)
