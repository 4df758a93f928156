"""Publications with a producer and a seq, over real ports: a repeat gets the first answer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ps2stream import AsyncClient, Client
from ps2stream.client.answers import Receipt
from ps2stream.cluster import dispatcher_edge
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import AlreadyExists, FailedPrecondition, InvalidArgument, Unavailable
from ps2stream.limits import PRODUCER_WINDOW
from ps2stream.observability.process import wall_clock_ms

WORDS = [{"lon": 1.0, "lat": 1.0, "text": "flood"}, {"lon": 2.0, "lat": 2.0, "text": "fire"}]
OTHER = [{"lon": 1.0, "lat": 1.0, "text": "frost"}]


@contextmanager
def serving(data: Path, dispatchers: int) -> Iterator[list[Client]]:
    """A service and a client of each of its dispatchers."""
    settings = Settings(runtime="local", port=0, workers=1, dispatchers=dispatchers, data_dir=data)
    with start(settings) as running, ExitStack() as clients:
        yield [clients.enter_context(Client(target, timeout=90)) for target in running.targets]


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Client]]:
    with serving(tmp_path_factory.mktemp("data"), 2) as found:
        yield found


def test_a_repeat_gets_the_first_answer_through_any_dispatcher(clients: list[Client]) -> None:
    for producer in ("ann", "bob", "cy", "dee"):  # some belong to each dispatcher
        first = clients[0].publish(WORDS, producer=producer, seq=1)
        again = [client.publish(WORDS, producer=producer, seq=1) for client in clients]
        assert again == [first, first]
        second = clients[1].publish(WORDS, producer=producer, seq=2)
        assert (second.accepted, second == first) == (2, False)


def test_each_object_is_matched_once(clients: list[Client]) -> None:
    clients[0].insert("once", "flood", session="once")
    with clients[0].subscribe("once") as matches:
        for seq in (1, 2):
            for client in (*clients, *clients):
                client.publish(WORDS, producer="once", seq=seq)
        clients[0].publish([{"lon": 0, "lat": 0, "text": "flood end"}])
        found: list[str] = []
        for match in matches:
            found.append(match.text or "")
            if match.text == "flood end":
                break
    assert sorted(found) == ["flood", "flood", "flood end"]
    clients[0].delete("once")


def test_another_batch_under_the_same_number_is_refused(clients: list[Client]) -> None:
    first = clients[0].publish(WORDS, producer="eve", seq=7)
    for client in clients:
        with pytest.raises(AlreadyExists, match=r"seq 7 of producer 'eve'.* another batch"):
            client.publish(OTHER, producer="eve", seq=7)
    assert clients[1].publish(WORDS, producer="eve", seq=7) == first


def test_a_number_older_than_the_window_is_refused(clients: list[Client]) -> None:
    last = PRODUCER_WINDOW + 2
    assert clients[0].publish(WORDS, producer="old", seq=1).accepted == 2
    batches = [WORDS] * (last - 1)
    stream = clients[0].publish_stream(batches, producer="old", first_seq=2)
    assert [receipt.accepted for receipt in stream] == [2] * (last - 1)
    for client in clients:
        for seq in (1, 2):
            with pytest.raises(FailedPrecondition, match=r"producer_window.*begin with seq 3"):
                client.publish(WORDS, producer="old", seq=seq)
        assert client.publish(WORDS, producer="old", seq=3).accepted == 2


def test_batches_of_a_stream_are_repeated_one_by_one(clients: list[Client]) -> None:
    first = list(clients[0].publish_stream([WORDS, OTHER], producer="fay"))
    again = list(clients[1].publish_stream([WORDS, OTHER, WORDS], producer="fay"))
    assert again[:2] == first
    assert again[2].accepted == 2
    late = list(clients[0].publish_stream([WORDS], producer="fay", first_seq=3))
    assert late == again[2:]


def test_refused_rows_are_told_again_and_a_refused_batch_is_not_remembered(
    clients: list[Client],
) -> None:
    some: list[Any] = [*WORDS, {"lon": 999.0, "lat": 0.0, "text": "x"}]
    with pytest.raises(InvalidArgument):
        clients[0].publish(some, producer="gus", seq=1)
    first = clients[0].publish(some, producer="gus", seq=1, allow_partial=True)
    assert (first.accepted, [r.row for r in first.refused]) == (2, [2])
    again = clients[1].publish(some, producer="gus", seq=1, allow_partial=True)
    assert (again.partition, again.first_offset) == (first.partition, first.first_offset)
    assert [str(r) for r in again.refused] == [str(r) for r in first.refused]


def test_a_repeat_after_the_end_of_its_objects_gets_the_first_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead_ms = 0
    monkeypatch.setattr(dispatcher_edge, "wall_clock_ms", lambda: wall_clock_ms() + ahead_ms)
    posts = [row | {"until": datetime.now(UTC) + timedelta(hours=1)} for row in WORDS]
    some, producers = [WORDS[0], posts[1]], ("ann", "bob", "cy", "dee")  # of each dispatcher
    bad = [posts[0], OTHER[0] | {"lat": 91.0}]
    with serving(tmp_path, 2) as clients:
        first = {p: clients[0].publish(posts, producer=p, seq=1) for p in producers}
        parts = {
            p: clients[0].publish(some, producer=p, seq=2, allow_partial=True) for p in producers
        }
        streamed = list(clients[0].publish_stream([posts, some], producer="ida"))
        ahead_ms = 2 * 3_600_000
        for producer, client in itertools.product(producers, clients):
            assert client.publish(posts, producer=producer, seq=1) == first[producer]
            again = client.publish(some, producer=producer, seq=2, allow_partial=True)
            assert (again.partition, again.lsn) == (parts[producer].partition, parts[producer].lsn)
            with pytest.raises(AlreadyExists):
                client.publish(posts[:1], producer=producer, seq=1)
            for may_be_partial in (False, True):
                with pytest.raises(InvalidArgument, match=r"objects\[0\]\.until: is over") as found:
                    client.publish(posts, producer=producer, seq=3, allow_partial=may_be_partial)
                assert len(found.value.violations) == 2
            with pytest.raises(InvalidArgument, match=r"objects\[1\]\.lat"):
                client.publish(bad, producer=producer, seq=1)
        for client in clients:
            assert list(client.publish_stream([posts, some], producer="ida")) == streamed
            (late,) = client.publish_stream([posts], producer="ida", first_seq=3)
            assert (late.accepted, ["is over" in str(r) for r in late.refused]) == (0, [True, True])


def test_repeats_of_the_same_moment_are_one_publication(clients: list[Client]) -> None:
    async def publish_often(targets: list[str]) -> list[Receipt]:
        async with AsyncClient(targets[0]) as one, AsyncClient(targets[1]) as other:
            calls = [one.publish(WORDS, producer="hal", seq=1) for _ in range(5)]
            calls += [other.publish(WORDS, producer="hal", seq=1) for _ in range(5)]
            return list(await asyncio.gather(*calls))

    found = asyncio.run(publish_often([client.target for client in clients]))
    assert len({(receipt.partition, receipt.first_offset) for receipt in found}) == 1


def test_an_asynchronous_stream_repeats_too(clients: list[Client]) -> None:
    async def publish_stream(target: str) -> list[Receipt]:
        async with AsyncClient(target) as client:
            stream = client.publish_stream([WORDS, OTHER], producer="ida", first_seq=5)
            return [receipt async for receipt in stream]

    first, again = (asyncio.run(publish_stream(client.target)) for client in clients)
    assert len(first) == 2
    assert again == first
    assert clients[0].publish(OTHER, producer="ida", seq=6) == first[1]


def test_a_producer_needs_numbers_and_numbers_need_a_producer(clients: list[Client]) -> None:
    for fields in ({"producer": "p"}, {"seq": 1}):
        with pytest.raises(InvalidArgument, match="expected both or none"):
            clients[0].publish(WORDS, **fields)


def test_restarts_and_other_numbers_of_dispatchers_forget_nothing(tmp_path: Path) -> None:
    producers = [f"p{i}" for i in range(8)]
    known: dict[tuple[str, int], Receipt] = {}
    for seq, dispatchers in enumerate((2, 3, 1, 1, 3), 1):
        with serving(tmp_path, dispatchers) as clients:
            for (producer, old), first in known.items():
                assert clients[-1].publish(WORDS, producer=producer, seq=old) == first
            for producer in producers:
                known[producer, seq] = clients[0].publish(WORDS, producer=producer, seq=seq)
    assert len({(r.partition, r.first_offset) for r in known.values()}) == len(known)


def test_after_a_lost_connection_a_stream_sends_again_what_was_not_answered(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every third answer gets lost, with all that was under way."""
    calls: Any = clients[0]
    open_stream, reads = calls._channel.open_stream, 0

    def open_weak(path: str, **options: Any) -> Any:
        stream = open_stream(path, **options)
        read = stream.read

        def read_or_fail() -> bytes:
            nonlocal reads
            reads += 1
            data: bytes = read()
            if reads % 3 == 0:
                raise Unavailable("the answer got lost")
            return data

        stream.read = read_or_fail
        return stream

    monkeypatch.setattr(calls._channel, "open_stream", open_weak)
    batches = [[WORDS[0] | {"id": str(i)}] for i in range(20)]
    receipts = list(clients[0].publish_stream(iter(batches), producer="weak"))
    assert reads > len(batches)
    assert [clients[1].publish(b, producer="weak", seq=i) for i, b in enumerate(batches, 1)] == (
        receipts
    )
    places = [(receipt.partition, receipt.first_offset) for receipt in receipts]
    assert len(set(places)) == len(batches)
    with pytest.raises(Unavailable, match="got lost"):
        list(clients[0].publish_stream(iter(batches)))


def test_a_lost_answer_is_asked_for_again(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Any = clients[0]
    call, tries = calls._channel.call, 0

    def call_in_vain(path: str, data: bytes, timeout: float) -> bytes:
        nonlocal tries
        tries += 1
        found: bytes = call(path, data, timeout)
        if tries < 3:
            raise Unavailable("the answer got lost")
        return found

    monkeypatch.setattr(calls._channel, "call", call_in_vain)
    receipt = clients[0].publish(WORDS, producer="lost", seq=1)
    assert (tries, clients[1].publish(WORDS, producer="lost", seq=1)) == (3, receipt)
