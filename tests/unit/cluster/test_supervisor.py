"""Who is replaced when: as the lease of the settings has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ps2stream.cluster.actor_home import ActorHome
from ps2stream.cluster.death_witnesses import DeathWitnesses
from ps2stream.cluster.lease_rules import WINDOW_S, ActorSilence, ReplacementPace
from ps2stream.cluster.shell import ActorIncarnation, PingAnswer
from ps2stream.cluster.supervisor import START_S, ActorSupervisor
from ps2stream.observability.process import read_cpu_delays_s, read_state
from ps2stream.protocol.addresses import Address

HERE, BESIDE = Address("worker", 0), Address("merger", 0)
PID = 7


class Actor:
    """Answers while `awake`, and its clock goes `ahead` of the supervisor's; a call is whether
    it was, and `lost`: Ray says that it has died."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.awake = True
        self.lost = False
        self.lives = True  # the process of one that Ray has lost
        self.ahead = ahead
        self.lease = float("inf")  # by its clock
        self.ping = SimpleNamespace(remote=self._ping)
        self.neighbour: Actor | None = None
        self.has_ended = SimpleNamespace(remote=lambda pid: [self, pid])

    def _ping(self, lease_s: float, heard: float | None) -> list[Actor]:
        if self.awake and not self.lost:
            self.lease = (self.clock if heard is None else heard) + lease_s
        return [self]

    @property
    def clock(self) -> float:
        return time.monotonic() + self.ahead


def _get(call: list[Any]) -> PingAnswer | bool:
    if call[0].lost:
        raise OSError
    if len(call) > 1:
        return bool(call[1] == PID and not call[0].neighbour.lives)
    return PingAnswer(PID, call[0].clock)


def _wait(calls: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
    assert timeout == 0
    ready = [call for call in calls if call[0].awake]
    return ready, [call for call in calls if call not in ready]


RAY = SimpleNamespace(
    wait=_wait, get=_get, kill=lambda _: None, exceptions=SimpleNamespace(RayError=OSError)
)


def watch_hosts(
    actors: dict[Address, Actor], near: bool = False, nodes: tuple[str, ...] = ("a", "a")
) -> ActorSupervisor:
    """A supervisor of actors on these nodes, whose lease is 6 s."""
    lock = threading.RLock()
    peers = {
        address: ActorIncarnation("", 1, ActorHome(node, "", ""))
        for address, node in zip(actors, nodes, strict=False)
    }

    def silent_s(address: Address) -> float:
        return supervisor.silent_s(address)

    witnesses = None if near else DeathWitnesses(RAY, actors, peers, lock, silent_s)
    supervisor = ActorSupervisor(RAY, actors, lock, lambda _: None, 6.0, witnesses)
    return supervisor


@pytest.mark.parametrize("lease_s", [1.0, 30.0])
@pytest.mark.parametrize("ahead", [0.0, -500.0, 1e6])
def test_who_does_not_answer_within_the_lease_is_dead(
    lease_s: float, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor = Actor(ahead)
    supervisor = ActorSupervisor(RAY, {HERE: actor}, threading.RLock(), lambda _: None, lease_s)
    for _ in range(3):
        assert supervisor._find_dead_actors() == []
        now[0] += 0.25
    actor.awake = False
    last = 1000.5 + lease_s  # from the last answer
    assert actor.lease - ahead <= last
    assert supervisor.silent_s(HERE) == 0.25
    now[0] = last
    assert supervisor._find_dead_actors() == []
    now[0] = last + 0.01
    assert supervisor._find_dead_actors() == [(HERE, actor)]
    assert now[0] > actor.lease - ahead


def test_all_is_calm_while_everybody_answers_and_nobody_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, may_end = [1000.0], threading.Event()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor, beside = Actor(), Actor()
    actors = {HERE: actor, BESIDE: beside}
    supervisor = ActorSupervisor(RAY, actors, threading.RLock(), lambda _: None, 6.0)
    assert not supervisor.is_calm(), "nobody has answered yet"
    for _ in range(2):
        supervisor._find_dead_actors()
        now[0] += 0.25
    assert supervisor.is_calm()
    supervisor._replacements[HERE] = threading.Thread(target=may_end.wait, args=(60,))
    supervisor._replacements[HERE].start()
    assert not supervisor.is_calm()
    may_end.set()
    supervisor._replacements[HERE].join(60)
    assert supervisor.is_calm()
    beside.awake = False
    now[0] += 2.0
    assert not supervisor.is_calm()


@pytest.mark.parametrize("near", [True, False])
def test_whom_ray_has_lost_on_another_host_may_live_until_its_lease_is_over(
    near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor = Actor()
    supervisor = watch_hosts({HERE: actor}, near)
    for _ in range(3):
        assert supervisor._find_dead_actors() == []
        now[0] += 0.25
    actor.lost = True
    found = supervisor._find_dead_actors()
    assert found == ([(HERE, actor)] if near else [])
    if not near:
        now[0] = actor.lease
        assert supervisor._find_dead_actors() == []
        now[0] = 1000.5 + 6.01
        assert supervisor._find_dead_actors() == [(HERE, actor)]
        supervisor._handle_death(HERE, actor)
        assert supervisor._find_dead_actors() == []  # it is asked once more
        assert supervisor._find_dead_actors() == [(HERE, actor)]


@pytest.mark.parametrize("nodes", [("a", "a"), ("a", "b")])
def test_whom_a_neighbour_has_seen_die_is_replaced_before_its_lease_is_over(
    nodes: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor, beside = Actor(), Actor()
    beside.neighbour = actor
    supervisor = watch_hosts({HERE: actor, BESIDE: beside}, nodes=nodes)

    def look() -> list[tuple[Address, Any]]:
        now[0] += 0.25
        return supervisor._find_dead_actors()

    for _ in range(3):
        assert look() == []
    actor.lost = True
    assert [look() for _ in range(6)] == [[]] * 6  # it lives, though Ray has lost it
    actor.lives = False
    found = [dead for _ in range(4) for dead in look()]
    assert found[:1] == ([(HERE, actor)] if nodes == ("a", "a") else [])


def test_one_that_never_answered_and_is_lost_is_waited_for_no_longer_than_a_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor = Actor()
    actor.lost = True
    supervisor = watch_hosts({HERE: actor})
    for _ in range(2):
        assert supervisor._find_dead_actors() == []
    now[0] += 6.01
    assert supervisor._find_dead_actors() == [(HERE, actor)]


def test_who_has_gone_and_comes_again_is_not_held_to_the_lease_of_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actors = {HERE: Actor()}
    supervisor = ActorSupervisor(RAY, actors, threading.RLock(), lambda _: None, 2.0)
    for _ in range(3):
        assert supervisor._find_dead_actors() == []
        now[0] += 0.25
    gone = actors.pop(HERE)
    assert supervisor._find_dead_actors() == []
    now[0] += 60
    actors[HERE] = again = Actor()
    assert again is not gone
    again.awake = False  # it is being made
    for _ in range(3):
        assert supervisor._find_dead_actors() == []
        now[0] += 0.25


def test_the_grace_of_a_start_ends_once_the_actor_has_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    actor, fresh = Actor(), Address("worker", 1)
    actors = {HERE: actor, fresh: Actor()}
    actors[fresh].awake = False  # it is being made, and has never answered
    supervisor = ActorSupervisor(RAY, actors, threading.RLock(), lambda _: None, 6.0)
    monkeypatch.setattr(supervisor, "_watch_actors", lambda: None)
    supervisor.start({HERE: actor.ping.remote(6.0, None)})
    assert supervisor._find_dead_actors() == []
    actor.awake = False
    now[0] += 6.01
    assert supervisor._find_dead_actors() == [(HERE, actor)]
    now[0] += START_S - 0.1
    assert (fresh, actors[fresh]) not in supervisor._find_dead_actors()
    now[0] += 0.2
    assert (fresh, actors[fresh]) in supervisor._find_dead_actors()


def test_the_grace_of_a_successor_ends_once_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr("ps2stream.cluster.supervisor._end_process", lambda pid: None)
    actor, successor = Actor(), Actor()
    actors, half, serves = {HERE: actor}, threading.Event(), threading.Event()

    def replace(address: Address) -> None:
        actors[address] = successor
        half.set()
        assert serves.wait(30)

    supervisor = ActorSupervisor(RAY, actors, threading.RLock(), replace, 6.0)
    for _ in range(2):
        assert supervisor._find_dead_actors() == []
    actor.lost = True
    supervisor._handle_death(HERE, actor)
    assert half.wait(30)
    for _ in range(3):
        assert supervisor._find_dead_actors() == []
    successor.awake = False  # one step of its start takes long
    now[0] += START_S - 1
    assert supervisor._find_dead_actors() == []
    serves.set()
    supervisor._replacements[HERE].join()
    now[0] += 5.99
    assert supervisor._find_dead_actors() == []
    now[0] += 0.02
    assert supervisor._find_dead_actors() == [(HERE, successor)]


def test_one_that_was_not_quite_made_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps2stream.cluster.supervisor.PING_S", 0.01)
    monkeypatch.setattr("ps2stream.cluster.supervisor.REPLACE_S", 0.01)
    monkeypatch.setattr("ps2stream.cluster.supervisor._end_process", lambda pid: None)
    ray = SimpleNamespace(**vars(RAY))
    ray.kill = lambda actor: setattr(actor, "lost", True)
    made: list[Actor] = []

    def replace(address: Address) -> None:
        made.append(Actor())
        actors[address] = made[-1]
        if len(made) == 1:  # its port was taken, or it did not connect in time
            raise OSError

    actors = {HERE: Actor()}
    supervisor = ActorSupervisor(ray, actors, threading.RLock(), replace, 6.0)
    actors[HERE].lost = True
    supervisor.start()
    try:
        until(lambda: len(made) == 2)
    finally:
        supervisor.stop()
    assert made[0].lost
    assert not made[1].lost


class Machine:
    """An actor's process as the supervisor sees it, second by second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lease_s: float = 6.0) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        self.actor = Actor()
        self.delays_s = {1: 5.0, 2: 0.0}  # of the thread that answers, and another
        self.supervisor = ActorSupervisor(
            RAY, {HERE: self.actor}, threading.RLock(), lambda _: None, lease_s,
            read_delays_s=lambda pid: dict(self.delays_s) if pid == 7 else {},
        )  # fmt: skip
        for _ in range(3):
            assert self.supervisor._find_dead_actors() == []
            self.now += 0.25
        self.heard = self.now - 0.25

    def seconds_until_dead(self, starved_share: float, most: float = 100.0) -> float:
        """After its last answer, while it waits for a processor that share of the time."""
        self.actor.awake = False
        while self.now - self.heard < most:
            self.now += 0.25
            self.delays_s[1] += 0.25 * starved_share
            self.delays_s[2] += 0.25 * starved_share / 10
            if self.supervisor._find_dead_actors():
                return self.now - self.heard
        return most


@pytest.mark.parametrize(
    ("starved_share", "least", "most"),
    [
        (0.0, 6.0, 6.5),  # stopped, or deadlocked: it wants no processor
        (0.5, 10.0, 12.5),  # runs in circles beside a busy program
        (0.97, 90.0, 100.0),  # gets 3 % of one, as an actor at niceness 15 did
    ],
)
def test_silence_counts_in_time_that_the_process_could_have_used(
    starved_share: float,
    least: float,
    most: float,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert least <= Machine(monkeypatch).seconds_until_dead(starved_share) <= most
    assert ("lacks a processor" in caplog.text) == (starved_share > 0)


def test_a_starved_one_that_answers_gets_a_lease_that_its_slowness_does_not_use_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch)
    assert machine.seconds_until_dead(0.97, 20.0) == 20.0
    machine.actor.awake = True
    assert machine.supervisor._find_dead_actors() == []
    for _ in range(3):  # each answer takes 20 s
        machine.actor.awake = False
        machine.heard = machine.now
        assert machine.seconds_until_dead(0.97, 20.0) == 20.0
        assert machine.actor.lease > machine.now
        machine.actor.awake = True
        assert machine.supervisor._find_dead_actors() == []


def test_of_one_role_only_one_is_replaced_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = [Address("worker", i) for i in range(3)]
    actors = {address: Actor() for address in (*workers, Address("merger", 0))}
    replacing: list[Address] = []
    may_end = {address: threading.Event() for address in actors}

    def replace(address: Address) -> None:
        replacing.append(address)
        assert may_end[address].wait(30)
        actors[address] = Actor()

    supervisor = ActorSupervisor(RAY, actors, threading.RLock(), replace, 6.0)
    monkeypatch.setattr("ps2stream.cluster.supervisor.PING_S", 0.01)
    monkeypatch.setattr("ps2stream.cluster.supervisor._end_process", lambda pid: None)
    for actor in actors.values():
        actor.lost = True
    supervisor.start()
    try:
        done: list[Address] = []
        while len(done) < len(actors):
            until(lambda: len(replacing) >= min(len(done) + 1, 4))
            roles = [address.role for address in replacing if address not in done]
            assert len(roles) == len(set(roles)) or not roles
            first = next(address for address in replacing if address not in done)
            done.append(first)
            may_end[first].set()
    finally:
        for event in may_end.values():
            event.set()
        supervisor.stop()
    assert sorted(done) == sorted(actors)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_one_that_dies_again_and_again_is_replaced_ever_later() -> None:
    pace, now, waits = ReplacementPace(), 1000.0, []
    for _ in range(9):
        at = max(pace.next_at(now), now)
        waits.append(at - now)
        now = at
        pace.replace(now)
    assert waits == [0.0, 0.0, 0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert pace.next_at(now + WINDOW_S) < now + WINDOW_S


def test_a_process_that_waits_for_a_processor_is_told_from_one_that_is_stopped() -> None:
    pin = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})"
    spin = [sys.executable, "-c", f"{pin}\nwhile True: pass"]
    hogs = [subprocess.Popen(spin) for _ in range(3)]
    try:
        first, other = hogs[0].pid, hogs[1].pid
        until(lambda: sum(read_cpu_delays_s(first).values()) > 0.3)
        os.kill(other, signal.SIGSTOP)
        until(lambda: read_state(other) == "T")
        before = sum(read_cpu_delays_s(other).values())
        silence = ActorSilence(read_cpu_delays_s(first))
        until(lambda: silence.starved_s(read_cpu_delays_s(first)) > 0.3)
        assert sum(read_cpu_delays_s(other).values()) == before
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert read_cpu_delays_s(first) == {}


def test_a_process_that_ends_is_noticed_before_ray_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next ping is due in a minute, and Ray says nothing at all."""
    gone, replaced = threading.Event(), threading.Event()
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    ray = SimpleNamespace(**vars(RAY))
    ray.get = lambda call: PingAnswer(sleeper.pid, time.monotonic())
    actors = {HERE: Actor()}

    def replace(address: Address) -> None:
        assert gone.is_set()
        assert address == HERE
        replaced.set()

    supervisor = ActorSupervisor(ray, actors, threading.RLock(), replace, 600.0)
    for _ in range(2):
        assert supervisor._find_dead_actors() == []
    monkeypatch.setattr("ps2stream.cluster.supervisor.PING_S", 60.0)
    supervisor.start()
    try:
        assert not replaced.wait(0.2)
        gone.set()
        sleeper.kill()
        sleeper.wait()
        assert replaced.wait(30)
    finally:
        supervisor.stop()
