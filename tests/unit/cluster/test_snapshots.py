"""A worker that is frozen, thawed, and goes on from a snapshot; its shell keeps them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ps2stream.cluster import snapshots
from ps2stream.cluster.actor_shells import WorkerShell
from ps2stream.cluster.links import PeerLinks
from ps2stream.cluster.snapshots import SnapshotPolicy
from ps2stream.cluster.topology import Topology
from ps2stream.language.analyzer import Analysis
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.updates import LedgerTip
from ps2stream.routing.plan import text_plan
from ps2stream.store.places import DataDirectory
from ps2stream.workers.index import SavedIndex
from ps2stream.workers.machine import WorkerMachine
from tests.support.working import (
    DEL,
    GRID,
    INS,
    ROUTE,
    asked,
    fetched,
    handles,
    objects,
    tagger,
    updates,
    worker,
)

HERE, PEER = Address("worker", 0), Address("dispatcher", 0)
TOPOLOGY = Topology(text_plan(Analysis(salt=7), GRID, 1))


def snapshot(machine: WorkerMachine) -> SavedIndex:
    found = machine.freeze()
    assert found is not None
    saved = SavedIndex(found.lsn, {name: np.array(part) for name, part in found.parts.items()})
    machine.thaw()
    return saved


def resumed(saved: SavedIndex) -> WorkerMachine:
    return WorkerMachine(0, 1, 1, tagger(), ROUTE, saved=saved)


def test_frozen_it_matches_objects_and_lets_updates_wait() -> None:
    machine = worker()
    assert machine.freeze() is None  # there is nothing
    machine.on(updates((INS, 1, 1), (DEL, 2, 1), (INS, 3, 3)))
    found = machine.freeze()
    assert found is not None
    assert (found.lsn, machine.blocked) == (3, False)
    before = {name: part.tobytes() for name, part in found.parts.items()}
    assert handles(machine.on(objects(3))) == [3]
    assert machine.on(updates((DEL, 4, 3), watermark=3)) == []
    assert (machine.applied, machine.blocked) == (3, True)
    assert machine.on(objects(4, batch=1)) == []
    assert handles(machine.on(objects(1, batch=2))) == [1]
    assert {name: part.tobytes() for name, part in found.parts.items()} == before
    out = machine.thaw()
    assert (handles(out), len(out), machine.applied, machine.blocked) == ([], 1, 4, False)
    assert machine.held == 0
    assert machine.stats()[:2] == (0, 1)


def test_half_a_state_is_not_kept() -> None:
    machine = worker()
    machine.on(fetched((INS, 1, 1), span=(1, 1), state=4, until=3))
    assert machine.freeze() is None
    machine.on(fetched(span=(2, 3), state=4, until=3))
    assert snapshot(machine).lsn == 3


def test_a_state_that_begins_while_it_is_frozen_waits() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1)))
    found = machine.freeze()
    assert found is not None
    before = {name: part.tobytes() for name, part in found.parts.items()}
    machine.on(fetched((INS, 2, 2), span=(1, 2), state=4, until=2))
    assert machine.on(objects(2)) == []
    assert {name: part.tobytes() for name, part in found.parts.items()} == before
    assert handles(machine.thaw()) == [2]


def test_it_asks_at_once_for_what_follows_a_snapshot() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1), (INS, 2, 2)))
    saved = snapshot(machine)
    machine.on(updates((DEL, 3, 1), (INS, 4, 4)))
    again = resumed(saved)
    assert again.applied == 2
    assert asked(again.on(LedgerTip(2, 0))) == []
    assert asked(again.on(LedgerTip(4, 0))) == [(2, 0)]
    assert asked(again.on(LedgerTip(4, 0))) == []
    assert handles(again.on(objects(2))) == [1, 2]
    again.on(fetched((INS, 2, 2), (DEL, 3, 1), (INS, 4, 4), span=(2, 4)))
    for lsn in range(2, 5):
        assert handles(again.on(objects(lsn))) == handles(machine.on(objects(lsn)))


def test_a_state_takes_the_place_of_a_snapshot() -> None:
    machine = worker()
    machine.on(updates((INS, 1, 1), (INS, 2, 2)))
    again = resumed(snapshot(machine))
    again.on(LedgerTip(9, 0))
    again.on(fetched((INS, 2, 2), span=(1, 9), state=4, until=9))  # 1 is forgotten
    assert handles(again.on(objects(9))) == [2]
    assert again.stats().live == 1


# --- the shell -----------------------------------------------------------------------------


class Host:
    """A worker's shell over a data directory, and a link to it."""

    def __init__(self, data: Path, epoch: int, period_s: float = 0.01, identity: int = 5) -> None:
        self.shell = WorkerShell(
            HERE, epoch, TOPOLOGY, SnapshotPolicy(DataDirectory(data), identity, period_s)
        )
        self.links = PeerLinks(PEER, epoch)
        self.links.connect(HERE, *self.shell.bind(data))
        self.shell.start()

    def post(self, *frames: Frame) -> None:
        self.links.post([Send(HERE, frame) for frame in frames])

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not true():
            assert time.monotonic() < deadline
            assert not self.shell.failure
            time.sleep(0.005)

    def reaches(self, lsn: int) -> None:
        self.until(lambda: self.shell.machine.applied == lsn)

    def saves(self, lsn: int) -> None:
        self.until(lambda: self.shell.status()["snapshot"].get("lsn") == lsn)

    def stop(self) -> None:
        self.shell.stop()
        self.links.close()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Host]]:
    monkeypatch.setattr(snapshots, "WORTH", 2)
    made: list[Host] = []

    def make(epoch: int, **options: float) -> Host:
        for old in made:
            old.stop()
        made[:] = [Host(tmp_path, epoch, **options)]  # type: ignore[arg-type]
        return made[0]

    yield make
    for old in made:
        old.stop()


def test_a_worker_keeps_snapshots_while_it_works_and_its_successor_goes_on(
    host: Callable[..., Host],
) -> None:
    first = host(1)
    first.post(updates((INS, 1, 1), (INS, 2, 2)))
    first.saves(2)
    first.post(updates((DEL, 3, 1)))  # not worth another
    first.reaches(3)
    first.post(updates((INS, 4, 4)))
    first.saves(4)
    told = first.shell.status()["snapshot"]
    assert told["bytes"] > 0
    assert {"copy_s", "write_s"} <= told.keys()
    second = host(2)
    assert second.shell.machine.applied == 4
    assert second.shell.status()["snapshot"]["loaded_lsn"] == 4
    second.post(updates((INS, 5, 5)))
    second.reaches(5)
    third = host(3)  # the last one was made by the stop
    assert third.shell.machine.applied == 5
    assert handles(third.shell.machine.on(objects(5, route=TOPOLOGY.plan.route))) == [2, 4, 5]
    assert host(4, identity=6).shell.machine.applied == 0
    assert host(5).shell.machine.applied == 0  # and that one is gone


def test_without_a_period_there_are_none(host: Callable[..., Host], tmp_path: Path) -> None:
    first = host(1, period_s=0)
    first.post(updates((INS, 1, 1), (INS, 2, 2)))
    first.reaches(2)
    assert host(2, period_s=0).shell.machine.applied == 0
    assert not (tmp_path / "snapshots").exists()


def test_at_most_one_comes_in_a_period(host: Callable[..., Host]) -> None:
    first = host(1, period_s=3600)
    first.post(updates((INS, 1, 1), (INS, 2, 2)))
    first.reaches(2)
    for _ in range(20):
        first.shell.saver.look(first.shell.machine, time.monotonic())
    assert first.shell.status()["snapshot"] == {}
    first.shell.saver.look(first.shell.machine, time.monotonic() + 3601)
    first.saves(2)


def test_who_is_past_its_lease_keeps_nothing(host: Callable[..., Host], tmp_path: Path) -> None:
    first = host(1, period_s=3600)
    first.post(updates((INS, 1, 1), (INS, 2, 2)))
    first.reaches(2)
    first.shell.lease = 0.0
    first.stop()
    assert not (tmp_path / "snapshots" / "worker-0" / "manifest").exists()


def test_another_process_that_has_the_folder_costs_the_snapshots_alone(
    host: Callable[..., Host], tmp_path: Path
) -> None:
    held = DataDirectory(tmp_path).open_snapshots("worker-0")
    assert held is not None
    first = host(1)
    first.post(updates((INS, 1, 1), (INS, 2, 2)))
    first.reaches(2)
    assert first.shell.status()["snapshot"] == {}
    held.close()
    host(2)


@pytest.mark.parametrize("room", [None, 8, 40, 1_000])
def test_a_copy_shares_nothing_with_what_was_frozen(room: int | None) -> None:
    part = np.arange(10, dtype=np.uint32).reshape(2, 5)
    copied = snapshots._copy_part(part, None if room is None else np.ones(room, np.uint8))
    part += 1
    assert copied.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert copied.dtype == part.dtype
