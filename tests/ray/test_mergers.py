"""A service under load whose sessions move to more mergers and to fewer, while actors are killed:
what is delivered is what the oracle finds, and the numbers of each session have no gap."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.v1 import delivery_pb2
from tests.support.load import HELD, Load
from tests.support.real_posts import SESSIONS, Reader, quiet

pytestmark = pytest.mark.ray
DEATHS = ((1, "merger-0"), (3, "merger-0"), (2, "merger-1"), (3, "sequencer-0"))
"""Numbers of mergers that are requested, and who dies amid the move: the one that gains sessions,
those that lose them, and the sequencer. The simulator kills the others too
(tests/sim/test_session_moves)."""


class NumberedReader(Reader):
    """Also notes the number of each pair, and what was lost."""

    def __init__(self, target: str, session: str) -> None:
        super().__init__(target, session)
        self.numbers: list[int] = []

    def run(self) -> None:
        for match in self.stream:
            cursor = delivery_pb2.Cursor.FromString(self.stream.cursor)
            self.numbers.append(cursor.session_seq)
            if match.object_id == "the end":
                self.done.set()
                return
            self.pairs.append((match.query_id, match.object_id))


def scaled(service: RunningService, client: Client, mergers: int, victim: str = "") -> None:
    """Move the sessions, kill somebody in the middle of that, and wait for the end."""
    asking = threading.Thread(target=client.scale_mergers, args=(mergers,))
    before = client.scale_mergers().lsn
    asking.start()
    deadline = time.monotonic() + 120
    with Client(service.targets[0], timeout=90) as other:
        while other.scale_mergers().lsn == before:
            assert time.monotonic() < deadline
        if victim:
            os.kill(service.status()[victim]["pid"], signal.SIGKILL)
        asking.join()
        while (found := other.scale_mergers()).moving:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert found.mergers == mergers


@pytest.mark.repeats(
    "tests/ray/test_dispatchers.py::test_dispatchers_and_mergers_come_and_go",
    "tests/ray/test_chaos.py",
    "tests/sim/test_session_moves.py",
)
def test_sessions_move_under_load_while_actors_die(tmp_path: Path, tweets: Path) -> None:
    settings = Settings(
        port=0,
        hot="off",
        adjust="off",
        data_dir=tmp_path / "data",
        dispatchers=2,
        workers=2,
        max_in_flight=64,
        lease_s=60,  # only those that are killed here are replaced, however busy the machine is
    )
    with start(settings) as service, Client(service.targets[1], timeout=90) as client:
        readers = [NumberedReader(service.targets[i % 2], s) for i, s in enumerate(SESSIONS)]
        for reader in readers:
            reader.start()
        load = Load(service, tweets)
        load.insert(HELD)
        load.start()
        scaled(service, client, 3)
        assert "merger-2" in service.status()
        for mergers, victim in DEATHS:
            scaled(service, client, mergers, victim)
        time.sleep(0.5)
        load.stop()
        quiet(service)
        for session in SESSIONS:
            client.insert(f"end {session}", "xyzzyend", session=session)
        client.publish([{"id": "the end", "text": "xyzzyend", "lon": 0.0, "lat": 0.0}])
        expected = load.expected()
        assert sum(map(len, expected.values())) > 200
        for session, reader in zip(SESSIONS, readers, strict=True):
            assert reader.done.wait(60), session
            assert Counter(reader.pairs) == expected[session]
            assert reader.numbers == list(range(1, len(reader.pairs) + 2))
            reader.client.close()
        for each in load.clients:
            each.close()
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        assert client.scale_mergers().mergers == 3
        assert "merger-2" in service.status()
