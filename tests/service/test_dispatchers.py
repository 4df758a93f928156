"""Dispatchers that join a running service, or leave it: the calls, the command, producers, a
restart."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.client.answers import Receipt
from ps2stream.client.client import Client
from ps2stream.client.scaling import DispatcherScale
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition, InvalidArgument
from ps2stream.protocol.addresses import nothing
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.rows import no_queries
from ps2stream.protocol.session_map import SessionMap, SessionMaps
from ps2stream.sequencer.feed import packed
from ps2stream.store.backup import back_up, restore
from ps2stream.store.ledger import Ledger, recorded
from tests.support.moving import lines, run
from tests.support.scaled_dispatchers import PRODUCERS, joined, publish_once
from tests.support.scaled_mergers import NumberedReader, publish, subscribe


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runtime="local", port=0, hot="off", adjust="off", data_dir=tmp_path / "data")


@pytest.fixture
def service(settings: Settings) -> Iterator[RunningService]:
    with start(settings) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.targets[0], timeout=90) as found:
        yield found


def test_a_new_dispatcher_serves_all_calls(service: RunningService, client: Client) -> None:
    subscribe(client)
    publish(client, 0, 10)
    assert joined(service, client, 3).lsn > 0
    for n, target in enumerate(service.targets):
        with Client(target, timeout=90) as other:
            publish(other, 10 + 10 * n, 10)
            before = other.insert(f"late {n}", "lake", session="late")
            assert client.publish([{"text": "a lake", "lon": 0.0, "lat": 0.0}]).lsn >= before
            assert other.delete(f"late {n}") > before
    for n, session in enumerate(("s0", "s1", "s2")):
        reader = NumberedReader(service.targets[n], session, 40)
        reader.start()
        reader.check()
    names = [name for name in service.status() if name.startswith("dispatcher")]
    assert sorted(names) == ["dispatcher-0", "dispatcher-1", "dispatcher-2"]


@pytest.mark.takes_turns
def test_a_repeat_gets_the_first_answer_wherever_its_producer_went(
    service: RunningService, client: Client
) -> None:
    client.insert("q", "flood", session="s")
    first = {(p, seq): publish_once(client, p, seq) for p in PRODUCERS for seq in (1, 2)}
    steps = (2, 3, 5)
    for dispatchers in steps:
        answers: dict[str, object] = {}

        def keep_publishing(producer: str, answers: dict[str, object] = answers) -> None:
            answers[producer] = publish_once(client, producer, 10 + len(service.targets))

        seq = 10 + len(service.targets)
        threads = [threading.Thread(target=keep_publishing, args=(p,)) for p in PRODUCERS]
        for thread in threads:
            thread.start()
        joined(service, client, dispatchers)
        for thread in threads:
            thread.join()
        first |= {(p, seq): publish_once(client, p, seq) for p in PRODUCERS}
        for target in service.targets:
            with Client(target, timeout=90) as other:
                for (producer, number), answer in first.items():
                    assert publish_once(other, producer, number) == answer
    owners = {answer.partition for answer in first.values()}
    assert len(owners) > 1, "no producer went to another dispatcher"
    total = len(first)
    with client.subscribe("s") as stream:
        found = [next(stream).object_id for _ in range(total)]
    assert sorted(found) == sorted({f"{p}/{n}" for p, n in first})


def test_a_withdrawal_reaches_a_new_dispatcher(service: RunningService, client: Client) -> None:
    joined(service, client, 2)
    until = int(time.time() * 1000) + 3_600_000
    for n, target in enumerate(service.targets):
        with Client(target, timeout=90) as other:
            post = {"text": "a flood", "lon": 0.0, "lat": 0.0, "until": until}
            other.publish([post | {"id": f"kept {n}"}, post | {"id": f"gone {n}"}])
    client.withdraw(["gone 0", "gone 1"])
    client.insert("q", "flood", session="s", retro=True)
    with client.subscribe("s") as stream:
        assert sorted(next(stream).object_id for _ in range(2)) == ["kept 0", "kept 1"]


def test_the_number_outlasts_restarts_until_the_setting_changes(settings: Settings) -> None:
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        client.insert("q", "flood", session="s")
        joined(service, client, 3)
        answers = {p: publish_once(client, p, 1) for p in PRODUCERS}
    with start(settings) as service, Client(service.targets[2], timeout=90) as client:
        assert client.scale_dispatchers().dispatchers == len(service.targets) == 3
        assert {p: publish_once(client, p, 1) for p in PRODUCERS} == answers
    fewer = settings.model_copy(update={"dispatchers": 2})
    with start(fewer) as service, Client(service.targets[1], timeout=90) as client:
        assert client.scale_dispatchers().dispatchers == len(service.targets) == 2
        assert {p: publish_once(client, p, 1) for p in PRODUCERS} == answers
        joined(service, client, 4)
        assert {p: publish_once(client, p, 1) for p in PRODUCERS} == answers
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert client.scale_dispatchers().dispatchers == len(service.targets) == 1
        assert {p: publish_once(client, p, 1) for p in PRODUCERS} == answers


def test_producers_and_streams_go_elsewhere_before_a_dispatcher_leaves(
    service: RunningService, client: Client
) -> None:
    subscribe(client)
    joined(service, client, 3)
    targets = list(service.targets)
    readers = []
    for session in ("s0", "s1", "s2"):
        readers.append(NumberedReader(",".join([targets[2], targets[0]]), session, 60))
        readers[-1].start()
    answers: dict[tuple[str, int], Receipt] = {}
    first = {p: publish_once(client, p, 1, "a lake") for p in PRODUCERS}
    stopping = threading.Event()

    def keep_publishing(producer: str) -> None:
        seq = 1
        with Client(",".join(targets), timeout=90) as other:
            while not stopping.is_set() and seq < 200:  # all are in the window
                seq += 1
                answers[producer, seq] = publish_once(other, producer, seq, "a lake")
                time.sleep(0.005)

    threads = [threading.Thread(target=keep_publishing, args=(p,)) for p in PRODUCERS[:3]]
    for thread in threads:
        thread.start()
    publish(client, 0, 20)
    joined(service, client, 1)
    publish(client, 20, 20)
    stopping.set()
    for thread in threads:
        thread.join()
    for producer, answer in first.items():
        assert publish_once(client, producer, 1, "a lake") == answer
    for (producer, seq), answer in answers.items():
        assert publish_once(client, producer, seq, "a lake") == answer
    assert [name for name in service.status() if name.startswith("dispatcher")] == ["dispatcher-0"]
    assert [edge.sharers for edge in service._runtime.edges] == [1]  # type: ignore[attr-defined]
    joined(service, client, 2)
    with Client(service.targets[1], timeout=90) as other:
        publish(other, 40, 20)
        for producer, answer in first.items():
            assert publish_once(other, producer, 1, "a lake") == answer
    for reader in readers:
        reader.check()


def test_what_has_no_producer_is_published_elsewhere_before_a_dispatcher_leaves(
    service: RunningService, client: Client
) -> None:
    client.insert("q", "flood", session="s")
    joined(service, client, 2)
    both = ",".join(service.targets)
    published: list[str] = []
    stopping, problems = threading.Event(), list[BaseException]()

    def keep_publishing() -> None:
        try:
            with Client(both, timeout=90) as other:
                while not stopping.is_set() or len(published) < 100:
                    name = f"o{len(published)}"
                    other.publish([{"id": name, "text": "a flood", "lon": 0.0, "lat": 0.0}])
                    published.append(name)
        except BaseException as error:
            problems.append(error)
            raise

    thread = threading.Thread(target=keep_publishing)
    thread.start()
    joined(service, client, 1)
    stopping.set()
    thread.join()
    assert not problems
    with client.subscribe("s") as stream:
        assert sorted(next(stream).object_id for _ in published) == sorted(published)


def test_offsets_are_not_used_again_by_one_that_comes_back(settings: Settings) -> None:
    places: list[tuple[int, int]] = []

    def publish_there(service: RunningService) -> None:
        with Client(service.targets[1], timeout=90) as other:
            answer = other.publish([{"text": "a flood", "lon": 0.0, "lat": 0.0}])
            places.append((answer.partition, answer.first_offset))

    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        for _ in range(3):
            joined(service, client, 2)
            publish_there(service)
            joined(service, client, 1)
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert client.scale_dispatchers().dispatchers == len(service.targets) == 1
        joined(service, client, 2)
        publish_there(service)
    assert {partition for partition, _ in places} == {1}
    offsets = [offset for _, offset in places]
    assert offsets == sorted(set(offsets))


def test_the_valid_objects_of_one_that_left_are_a_gap(
    service: RunningService, client: Client
) -> None:
    joined(service, client, 2)
    until = int(time.time() * 1000) + 3_600_000
    for n, target in enumerate(service.targets):
        with Client(target, timeout=90) as other:
            post = {"id": f"o{n}", "text": "a flood", "lon": 0.0, "lat": 0.0, "until": until}
            other.publish([post])
    client.insert("before", "flood", session="before", retro=True)
    joined(service, client, 1)
    client.insert("after", "flood", session="after", retro=True)
    client.insert("plain", "flood", session="plain")
    client.publish([{"id": "last", "text": "a flood", "lon": 0.0, "lat": 0.0}])
    gaps: dict[str, int] = {}
    for session, ids in (
        ("before", ["last", "o0", "o1"]), ("after", ["last", "o0"]), ("plain", ["last"])
    ):  # fmt: skip
        found: list[str] = []
        gaps[session] = 0
        with client.subscribe(session) as stream:
            batches = stream.batches()
            while len(found) < len(ids):
                batch = next(batches)
                gaps[session] += batch.gap is not None and batch.gap.count == 0
                found += [match.object_id for match in batch]
        assert sorted(found) == ids
    assert gaps == {"before": 0, "after": 1, "plain": 0}


def test_too_many_are_refused(service: RunningService, client: Client) -> None:
    assert client.scale_dispatchers(1) == DispatcherScale(1, 0, moving=False)
    found = joined(service, client, 2)
    assert client.scale_dispatchers(2) == found
    with pytest.raises(InvalidArgument, match="expected 1 to 64 dispatchers, or 0, got 65"):
        client.scale_dispatchers(65)


def test_the_command_waits_for_the_ports(service: RunningService, client: Client) -> None:
    joined(service, client, 2)
    found = lines(run(service, "scale", "--dispatchers", "3", "--wait", "--json"))
    assert [line["event"] for line in found] == ["began", "done"]
    assert found[1]["endpoints"] == service.targets
    assert len(service.targets) == 3
    again = lines(run(service, "scale", "--dispatchers", "3", "--json"))
    assert [line["event"] for line in again] == ["in_force"]
    leaving = f"localhost:{service.targets[1].rpartition(':')[2]}"  # listed as 127.0.0.1
    fewer = lines(run(service, "scale", "--dispatchers", "1", "--wait", "--json", server=leaving))
    assert [line["event"] for line in fewer] == ["began", "done"]
    assert fewer[1]["endpoints"] == service.targets
    assert len(service.targets) == 1


def take_second_port() -> tuple[int, socket.socket]:
    """Returns a port that is free, and a socket that listens at the one after it."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = int(probe.getsockname()[1])
        with contextlib.suppress(OSError):
            return port, socket.create_server(("127.0.0.1", port + 1))


def test_a_port_in_use_is_opened_later(tmp_path: Path) -> None:
    port, taken = take_second_port()
    with taken:
        settings = Settings(runtime="local", port=port, data_dir=tmp_path / "data")
        with start(settings) as service, Client(service.targets[0], timeout=90) as client:
            client.scale_dispatchers(2)
            time.sleep(0.5)
            assert len(client.status()["endpoints"]) == 1
            taken.close()
            joined(service, client, 2)
            assert service.targets[1].endswith(f":{port + 1}")


def test_quotas_are_shared_among_all(service: RunningService, client: Client) -> None:
    edges = service._runtime.edges  # type: ignore[attr-defined]
    joined(service, client, 3)
    assert [edge.sharers for edge in edges] == [3, 3, 3]


# --- starts and backups amid a change -----------------------------------------------------------


def test_a_change_goes_on_after_a_restart_and_is_in_no_backup_before(settings: Settings) -> None:
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        client.insert("q", "flood", session="s")
        answers = {p: publish_once(client, p, 1) for p in PRODUCERS}
    folder = Path(settings.data_dir)
    ledger = Ledger.open(folder, recorded(folder, "analysis") or "")
    lsn = ledger.lsn + 1
    producers = ProducerMap.first(1).changed(2, lsn)
    record = SessionMaps(SessionMap.first(1), producers=producers).record()
    batch = LedgerBatch(lsn, lsn, 0, 0, 0, packed(no_queries()), nothing(), record)
    change = LedgerChange(batch, mergers=1, moves=f"{lsn} moving", dispatchers=producers.summary)
    ledger.commit(change)
    ledger.close()
    copy = folder.parent / "copy"
    with pytest.raises(FailedPrecondition, match="or dispatchers joined, while it was copied"):
        back_up(folder, copy)
    shutil.rmtree(copy)
    with start(settings) as service, Client(service.targets[1], timeout=90) as client:
        joined(service, client, 2)
        assert {p: publish_once(client, p, 1) for p in PRODUCERS} == answers
    back_up(folder, copy)
    shutil.rmtree(folder)
    restore(copy, folder)
    with start(settings) as service, Client(service.targets[1], timeout=90) as client:
        assert {p: publish_once(client, p, 1) for p in PRODUCERS} == answers
