"""Sessions of a running service that move to other mergers: the calls, the command, a restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.client.scaling import MergerScale
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument
from ps2stream.v1 import delivery_pb2
from tests.support.moving import lines, run

SESSIONS = [f"s{n}" for n in range(9)]
FLOOD = "flood OR river"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        runtime="local", port=0, hot="off", adjust="off", dispatchers=2, data_dir=tmp_path / "data"
    )


@pytest.fixture
def service(settings: Settings) -> Iterator[RunningService]:
    with start(settings) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.targets[0], timeout=90) as found:
        yield found


def scaled(client: Client, mergers: int) -> MergerScale:
    """Move the sessions, and wait until all have moved."""
    client.scale_mergers(mergers)
    deadline = time.monotonic() + 60
    while (found := client.scale_mergers()).moving:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert found.mergers == mergers
    return found


def subscribe(client: Client) -> None:
    for session in SESSIONS:
        client.insert(f"q {session}", FLOOD, session=session)


def publish(client: Client, begin: int, n: int) -> None:
    rows = [
        {"id": f"o{i}", "text": "a flood", "lon": 0.0, "lat": 0.0} for i in range(begin, begin + n)
    ]
    client.publish(rows)


class NumberedReader(threading.Thread):
    """Reads matches of a session until it has so many: their numbers, and the objects."""

    def __init__(self, target: str, session: str, wanted: int) -> None:
        super().__init__(daemon=True)
        self.client = Client(target, timeout=90)
        self.stream = self.client.subscribe(session)
        self.wanted = wanted
        self.numbers: list[int] = []
        self.objects: list[str] = []

    def run(self) -> None:
        for match in self.stream:
            self.numbers.append(delivery_pb2.Cursor.FromString(self.stream.cursor).session_seq)
            self.objects.append(match.object_id)
            if len(self.numbers) == self.wanted:
                return

    def check(self) -> None:
        self.join(60)
        assert self.numbers == list(range(1, self.wanted + 1))
        assert sorted(self.objects) == sorted(f"o{i}" for i in range(self.wanted))
        self.client.close()


def test_open_streams_go_on_at_other_mergers(service: RunningService, client: Client) -> None:
    subscribe(client)
    steps = (3, 2, 5, 1)
    total = 40 * (len(steps) + 1)
    readers = [NumberedReader(service.targets[i % 2], s, total) for i, s in enumerate(SESSIONS)]
    for reader in readers:
        reader.start()
    publish(client, 0, 40)
    for n, mergers in enumerate(steps, 1):
        publisher = threading.Thread(target=publish, args=(client, 40 * n, 40))
        publisher.start()
        scaled(client, mergers)
        publisher.join()
    for reader in readers:
        reader.check()
    deadline = time.monotonic() + 30
    while [name for name in service.status() if name.startswith("merger")] != ["merger-0"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_matches_that_nobody_has_read_move_too_and_outlast_a_restart(settings: Settings) -> None:
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        subscribe(client)
        publish(client, 0, 50)
        scaled(client, 3)
        publish(client, 50, 50)
        client.delete("q s1")
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert client.scale_mergers().mergers == 3
        assert "merger-2" in service.status()
        scaled(client, 2)
        scaled(client, 4)
        for session in SESSIONS:
            reader = NumberedReader(service.targets[1], session, 100)
            reader.start()
            reader.check()


def test_a_number_that_is_in_force_changes_nothing(client: Client) -> None:
    assert client.scale_mergers(1) == MergerScale(1, 0, moving=False)
    found = scaled(client, 2)
    assert client.scale_mergers(2) == found


def test_a_number_out_of_range_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgument, match="expected 1 to 64 mergers, or 0, got 65"):
        client.scale_mergers(65)


def test_the_command_waits_for_the_sessions(service: RunningService) -> None:
    found = lines(run(service, "scale", "--mergers", "3", "--wait", "--json"))
    assert [line["event"] for line in found] == ["began", "done"]
    assert found[1]["mergers"] == 3
    again = lines(run(service, "scale", "--mergers", "3", "--json"))
    assert [line["event"] for line in again] == ["in_force"]


def test_the_command_wants_either_workers_or_mergers(service: RunningService) -> None:
    for options in ((), ("--mergers", "2", "--workers", "2")):
        found = run(service, "scale", *options)
        assert found.exit_code == 2
        assert "give either --workers or --mergers" in found.output
