"""As many workers as the plans have: started before, stopped after."""

from __future__ import annotations

import pytest

from ps2stream.cluster.actor_scaling import ActorScaler
from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import Role


class Staff:
    """`wanted` as the sequencer says; what was done, in order."""

    role: Role = "worker"

    def __init__(self, workers: int, wanted: int) -> None:
        self.running = workers
        self.wanted = wanted
        self.done: list[tuple[str, int]] = []
        self.rush = 0  # what is wanted once it has been told of fewer
        self.broken = -1
        self.full = False

    def tell(self, workers: int) -> int:
        self.done.append(("tell", workers))
        if self.rush and workers < self.running:
            self.wanted = self.rush
        return self.wanted

    def start_actor(self, worker: int) -> None:
        if worker == self.broken:
            raise OSError("no room")
        if self.full:
            raise Unavailable("worker-1 has no place")
        assert worker == self.running
        self.running += 1
        self.done.append(("start_actor", worker))

    def dismiss(self, worker: int) -> None:
        self.running -= 1
        assert worker == self.running
        self.done.append(("dismiss", worker))


def test_the_sequencer_hears_of_new_workers_once_they_run() -> None:
    staff = Staff(1, 3)
    ActorScaler([staff]).look(staff)
    assert staff.done == [("tell", 1), ("start_actor", 1), ("start_actor", 2), ("tell", 3)]


def test_the_sequencer_hears_of_those_that_go_before_they_do() -> None:
    staff = Staff(3, 1)
    ActorScaler([staff]).look(staff)
    assert staff.done == [("tell", 3), ("tell", 1), ("dismiss", 2), ("dismiss", 1)]


def test_nobody_goes_whom_a_plan_has_just_asked_for() -> None:
    staff = Staff(3, 1)
    staff.rush = 3
    ActorScaler([staff]).look(staff)
    assert staff.running == 3
    ActorScaler([staff]).look(staff)
    assert staff.done[-1] == ("tell", 3)


def test_what_fails_is_taken_up_where_it_stopped() -> None:
    staff = Staff(1, 3)
    staff.broken = 2
    with pytest.raises(OSError, match="no room"):
        ActorScaler([staff]).look(staff)
    assert ("tell", 3) not in staff.done
    staff.broken = -1
    ActorScaler([staff]).look(staff)
    assert staff.running == 3
    assert staff.done[-1] == ("tell", 3)


def test_who_has_no_place_is_told_once_and_started_when_there_is_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    staff = Staff(1, 2)
    staff.full = True
    manning = ActorScaler([staff])
    for _ in range(3):
        manning.look(staff)
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        "worker-1 was not started; retrying: worker-1 has no place"
    ]
    staff.full = False
    manning.look(staff)
    assert staff.done[-2:] == [("start_actor", 1), ("tell", 2)]
