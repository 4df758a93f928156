"""What watchers see: a sample of the objects, and of their own tenant's matches."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ps2stream import AsyncClient, Client
from ps2stream.client.answers import WatchReport
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.dispatcher.watchers import MAX_WATCHERS
from ps2stream.errors import PermissionDenied, ResourceExhausted, Unavailable
from ps2stream.protocol.messages.watch import SEEN_PER_S
from ps2stream.protocol.tokens import make
from ps2stream.security import AccessScope
from ps2stream.store.tokens import FileTokenStore

PATIENCE_S = 60.0
HERE = {"lon": 8.5, "lat": 47.4}


class Sight:
    """All that a watcher was told so far."""

    def __init__(self, stream: Iterator[WatchReport]) -> None:
        self.stream = stream
        self.told: list[WatchReport] = []

    def until(self, test: Callable[[Sight], bool]) -> Sight:
        deadline = time.monotonic() + PATIENCE_S
        while not test(self):
            assert time.monotonic() < deadline, self.told
            self.told.append(next(self.stream))
        return self

    @property
    def texts(self) -> list[str]:
        return [o.text for w in self.told for o in w.objects]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        return [(m.query_id, m.object.id) for w in self.told for m in w.matches]

    def total(self, name: str) -> int:
        return sum(getattr(w, name) for w in self.told)


def watching(client: Client) -> Sight:
    """A stream that is open."""
    stream = client.watch()
    assert next(stream) == WatchReport((), (), 0, 0, (), 0)
    return Sight(stream)


def test_objects_and_matches_are_seen(client: Client) -> None:
    lsn = client.insert("w-storm", "storm", (8, 47, 9, 48), session="w")
    sight = watching(client)
    ack = client.publish(
        [
            {"id": "hit", **HERE, "text": "a storm in Zürich", "time": 5},
            {"id": "miss", "lon": 0.0, "lat": 0.0, "text": "a storm at sea"},
        ]
    )
    sight.until(lambda s: bool(s.pairs) and len(s.texts) == 2 and s.total("accepted") == 2)
    assert sight.pairs == [("w-storm", "hit")]
    (match,) = (m for w in sight.told for m in w.matches)
    assert (match.query_lsn, match.object.offset) == (lsn, ack.first_offset)
    assert match.object[3:] == (5, 8.5, 47.4, "a storm in Zürich")
    assert sight.texts == ["a storm in Zürich", "a storm at sea"]
    assert sight.total("matched") == 1
    sight.until(lambda s: any(w.latency_ms for w in s.told))
    client.delete("w-storm")


def test_a_flood_is_sampled_and_counted(client: Client) -> None:
    client.insert("w-all", "flood", session="w")
    sight = watching(client)
    count, batches = 500, 4
    for _ in range(batches):
        client.publish([{**HERE, "text": "flood " + "é" * 1000}] * count)
    sight.until(lambda s: s.total("accepted") == s.total("matched") == count * batches)
    assert SEEN_PER_S <= len(sight.texts) < count * batches
    assert SEEN_PER_S <= len(sight.pairs) < count * batches
    assert {len(text.encode()) for text in sight.texts} == {1024}
    assert not any("\ufffd" in text for text in sight.texts)
    client.delete("w-all")


def test_who_comes_late_sees_nothing_of_before_and_silence_is_told(client: Client) -> None:
    client.publish([{**HERE, "text": "before"}])
    sight = watching(client).until(lambda s: len(s.told) >= 2)
    assert sight.texts == []
    assert [w for w in sight.told if w.missed] == []


def test_no_more_watch_than_may_and_who_leaves_makes_room(client: Client) -> None:
    streams = [client.watch() for _ in range(MAX_WATCHERS)]
    for stream in streams:
        next(stream)
    with pytest.raises(ResourceExhausted, match=f"{MAX_WATCHERS} clients watch, the limit"):
        next(client.watch())
    assert client.status()["watchers"] == MAX_WATCHERS
    for stream in streams:
        stream.close()
    deadline = time.monotonic() + PATIENCE_S
    while client.status()["watchers"]:
        assert time.monotonic() < deadline


def test_the_asynchronous_client_watches_too(target: str) -> None:
    async def seen() -> WatchReport:
        async with AsyncClient(target) as client:
            stream = client.watch()
            await anext(stream)
            await client.publish([{**HERE, "text": "seen"}])
            async for watched in stream:
                if watched.objects:
                    return watched
            raise AssertionError

    assert [o.text for o in asyncio.run(seen()).objects] == ["seen"]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[RunningService, dict[str, str]]]:
    folder = tmp_path / "data"
    scopes = {"a": AccessScope.SUBSCRIBE, "b": AccessScope.SUBSCRIBE, "": AccessScope.PUBLISH}
    made = {t: make(os.urandom(40), t, frozenset([s]), 0) for t, s in scopes.items()}
    secrets = {tenant: token.text for tenant, token in made.items()}
    with FileTokenStore(folder) as store:
        store.keep_tokens([m.token for m in made.values()])
    settings = Settings(runtime="local", port=0, workers=1, data_dir=folder, auth=True)
    with start(settings) as service:
        yield service, secrets


def test_a_tenant_sees_its_own_matches_alone(
    guarded: tuple[RunningService, dict[str, str]],
) -> None:
    service, secrets = guarded
    target = service.targets[0]
    with (
        Client(target, token=secrets["a"]) as a,
        Client(target, token=secrets["b"]) as b,
        Client(target, token=secrets[""]) as publisher,
    ):
        a.insert("mine", "storm")
        b.insert("mine", "storm OR hail")
        b.insert("other", "hail")
        sights = [watching(a), watching(b)]
        publisher.publish([{"id": "1", **HERE, "text": "storm"}])
        publisher.publish([{"id": "2", **HERE, "text": "hail"}])
        for sight, own in zip(sights, (1, 3), strict=True):
            sight.until(lambda s, n=own: len(s.pairs) == n and s.total("accepted") == 2)  # type: ignore[misc]
            assert sight.total("matched") == own
        assert sights[0].pairs == [("mine", "1")]
        assert sorted(sights[1].pairs) == [("mine", "1"), ("mine", "2"), ("other", "2")]
        assert [s.texts for s in sights] == [["storm", "hail"]] * 2
        with pytest.raises(PermissionDenied, match="subscribe"):
            next(publisher.watch())


def test_a_service_that_stops_ends_the_streams(tmp_path: Path) -> None:
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path / "data")
    service = start(settings)
    with Client(service.targets[0]) as client:
        sight = watching(client)
        service.stop()
        with pytest.raises(Unavailable):
            sight.until(lambda _: False)
