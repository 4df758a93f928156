"""A service under load that more dispatchers join, while actors are killed: what is delivered is
what the oracle finds, and each publication with a producer and a seq is there once. And one that
dispatchers and mergers leave and join while nobody dies."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from ps2stream.client.answers import Receipt
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from tests.support.load import HELD, Load
from tests.support.real_posts import SESSIONS, Reader, quiet
from tests.support.scaled_dispatchers import PRODUCERS, joined, publish_once

pytestmark = pytest.mark.ray

TEXT = "xyzzyagain"
DEATHS = ((3, "dispatcher-0"), (4, "dispatcher-3"), (5, "sequencer-0"))
"""Numbers of dispatchers that are requested, and who dies amid the change. The simulator kills each
role at each step (tests/sim/test_growth)."""
MOST = DEATHS[-1][0]


class RepeatingPublisher(threading.Thread):
    """Publishes with producers, every publication twice, at dispatchers that serve then."""

    def __init__(self, service: RunningService) -> None:
        super().__init__(daemon=True)
        self.service = service
        self.answers: dict[tuple[str, int], Receipt] = {}
        self.stopping = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        seq = 0
        try:
            while not self.stopping.is_set():
                seq += 1
                for producer in PRODUCERS:
                    self._publish_twice(producer, seq)
                time.sleep(0.1)
        except BaseException as error:
            self.problem = error
            raise

    def _publish_twice(self, producer: str, seq: int) -> None:
        targets = list(self.service.targets)
        for target in (targets[seq % len(targets)], targets[-1]):
            with Client(target, timeout=90) as client:
                answer = publish_once(client, producer, seq, TEXT)
            known = self.answers.setdefault((producer, seq), answer)
            assert known == answer, (producer, seq)

    def stop(self) -> None:
        self.stopping.set()
        self.join()
        assert self.problem is None


def joined_amid_a_death(
    service: RunningService, client: Client, dispatchers: int, victim: str
) -> None:
    """Let dispatchers join, kill somebody once the ledger says so, and wait for the end."""
    before = client.scale_dispatchers().lsn
    asking = threading.Thread(target=client.scale_dispatchers, args=(dispatchers,))
    asking.start()
    deadline = time.monotonic() + 120
    with Client(service.targets[0], timeout=90) as other:
        while other.scale_dispatchers().lsn == before:
            assert time.monotonic() < deadline
        os.kill(service.status()[victim]["pid"], signal.SIGKILL)
        asking.join()
        joined(service, other, dispatchers)


@pytest.mark.repeats(
    "tests/ray/test_dispatchers.py::test_dispatchers_and_mergers_come_and_go",
    "tests/ray/test_chaos.py",
    "tests/sim/test_growth.py",
)
def test_dispatchers_join_under_load_while_actors_die(tmp_path: Path, tweets: Path) -> None:
    settings = Settings(
        port=0,
        hot="off",
        adjust="off",
        data_dir=tmp_path / "data",
        workers=2,
        mergers=2,
        max_in_flight=64,
        lease_s=60,  # only those that are killed here are replaced, however busy the machine is
    )
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        client.insert("repeated", TEXT, session="repeated")
        readers = {s: Reader(service.targets[0], s) for s in [*SESSIONS, "repeated"]}
        for reader in readers.values():
            reader.start()
        load = Load(service, tweets)
        load.insert(HELD)
        load.start()
        repeating = RepeatingPublisher(service)
        repeating.start()
        joined(service, client, 2)
        load.clients.append(Client(service.targets[1], timeout=90))
        for dispatchers, victim in DEATHS:
            joined_amid_a_death(service, client, dispatchers, victim)
            load.clients.append(Client(service.targets[-1], timeout=90))
        time.sleep(1.0)
        load.stop()
        repeating.stop()
        assert len({answer.partition for answer in repeating.answers.values()}) > MOST // 2
        quiet(service)
        for session in readers:
            client.insert(f"end {session}", "xyzzyend", session=session)
        client.publish([{"id": "the end", "text": "xyzzyend", "lon": 0.0, "lat": 0.0}])
        expected = load.expected()
        assert sum(map(len, expected.values())) > 200
        expected["repeated"] = Counter(
            ("repeated", f"{producer}/{seq}") for producer, seq in repeating.answers
        )
        for session, reader in readers.items():
            assert reader.done.wait(60), session
            assert Counter(reader.pairs) == expected[session]
            reader.client.close()
        for each in load.clients:
            each.close()
    with start(settings) as service, Client(service.targets[-1], timeout=90) as client:
        assert client.scale_dispatchers().dispatchers == len(service.targets) == MOST
        for (producer, seq), answer in list(repeating.answers.items())[-20:]:
            assert publish_once(client, producer, seq, TEXT) == answer


@pytest.mark.takes_turns(2)
def test_dispatchers_and_mergers_come_and_go(tmp_path: Path) -> None:
    settings = Settings(port=0, hot="off", adjust="off", data_dir=tmp_path / "data", dispatchers=2)
    with start(settings) as service, Client(service.targets[0], timeout=90) as client:
        client.insert("q", TEXT, session="s")
        both = ",".join(reversed(service.targets))
        pid = service.status()["dispatcher-1"]["pid"]
        with Client(both, timeout=90) as other, other.subscribe("s") as stream:
            answers = {p: publish_once(other, p, 1, TEXT) for p in PRODUCERS}
            joined(service, client, 1)
            answers |= {f"{p} again": publish_once(other, f"{p} again", 1, TEXT) for p in PRODUCERS}
            found = sorted(next(stream).object_id for _ in answers)
            assert found == sorted(f"{producer}/1" for producer in answers)
        for producer, answer in answers.items():
            assert publish_once(client, producer, 1, TEXT) == answer
        names = [name for name in service.status() if name.startswith("dispatcher")]
        assert names == ["dispatcher-0"]
        deadline = time.monotonic() + 60
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        joined(service, client, 2)
        with Client(service.targets[1], timeout=90) as other:
            for producer, answer in answers.items():
                assert publish_once(other, producer, 1, TEXT) == answer
        client.insert("moved", "moved", session="moved")
        with Client(service.targets[1], timeout=90) as other, other.subscribe("moved") as stream:
            for mergers in (2, 1):
                client.scale_mergers(mergers)
                deadline = time.monotonic() + 60
                while (scale := client.scale_mergers()).moving:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                assert scale.mergers == mergers
                publish_once(client, f"to {mergers}", 1, "moved")
                assert next(stream).object_id == f"to {mergers}/1"
