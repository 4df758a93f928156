"""Load that is shed by a running service: what clients, operators and subscribers see of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest

from ps2stream import Client
from ps2stream.client.shed_load import ShedLoad
from ps2stream.cluster import service as services
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.dispatcher import machine, shedding
from ps2stream.dispatcher.publications import PublicationPipeline
from ps2stream.routing.plan import text_plan

WORKERS, WORDS, OBJECTS = 4, 40, 300
"""So many words that each worker has some, by whatever salt they are hashed."""
TEXT = " ".join(f"word{i}" for i in range(WORDS))


@contextmanager
def soon_overloaded() -> Iterator[list[bool]]:
    """Levels rise and fall ten times as fast; the list says whether the dispatcher is full."""
    full = [True]
    with (
        mock.patch.object(machine, "TICKS_PER_S", 1),
        mock.patch.object(PublicationPipeline, "fullness", property(lambda self: float(full[0]))),
        mock.patch.object(shedding, "SAMPLED_PART", 0.1),
    ):
        yield full


@contextmanager
def running(path: Path, shed: Literal["off", "consensus", "subscription"]) -> Iterator[Client]:
    """A service whose workers divide the words everywhere, with a query for each word."""
    settings = Settings(
        runtime="local", port=0, hot="off", adjust="off", workers=WORKERS, data_dir=path, shed=shed
    )

    fitted_plan = services.fitted_plan

    def divide(*args: Any) -> Any:
        plan = fitted_plan(*args)
        return text_plan(plan.analysis, plan.grid, WORKERS)

    with (
        mock.patch.object(services, "fitted_plan", divide),
        start(settings) as service,
        Client(service.targets[0], timeout=90) as client,
    ):
        for i in range(WORDS):
            client.insert(f"q{i}", f"word{i}", [-10, -10, 10, 10], session="ann")
        client.insert("else", "nothing", [-10, -10, 10, 10], session="bob")
        yield client


def wait_for(client: Client, name: str, is_there: Callable[[int], bool]) -> dict[str, Any]:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found: dict[str, Any] = client.status()
        if is_there(int(found.get(name, 0))):
            return found
        time.sleep(0.1)
    raise AssertionError(found)


def wait_for_level(client: Client, level: int) -> dict[str, Any]:
    return wait_for(client, "shedding_level", lambda found: found == level)


def collect(
    client: Client, session: str, pairs: int
) -> tuple[set[tuple[str, str]], list[ShedLoad]]:
    """The matches and notices of a session, up to the last notice, or to so many matches."""
    found, notices = set[tuple[str, str]](), list[ShedLoad]()
    with client.subscribe(session) as subscription:
        for batch in subscription.batches():
            if batch.gap is not None:
                assert batch.gap.count == 0
                assert batch.gap.shed is not None
                assert str(batch.gap).startswith("load was shed for ")
                notices.append(batch.gap.shed)
            for match in batch:
                key = match.query_id, match.object_id
                assert key not in found
                found.add(key)
            if sum(notice.objects for notice in notices) >= OBJECTS * 4 // 5 or len(found) == pairs:
                return found, notices
    raise AssertionError("the stream has ended")


def posts(kind: str) -> list[dict[str, Any]]:
    return [{"id": f"{kind}{i}", "lon": 0, "lat": 0, "text": TEXT} for i in range(OBJECTS)]


@pytest.mark.takes_turns
@pytest.mark.parametrize("rank", ["consensus", "subscription"])
def test_accepted_objects_lose_matches_and_durable_ones_none(
    tmp_path: Path, rank: Literal["consensus", "subscription"]
) -> None:
    with soon_overloaded() as full, running(tmp_path / "data", rank) as client:
        wait_for_level(client, 8)
        client.publish(posts("durable"))
        client.publish(posts("accepted"), level="accepted")
        # They are answered before they are routed, and are to be routed at this level.
        wait_for(client, "capped_objects", lambda shed: shed >= 0.8 * OBJECTS)
        full[0] = False
        counters = wait_for_level(client, 0)
        shed = int(counters["capped_objects"])
        assert 0.8 * OBJECTS <= shed < OBJECTS
        copies = [counters.get(f"shed_copies_worker_{w}", 0) for w in range(WORKERS)]
        assert sum(copies) == counters["shed_copies"] == shed * (WORKERS - 1)
        terms = {name for name in counters if name.startswith("capped_objects_term_word")}
        assert len(terms) == shedding.LISTED_TERMS
        found, notices = collect(client, "ann", -1)
        durable = {pair for pair in found if pair[1].startswith("durable")}
        assert len(durable) == OBJECTS * WORDS
        kept = len(found) - len(durable)
        best, rest = divmod(kept - (OBJECTS - shed) * WORDS, shed)  # words of the best worker
        assert rest == 0
        assert WORDS // WORKERS <= best < WORDS
        assert sum(notice.objects for notice in notices) == shed
        last = notices[-1]
        assert last.from_ms <= time.time() * 1000
        assert last.from_ms <= last.to_ms
        assert last.to_offset - last.from_offset >= last.objects
        assert last.sampled_matches == (OBJECTS - shed) * WORDS
        assert last.share == pytest.approx(1 - best / WORDS, abs=0.01)
        _, others = collect(client, "bob", -1)
        assert sum(notice.objects for notice in others) == shed


def test_nothing_is_shed_by_a_service_that_is_not_to(tmp_path: Path) -> None:
    with soon_overloaded(), running(tmp_path / "data", "off") as client:
        client.publish(posts("accepted"), level="accepted")
        found, notices = collect(client, "ann", OBJECTS * WORDS)
        assert (len(found), notices) == (OBJECTS * WORDS, [])
        counters = client.status()
        assert (counters["shedding_level"], counters["capped_objects"]) == (0, 0)
