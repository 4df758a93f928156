"""What waits for slow clients is bounded, and loses nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ps2stream import AsyncClient
from ps2stream.client import requests
from ps2stream.errors import Unavailable
from ps2stream.service import tenants
from ps2stream.service.inbox import InboxCut, InboxEnd, StreamInbox, StreamInboxes
from tests.support.gateways import running


def held(limit: int, streams: int) -> tuple[StreamInboxes, list[StreamInbox]]:
    found = StreamInboxes(limit)
    return found, [found.open() for _ in range(streams)]


def test_who_has_taken_nothing_for_longest_is_cut() -> None:
    all_, (slow, stuck, busy) = held(100, 3)
    assert not stuck.put(bytes(30))
    assert not slow.put(bytes(20))
    assert not slow.put(bytes(20))
    assert slow.take() == bytes(20)  # it moves
    assert not busy.put(bytes(50))
    assert all_.size == 100
    assert not busy.put(bytes(10))
    assert (all_.size, all_.cuts, stuck.size) == (80, 1, 0)
    assert stuck.put(bytes(7))  # let go of at once
    assert stuck.take() == bytes(30)
    assert stuck.take() == InboxCut(1, 7)
    assert stuck.put(bytes(1))
    assert stuck.go_on() == (2, 8)
    assert not stuck.put(b"x")
    assert stuck.take() == b"x"
    assert slow.take() == bytes(20)


def test_what_comes_for_a_stream_that_is_gone_is_not_held() -> None:
    all_, (gone, other) = held(100, 2)
    gone.put(bytes(60))
    gone.close()
    assert gone.put(bytes(90))
    assert (all_.size, gone.take()) == (0, InboxCut(1, 90))
    gone.close()
    assert not other.put(bytes(100))
    assert (all_.size, all_.cuts) == (100, 0)


def test_a_stream_that_alone_holds_too_much_is_cut() -> None:
    all_, (one,) = held(10, 1)
    assert not one.put(bytes(9))
    assert one.put(bytes(2))
    assert (all_.size, one.take(), one.take()) == (0, bytes(9), InboxCut(1, 2))


def test_what_was_held_is_given_back() -> None:
    all_, (gone, other) = held(100, 2)
    gone.put(bytes(60))
    gone.close()
    assert all_.size == 0
    assert not other.put(bytes(90))
    assert other.take() == bytes(90)
    assert (all_.size, all_.cuts, all_.inboxes) == (0, 0, {other})


def test_the_end_comes_after_what_was_put() -> None:
    _, (inbox, refused) = held(100, 2)
    ready: list[object] = []
    inbox.ready = lambda: ready.append(inbox.take())
    inbox.put(b"x")
    assert (ready, inbox.take()) == ([b"x"], None)
    inbox.ready = lambda: None
    inbox.put(b"y")
    inbox.end()
    inbox.end(Unavailable("late"))
    assert (inbox.take(), inbox.take()) == (b"y", InboxEnd(None))
    stop = Unavailable("stop")
    refused.end(stop)
    assert refused.take() == InboxEnd(stop)


def test_a_cut_stream_gets_everything_once_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tenants, "StreamInboxes", lambda: StreamInboxes(1 << 15))
    small = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16)]
    monkeypatch.setattr(requests, "CHANNEL_OPTIONS", [*requests.CHANNEL_OPTIONS, *small])
    size, count = 20_000, 60  # more than a connection's window holds

    async def cut_stream(target: str) -> None:
        """With the client that reads only what is asked for."""
        async with AsyncClient(target) as client, client.subscribe("s") as matches:
            await client.insert("q", "word", session="s")
            for i in range(count):
                row = {"id": str(i), "text": "word " + "x" * size, "lon": 0.0, "lat": 0.0}
                await client.publish([row])
            assert (await client.status())["cut_streams"] > 0
            found = [(await matches.next(30)).object_id for _ in range(count)]
            await client.publish([{"id": "last", "text": "word", "lon": 0.0, "lat": 0.0}])
            assert (await matches.next(30)).object_id == "last"
            assert matches.missed == 0
            assert found == [str(i) for i in range(count)]

    with running(tmp_path, 64 << 20) as (target, _, _edge):
        asyncio.run(cut_stream(target))
