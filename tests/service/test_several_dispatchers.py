"""Clients that know several dispatchers use them all, and miss none that goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.client import discovery
from ps2stream.client.async_client import AsyncClient
from ps2stream.client.client import Client
from ps2stream.cluster.local_service import LocalService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import Unavailable

POST = {"lon": 1.0, "lat": 2.0, "text": "flood"}
OBJECTS = 60


@pytest.fixture
def service(tmp_path: Path) -> Iterator[LocalService]:
    settings = Settings(runtime="local", port=0, workers=2, dispatchers=3, data_dir=tmp_path)
    with start(settings) as running:
        assert isinstance(running, LocalService)
        yield running


def accepted(service: LocalService) -> list[int]:
    status = service.status()
    return [status[f"dispatcher-{i}"]["objects"] for i in range(3)]


def test_objects_are_spread_and_arrive_when_a_dispatcher_goes(service: LocalService) -> None:
    target = ",".join(service.targets)
    with Client(target, timeout=30) as client, client.subscribe("s") as matches:
        client.insert("q", "flood", session="s")
        for i in range(OBJECTS):
            client.publish([POST | {"id": str(i)}])
        before = accepted(service)
        assert min(before) > 0
        service._servers[1].stop(0)
        for i in range(OBJECTS, 2 * OBJECTS):
            client.publish([POST | {"id": str(i)}])
        found = [next(matches).object_id for _ in range(2 * OBJECTS)]
    assert sorted(found, key=int) == [str(i) for i in range(2 * OBJECTS)]


def test_the_asynchronous_client_does_the_same(service: LocalService) -> None:
    async def run() -> list[str]:
        async with AsyncClient(",".join(service.targets), timeout=30) as client:
            await client.insert("q", "flood", session="s")
            for i in range(OBJECTS):
                if i == OBJECTS // 2:
                    assert min(accepted(service)) > 0
                    await asyncio.to_thread(service._servers[2].stop, 0)
                await client.publish([POST | {"id": str(i)}])
            async with client.subscribe("s") as matches:
                return [(await anext(matches)).object_id for _ in range(OBJECTS)]

    assert sorted(asyncio.run(run()), key=int) == [str(i) for i in range(OBJECTS)]


def test_one_address_is_enough_to_find_all(service: LocalService) -> None:
    with (
        Client(service.targets[1], timeout=30, discover=True) as client,
        client.subscribe("s") as matches,
    ):
        client.insert("q", "flood", session="s")
        for i in range(OBJECTS):
            client.publish([POST | {"id": str(i)}])
        assert min(accepted(service)) > 0
        service._servers[1].stop(0)
        for i in range(OBJECTS, 2 * OBJECTS):
            client.publish([POST | {"id": str(i)}])
        found = [next(matches).object_id for _ in range(2 * OBJECTS)]
    assert sorted(found, key=int) == [str(i) for i in range(2 * OBJECTS)]


def test_the_asynchronous_client_finds_all_as_well(service: LocalService) -> None:
    async def run() -> None:
        async with AsyncClient(service.targets[0], timeout=30, discover=True) as client:
            for i in range(OBJECTS):
                await client.publish([POST | {"id": str(i)}])

    asyncio.run(run())
    assert min(accepted(service)) > 0


def test_one_that_joins_is_found_later(
    service: LocalService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "LISTED_S", 0.2)
    with Client(service.targets[0], timeout=60, discover=True) as client:
        client.scale_dispatchers(4)
        deadline = time.monotonic() + 60
        while service.status().get("dispatcher-3", {}).get("objects", 0) == 0:
            assert time.monotonic() < deadline
            client.publish([POST])
            time.sleep(0.01)


def test_without_being_asked_to_a_client_stays_where_it_is(service: LocalService) -> None:
    with Client(service.targets[0], timeout=30) as client:
        for _ in range(10):
            client.publish([POST])
    assert accepted(service) == [10, 0, 0]


def test_a_client_of_one_dispatcher_is_told_that_it_has_gone(service: LocalService) -> None:
    with Client(service.targets[1], timeout=1) as client:
        client.health()
        service._servers[1].stop(0)
        with pytest.raises((Unavailable, TimeoutError)):
            client.health()
