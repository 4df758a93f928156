"""When the controller acts on what the dispatchers report of hot units."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import numpy as np
import pytest

from ps2stream.controller.hot_units import (
    RECENT,
    HotUnitWatch,
    combine_reports,
    join_streams,
)
from ps2stream.controller.machine import ControllerMachine
from ps2stream.controller.policy import ControllerPolicy
from ps2stream.planner.adjust.decide import Rules
from ps2stream.planner.adjust.replicate import HotUnit, ReplicationRules
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.frame import decode, strings_to_column
from ps2stream.protocol.messages.loads import NO_CELL, HotUnitsReport, HotUnitsRequest
from ps2stream.protocol.messages.plan import PlanAction, PlanChangeReply, PlanChangeRequest
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_changes import PlanState
from ps2stream.routing.replicas import ReplicatedUnit
from tests.support.controller_world import halves

RULES = ReplicationRules(cool_s=2.0)
Units = Sequence[tuple[float, int, str, int]]
"""Share, cell, word and owner."""
HOT: Units = [(0.8, 5, "", 0), (0.3, NO_CELL, "flood", 0)]
CALM: Units = [(0.02, 5, "", 0)]


def report_of(
    request: HotUnitsRequest,
    units: Units = (),
    sent: tuple[int, int] = (5_000, 5_000),
    plan: RoutingPlan | None = None,
    dispatcher: int = 0,
    objects: int = 10_000,
    postings: int = 0,
    busy: float = 0.0,
    scatter: float = 0.0,
    crowded: bool = False,
) -> HotUnitsReport:
    """A report as it arrives. busy: the part of the time for which worker 0 matched, the other half
    of it; scatter: the standard deviation of what each was sent."""
    report = HotUnitsReport(
        dispatcher, request.epoch, request.number, (plan or halves()).route, objects, 500,
        30, 1_000 * request.weigh,
        np.array(sent, np.int64), np.array([u[0] for u in units]),
        np.array([u[1] for u in units], np.uint32), *strings_to_column([u[2] for u in units]),
        np.array([u[3] for u in units], np.uint32),
        np.full(len(units), postings * request.weigh, np.int64),
        np.array([busy * 500_000, busy * 250_000], np.int64), np.full(2, scatter**2), int(crowded),
    )  # fmt: skip
    found = decode(report.encode())
    assert isinstance(found, HotUnitsReport)
    return found


def requested(sends: list[Send]) -> HotUnitsRequest:
    """The request to all dispatchers."""
    frames = [send.frame for send in sends]
    assert isinstance(frames[0], HotUnitsRequest)
    assert all(frame is frames[0] for frame in frames)
    return frames[0]


class Watched:
    """A watch, and dispatchers that all report alike."""

    def __init__(self, dispatchers: int = 1, plan: RoutingPlan | None = None) -> None:
        self.watch = HotUnitWatch(7, dispatchers, RULES)
        self.plan = plan or halves()
        self.dispatchers = dispatchers

    def see(
        self,
        units: Units,
        sent: tuple[int, int],
        objects: int = 10_000,
        postings: int = 0,
        busy: float = 0.0,
        scatter: float = 0.0,
        crowded: int = 0,
    ) -> RoutingPlan | None:
        """crowded: how many of the dispatchers are."""
        request = requested(self.watch.request())
        how = objects, postings, busy / self.dispatchers, scatter
        done = [
            self.watch.take(report_of(request, units, sent, self.plan, i, *how, i < crowded))
            for i in range(self.dispatchers)
        ]
        assert done == [False] * (self.dispatchers - 1) + [True]
        return self.watch.propose(self.plan, self.plan.route)


def test_two_reports_in_a_row_change_the_plan() -> None:
    watched = Watched(dispatchers=2)
    assert watched.see(HOT, (9_000, 1_000)) is None
    plan = watched.see(HOT, (9_000, 1_000))
    assert plan is not None
    assert plan.replicas == (ReplicatedUnit(5, None, (0, 1)),)
    assert watched.watch.balance == 1.8


def test_a_unit_with_most_of_the_queries_is_sharded() -> None:
    """Postings are requested once there was an imbalance; a shard's copies count as parts."""
    watched = Watched(dispatchers=2)
    assert requested(watched.watch.request()).weigh == 0
    assert watched.see(HOT[:1], (9_000, 1_000), postings=600) is None
    plan = watched.see(HOT[:1], (9_000, 1_000), postings=600)
    assert plan is not None
    assert plan.replicas == (ReplicatedUnit(5, None, (0, 1), sharded=True),)
    watched = Watched(plan=plan)
    assert watched.see(HOT[:1], (9_000, 9_000)) is None
    assert watched.watch.balance == 1.0
    stream = combine_reports([report_of(HotUnitsRequest(1, 1, 1), HOT, postings=600)], 2)
    assert stream is not None
    assert stream.updates == 60.0
    assert {unit.postings for unit in stream.units} == {0.6}


def test_one_report_between_calm_ones_does_not() -> None:
    watched = Watched()
    for _ in range(3):
        assert watched.see(HOT, (9_000, 1_000)) is None
        for _ in range(10):  # until the ones before are forgotten
            assert watched.see(CALM, (5_000, 5_000)) is None


def test_single_bursts_are_not_in_a_row() -> None:
    """As of programs that publish a file now and then."""
    watched = Watched()
    for _ in range(5):
        assert watched.see(HOT, (9_000, 1_000)) is None
        assert watched.see((), (0, 0), objects=0) is None


def test_a_small_imbalance_is_seen_in_several_reports() -> None:
    """Of 400 copies each: alone they may be chance."""
    watched = Watched()
    seen = [watched.see(HOT, (280, 120), objects=400) for _ in range(10)]
    assert seen[:2] == [None, None]
    assert any(plan is not None for plan in seen)
    watched = Watched()
    assert not any(watched.see(HOT, (60, 40), objects=100) for _ in range(100))


def test_nothing_is_done_while_publications_wait_but_not_for_a_worker() -> None:
    watched = Watched(dispatchers=2)
    for _ in range(5):
        assert watched.see(HOT, (9_000, 1_000), busy=0.2, crowded=1) is None
        assert watched.watch.held
        assert requested(watched.watch.request()).weigh == 0  # which would cost something
    for _ in range(RECENT - 1):  # a moment later they may wait again
        assert watched.see(HOT, (9_000, 1_000), busy=0.2) is None
        assert watched.watch.held
    assert watched.see(HOT, (9_000, 1_000), busy=0.2) is None
    assert not watched.watch.held
    assert watched.see(HOT, (9_000, 1_000), busy=0.2) is not None


def test_a_worker_that_is_the_limit_is_relieved_while_publications_wait() -> None:
    watched = Watched(dispatchers=2)
    for _ in range(5):
        assert watched.see(HOT, (9_000, 1_000), busy=0.2, crowded=1) is None
    assert watched.see(HOT, (9_000, 1_000), busy=0.4, crowded=2) is None
    assert watched.see(HOT, (9_000, 1_000), busy=0.4, crowded=2) is not None
    watched.see(HOT, (9_000, 1_000), busy=0.2, crowded=1)
    assert watched.watch.held
    watched.watch.forget()
    assert not watched.watch.held


def test_a_cool_replica_stays_while_publications_wait() -> None:
    plan = dataclasses.replace(halves(), replicas=(ReplicatedUnit(5, None, (0, 1)),))
    watched = Watched(plan=plan)
    for _ in range(8):
        assert watched.see(CALM, (5_000, 5_000), crowded=1) is None
    for _ in range(RECENT - 1):
        assert watched.see(CALM, (5_000, 5_000)) is None
    after = watched.see(CALM, (5_000, 5_000))
    assert after is not None
    assert after.replicas == ()


def test_what_whole_batches_bring_is_no_imbalance() -> None:
    """Of a replicated unit a worker gets whole batches: few of them scatter by half of the mean."""
    plan = dataclasses.replace(halves(), replicas=(ReplicatedUnit(20, None, (0, 1)),))
    hot = [*HOT, (0.5, 20, "", 0)]
    watched = Watched(plan=plan)
    for _ in range(20):
        assert watched.see(hot, (9_000, 1_000), scatter=2_500) is None
    watched = Watched(plan=plan)
    seen = [watched.see(hot, (9_000, 1_000), scatter=600) for _ in range(3)]
    assert any(plan is not None for plan in seen)
    watched = Watched()  # nothing is replicated: it is the stream that scatters
    seen = [watched.see(hot, (9_000, 1_000), scatter=2_500) for _ in range(3)]
    assert any(plan is not None for plan in seen)
    streams = [
        combine_reports([report_of(HotUnitsRequest(1, 1, 0), HOT, scatter=s)], 2)
        for s in (300.0, 400.0)
    ]
    joined = join_streams([stream for stream in streams if stream is not None])
    assert joined.noise == pytest.approx(2 * 500 / 20_000)


def test_a_replica_ends_when_its_unit_was_cool_for_long() -> None:
    plan = dataclasses.replace(halves(), replicas=(ReplicatedUnit(5, None, (0, 1)),))
    watched = Watched(plan=plan)
    for _ in range(3):
        assert watched.see(CALM, (5_000, 5_000)) is None
    assert watched.see(HOT, (5_000, 5_000)) is None  # hot once more
    for _ in range(3):
        assert watched.see(CALM, (5_000, 5_000)) is None
    after = watched.see(CALM, (5_000, 5_000))  # two seconds, twice a second
    assert after is not None
    assert after.replicas == ()
    assert after.base_version == plan.version


def test_reports_of_another_plan_or_request_are_ignored() -> None:
    watch = HotUnitWatch(7, 1, RULES)
    old = requested(watch.request())
    new = requested(watch.request())
    assert not watch.take(report_of(old, HOT, (9_000, 1_000)))
    assert not watch.take(report_of(HotUnitsRequest(6, new.number, 0), HOT, (9_000, 1_000)))
    other = dataclasses.replace(halves(), cells=halves().cells[::-1].copy())
    for _ in range(3):
        request = requested(watch.request())
        assert watch.take(report_of(request, HOT, (9_000, 1_000), other))
        assert watch.propose(halves(), halves().route) is None


def test_the_reports_of_dispatchers_count_by_their_objects() -> None:
    request = HotUnitsRequest(7, 1, 0)
    first = report_of(request, [(0.5, 5, "", 0), (0.2, NO_CELL, "a", 1)], (300, 100), objects=400)
    second = report_of(request, [(0.1, 6, "", 0), (0.4, NO_CELL, "a", 1)], (0, 100), objects=100)
    silent = report_of(request, [(0.9, 7, "", 0)], (0, 0), objects=0)
    stream = combine_reports([first, second, silent], 3)
    assert stream is not None
    found = [(u.cell, u.term, u.owner, round(u.share, 6)) for u in stream.units]
    assert found == [(5, None, 0, 0.4), (None, "a", 1, 0.24), (6, None, 0, 0.02)]
    assert stream.sent.tolist() == [0.6, 0.4, 0.0]
    assert (stream.objects, stream.rate) == (500, 1_000)
    assert combine_reports([silent], 2) is None
    assert [u.key for u in (HotUnit(1, None, 0.1), HotUnit(None, "a", 0.1))] == [
        (1, None), (None, "a")
    ]  # fmt: skip


# --- the machine ------------------------------------------------------------------------


class Controlled:
    """A controller, with a sequencer and a dispatcher by hand."""

    def __init__(self, hot: bool = True, plan: RoutingPlan | None = None) -> None:
        self.strategy = PlanState(plan or halves())
        policy = ControllerPolicy(Rules(), 100, hot=hot, replication=RULES)
        self.machine = ControllerMachine(self.strategy.plan, policy, epoch=3)
        self.moves: list[RoutingPlan] = []
        self.requests = 0
        self.units: Units = HOT
        self.sent = (9_000, 1_000)

    def serve(self, sends: list[Send]) -> None:
        for to, frame in sends:
            if isinstance(frame, HotUnitsRequest):
                assert to == Address("dispatcher", 0)
                self.requests += 1
                plan = self.strategy.serving
                self.serve(self.machine.on(report_of(frame, self.units, self.sent, plan)))
            if isinstance(frame, PlanChangeRequest):
                if frame.ask == PlanAction.MOVE:
                    body = frame.plan.tobytes().decode()
                    plan = RoutingPlan.from_dict(json.loads(body), halves().analysis)
                    self.moves.append(plan)
                    self.strategy = PlanState(self.strategy.plan, plan, begun=4)
                none = np.zeros(0, np.uint8)
                state = np.frombuffer(b"{}", np.uint8)
                reply = PlanChangeReply(
                    frame.seq, 5, 0, 100, 100, none, self.strategy.record(), state
                )
                self.serve(self.machine.on(reply))

    def pass_ticks(self, ticks: int) -> None:
        for _ in range(ticks):
            self.serve(self.machine.tick())


def test_the_controller_spreads_a_hot_unit_within_two_seconds() -> None:
    world = Controlled()
    world.pass_ticks(20)
    assert [plan.replicas for plan in world.moves] == [(ReplicatedUnit(5, None, (0, 1)),)]
    counters = world.machine.counters
    assert (counters.hot_changes, counters.adjustments) == (1, 0)
    assert counters.hot_balance == 1.8
    before = world.requests
    world.pass_ticks(30)  # nothing is requested while the plan changes
    assert world.requests == before
    world.strategy = PlanState(world.moves[0])
    world.sent = (5_000, 5_000)
    world.pass_ticks(60)
    assert world.requests > before
    assert counters.replicated == 1
    assert len(world.moves) == 1


def test_nothing_is_watched_where_it_is_off_or_there_is_one_worker() -> None:
    for world in (Controlled(hot=False), Controlled(plan=one_worker())):
        world.pass_ticks(40)
        assert world.requests == 0


def one_worker() -> RoutingPlan:
    return dataclasses.replace(halves(), workers=1, leaves=(halves().leaves[0],) * 2)
