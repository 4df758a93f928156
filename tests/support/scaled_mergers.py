"""Sessions of a running service that move to other mergers, and what their subscribers see."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ps2stream.client.client import Client
from ps2stream.client.scaling import MergerScale
from ps2stream.cluster.running_service import RunningService
from ps2stream.v1 import delivery_pb2

SESSIONS = [f"s{n}" for n in range(9)]
FLOOD = "flood OR river"


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


def move_and_restart(start: Callable[[], RunningService]) -> None:
    """Has sessions with matches that nobody has read move, and then move again after a restart."""
    with start() as service, Client(service.targets[0], timeout=90) as client:
        subscribe(client)
        publish(client, 0, 50)
        scaled(client, 3)
        publish(client, 50, 50)
        client.delete("q s1")
    with start() as service, Client(service.targets[0], timeout=90) as client:
        assert client.scale_mergers().mergers == 3
        assert "merger-2" in service.status()
        scaled(client, 2)
        scaled(client, 4)
        for session in SESSIONS:
            reader = NumberedReader(service.targets[-1], session, 100)
            reader.start()
            reader.check()
