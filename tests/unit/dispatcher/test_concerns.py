"""Whom an update concerns, against twins that look at every update and every receiver."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest

from ps2stream.dispatcher.concerns import ReceiverConcerns
from ps2stream.dispatcher.object_log import column
from ps2stream.dispatcher.router import RouterMachine
from ps2stream.language.analyzer import Analyzer
from ps2stream.protocol.addresses import Out
from ps2stream.protocol.log_records import ObjectRecord
from ps2stream.protocol.messages.objects import RoutedObjects, WatermarkNotice
from ps2stream.protocol.messages.updates import (
    LedgerBatch,
    LedgerTip,
    MergerQueries,
    WorkerUpdates,
)
from ps2stream.protocol.rows import QueryRows, UpdateKind
from ps2stream.protocol.ticks import NOTICE_TICKS
from ps2stream.routing.h1 import H1
from ps2stream.routing.plan import RoutingPlan, Space
from ps2stream.routing.plan_changes import PlanState, step_record
from ps2stream.routing.plan_follower import PlanFollower
from ps2stream.routing.plan_states import PlanStep
from ps2stream.routing.tags import QueryTagger
from ps2stream.space.grid import Grid
from tests.sim.hostile import ANALYSIS
from tests.support.routers import (
    EAST,
    GRID,
    WEST,
    answer,
    fed,
    insert,
    machine,
    noticed,
    posts,
    row,
    sent,
)
from tests.support.routing import Box, Row, object_rows, query_rows

WIDE = (-20.0, 0.0, 20.0, 0.0)
HOLDERS: dict[Box, set[int]] = {WEST: {0}, EAST: {1}, WIDE: {0, 1}}
MERGERS = 2
PLAN_GRID = Grid(3, 2)


@pytest.mark.parametrize("seed", range(30))
def test_the_last_update_of_each_receiver_is_that_of_the_twin(seed: int) -> None:
    rng, concerns = random.Random(seed), ReceiverConcerns()
    last, of_all, lsn = Counter[int](), 0, 3
    for _ in range(60):
        lsn += rng.randint(0, 3)
        if rng.random() < 0.1:
            concerns.note_all(lsn)
            of_all = max(of_all, lsn)
        elif rng.random() < 0.2:
            index, at = rng.randint(0, 40), lsn - rng.randint(0, 2)
            concerns.note_one(index, at)
            last[index] = max(last[index], at)
        else:
            several = [rng.randint(0, rng.choice([1, 6, 40])) for _ in range(rng.randint(0, 5))]
            off = np.array([0, *sorted(rng.choices(range(len(several) + 1), k=2)), len(several)])
            lsns = np.array([lsn - rng.randint(0, 2) for _ in range(3)])
            concerns.note(off, np.array(several, np.uint16), lsns)
            for row, at in enumerate(lsns.tolist()):
                for i in several[off[row] : off[row + 1]]:
                    last[i] = max(last[i], at)
        assert [concerns.of(i) for i in range(50)] == [max(last[i], of_all) for i in range(50)]


def test_before_any_update_nothing_concerns_anybody() -> None:
    assert [ReceiverConcerns().of(i) for i in (0, 7)] == [0, 0]


def test_what_concerns_all_concerns_those_that_are_yet_to_come() -> None:
    concerns = ReceiverConcerns()
    concerns.note(np.array([0, 1]), np.array([1], np.uint16), np.array([9]))
    concerns.note_all(5)
    assert [concerns.of(i) for i in (0, 1, 2, 1000)] == [5, 9, 5, 5]
    concerns.note_all(3)  # an older one that is taken later
    assert concerns.of(1000) == 5


class Update(NamedTuple):
    """An insert or delete, and whom it concerns by its place and its session."""

    row: Row
    session: int

    @property
    def workers(self) -> set[int]:
        return HOLDERS[self.row.boxes[0]]


class Twin:
    """A random ledger in batches, and the last LSN that concerns each receiver."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lsn = 0
        self.live: list[Update] = []
        self.workers, self.mergers = Counter[int](), Counter[int]()
        self.batches: list[tuple[int, int, list[Update]]] = []

    def grow(self, most: int = 4) -> tuple[int, int, list[Update]]:
        """A batch of the ledger: its span, and what is in it. The first stays, everywhere."""
        rng, first = self.rng, self.lsn + 1
        updates = []
        for _ in range(rng.randint(1, most)):
            self.lsn += 1
            if self.lsn > 1 and rng.random() < 0.2:
                continue  # refused: the number is used, and nobody hears of it
            if len(self.live) > 1 and rng.random() < 0.3:
                gone = self.live.pop(rng.randrange(1, len(self.live)))
                row = gone.row._replace(kind=UpdateKind.DELETE, lsn=self.lsn)
                updates.append(gone._replace(row=row))
                continue
            box = WIDE if self.lsn == 1 else rng.choice([WEST, EAST])
            row = Row((7,), (0,), (box,), UpdateKind.INSERT, self.lsn, self.lsn)
            updates.append(Update(row, rng.randrange(9)))
            self.live.append(updates[-1])
        self.batches.append((first, self.lsn, updates))
        return self.batches[-1]

    def note(self, updates: list[Update]) -> None:
        for update in updates:
            for worker in update.workers:
                self.workers[worker] = update.row.lsn
            self.mergers[update.session % MERGERS] = update.row.lsn


def ledger_batch(lsn_from: int, lsn_to: int, updates: list[Update], owner: int = -1) -> LedgerBatch:
    rows = query_rows([update.row for update in updates])
    rows = rows.replace(session=np.array([update.session for update in updates], np.int64))
    data = np.frombuffer(rows.encode(), np.uint8)
    return LedgerBatch(lsn_from, lsn_to, owner, 0, 0, data)


def find_needs(router: RouterMachine) -> dict[int, int]:
    """The last update that a batch of now needs at each worker."""
    batch, lsn, out = router.publish(object_rows([-20.0, 20.0], [0.0, 0.0], [(7,), (7,)]))
    routed = sent(out, "worker", RoutedObjects)
    for worker, _ in routed:
        router.take_answer(answer(worker, batch), 0.0)
    assert all(frame.lsn == lsn for _, frame in routed)
    return {worker: frame.needs for worker, frame in routed}


def find_told(out: list[Out]) -> dict[tuple[str, int], tuple[int, int, list[int]]]:
    """The span and the LSNs of what each receiver is told of an update."""
    told = {
        ("worker", i): (f.lsn_from, f.lsn_to, QueryRows.decode(f.rows.data).lsn.tolist())
        for i, f in sent(out, "worker", WorkerUpdates)
    }
    return told | {
        ("merger", i): (f.lsn_from, f.lsn_to, f.lsn.tolist())
        for i, f in sent(out, "merger", MergerQueries)
    }


@pytest.mark.parametrize("seed", range(12))
def test_updates_go_to_those_that_they_concern_and_cover_what_did_not(seed: int) -> None:
    twin = Twin(seed)
    routers = [machine(0, MERGERS), machine(1, MERGERS)]
    for _ in range(40):
        first, last, updates = twin.grow()
        owner = twin.rng.randrange(2)
        frame = ledger_batch(first, last, updates, owner)
        wanted: dict[tuple[str, int], tuple[int, int, list[int]]] = {}
        for worker in range(3):
            if own := [update.row.lsn for update in updates if worker in update.workers]:
                wanted["worker", worker] = twin.workers[worker] + 1, last, own
        for merger in range(MERGERS):
            of = [update.row.lsn for update in updates if update.session % MERGERS == merger]
            if of:
                wanted["merger", merger] = twin.mergers[merger] + 1, last, of
        outs = [router.on(frame) for router in routers]
        assert find_told(outs[owner]) == wanted
        assert find_told(outs[1 - owner]) == {}
        twin.note(updates)
        needs = {worker: twin.workers[worker] for worker in (0, 1)}
        assert [find_needs(router) for router in routers] == [needs, needs]


@pytest.mark.parametrize("seed", range(12))
def test_a_log_that_was_fetched_says_the_same_as_the_stream(seed: int) -> None:
    """In other batches than those of the stream, and partly known already."""
    twin, live, fetched = Twin(seed), machine(0, MERGERS), machine(1, MERGERS)
    rng = twin.rng
    for _ in range(12):
        for _ in range(rng.randint(1, 4)):
            live.on(ledger_batch(*twin.grow(), owner=0))
        while fetched.applied < twin.lsn:
            start = rng.randint(0, fetched.applied) if rng.random() < 0.3 else fetched.applied
            stop = rng.randint(fetched.applied + 1, twin.lsn)
            span = [
                update
                for _, _, updates in twin.batches
                for update in updates
                if start < update.row.lsn <= stop
            ]
            out = fetched.on(ledger_batch(start + 1, stop, span))
            assert find_told(out) == {}, "what was fetched is handed on to nobody"
        assert find_needs(fetched) == find_needs(live)
        told = []
        for router in (live, fetched):
            ticks = [each for _ in range(NOTICE_TICKS) for each in router.tick()]
            both = sent(ticks, "worker", WatermarkNotice), sent(ticks, "merger", WatermarkNotice)
            told.append([(i, f.after, f.lsn) for notices in both for i, f in notices])
        assert told[0] == told[1] != []


def test_after_a_state_everything_concerns_everybody() -> None:
    router = RouterMachine(0, 2, MERGERS, machine().gridt.h1, GRID, 8)
    router.on(LedgerTip(8, 8))
    everywhere = Row((7,), (0,), (WIDE,), UpdateKind.INSERT, 2, 2)
    router.on(fed([everywhere], 1, 3, state=5, until=8))
    router.on(fed([row(4)], 4, 8, state=5, until=8))
    assert find_needs(router) == {0: 8, 1: 8}
    assert [f.after for _, f in noticed(router, "worker")] == [8, 8, 8]
    router.on(insert(9))
    assert find_needs(router) == {0: 9, 1: 8}
    out = router.on(insert(10, box=EAST))
    assert [(i, f.lsn_from) for i, f in sent(out, "worker", WorkerUpdates)] == [(1, 9)]
    assert [f.lsn_from for _, f in sent(out, "merger", MergerQueries)] == [10]


def test_what_is_replayed_needs_nothing_after_its_lsn() -> None:
    left = [ObjectRecord(4, 2, column(posts(7)))]
    router = RouterMachine(0, 2, 1, machine().gridt.h1, GRID, 2, replay=left, offset=9)
    router.on(LedgerTip(3, 3))
    router.on(fed([row(1)], 1, 2, state=5, until=3))
    out = router.on(fed([row(3)], 3, 3, state=5, until=3))
    assert [(f.lsn, f.needs) for _, f in sent(out, "worker", RoutedObjects)] == [(2, 2)]


@pytest.mark.parametrize("seed", range(8))
def test_notices_come_now_and_then_with_what_concerned_the_receiver_last(seed: int) -> None:
    twin, router = Twin(seed), machine(1, MERGERS)
    ticks: list[int] = []
    stale = False
    for tick in range(200):
        if twin.rng.random() < (0.4 if tick // 40 % 2 else 0.02):
            first, last, updates = twin.grow()
            router.on(ledger_batch(first, last, updates, owner=0))
            twin.note(updates)
            stale = True
        out = router.tick()
        found = {
            role: [(i, f.after, f.lsn, f.watermark) for i, f in sent(out, role, WatermarkNotice)]
            for role in ("worker", "merger")
        }
        due = stale and (not ticks or tick >= ticks[-1] + NOTICE_TICKS)
        assert bool(found["worker"]) == due
        if due:
            at = twin.lsn, twin.lsn
            assert found["worker"] == [(i, twin.workers[i], *at) for i in range(3)]
            assert found["merger"] == [(i, twin.mergers[i], *at) for i in range(MERGERS)]
            ticks.append(tick)
            stale = False
    assert len(ticks) > 5
    assert NOTICE_TICKS in np.diff(ticks)


def make_plan(workers: int, version: int) -> RoutingPlan:
    """Worker 0 has the west, the last one the east."""
    cells = np.arange(32, dtype=np.uint32) % 8 // 4
    leaves = Space(0), Space(workers - 1)
    return RoutingPlan(workers, ANALYSIS, PLAN_GRID, leaves, cells, {}, version, version - 1)


STEPS = {
    "move": [None, PlanStep.SWITCH, PlanStep.FINISH],
    "coexist": [None, PlanStep.UNITE, PlanStep.SWITCH, PlanStep.FINISH],
}


class PlanTwin:
    """The owners of a query's postings while plans follow on one another, by the definition."""

    def __init__(self, old: H1, new: H1, is_apart: bool) -> None:
        self.old, self.new, self.is_apart = old, new, is_apart
        self.apart, self.stage = 0, "old"

    def find_holders(self, rows: QueryRows) -> set[int]:
        """The workers that hold some of the only row."""
        is_new = self.is_apart and self.apart < int(rows.handle[0])
        plans = {
            "old": [self.old],
            "begun": [self.new if is_new else self.old] if self.is_apart else [self.old, self.new],
            "united": [self.new if is_new else self.old, self.new],
            "switched": [self.old, self.new],
            "done": [self.new],
        }[self.stage]
        found = [QueryTagger(h1, PLAN_GRID).expand(rows).worker.tolist() for h1 in plans]
        return {worker for workers in found for worker in workers}


@pytest.mark.parametrize("how", STEPS)
@pytest.mark.parametrize("seed", range(4))
def test_all_dispatchers_agree_while_plans_change(seed: int, how: str) -> None:
    """A live one, another one, and one that fetches; a change concerns every worker, also one
    that comes with it."""
    rng = random.Random(seed)
    old, new = make_plan(2, version=1), make_plan(3, version=2)
    analyzer = Analyzer(ANALYSIS)
    h1 = old.compile(analyzer)

    def start(index: int) -> RouterMachine:
        follower = PlanFollower(old, analyzer)
        router = RouterMachine(index, 2, MERGERS, h1, PLAN_GRID, 8, strategist=follower)
        router.on(LedgerTip(0, 0))
        return router

    routers = [start(0), start(1), start(1)]
    twin = PlanTwin(h1, new.compile(analyzer), how == "coexist")
    last, lsn, seen = Counter[int](), 0, set[int]()

    def take(frame: LedgerBatch) -> list[Out]:
        fetched = dataclasses.replace(frame, owner=-1)
        outs = [r.on(f) for r, f in zip(routers, (frame, frame, fetched), strict=True)]
        after = [{i: f.after for i, f in noticed(router, "worker")} for router in routers]
        assert after[0] == after[1] == after[2] == {i: last[i] for i in range(routers[0].workers)}
        return outs[0]

    def update() -> None:
        nonlocal lsn
        for _ in range(rng.randint(2, 8)):
            lsn += 1
            lon, lat = rng.uniform(-170, 170), rng.uniform(-80, 80)
            handle = rng.choice([lsn, rng.randint(1, lsn)])
            kind = UpdateKind.INSERT if handle == lsn else UpdateKind.DELETE
            if kind == UpdateKind.DELETE and handle not in places:
                handle, kind = lsn, UpdateKind.INSERT
            if kind == UpdateKind.INSERT:
                places[lsn] = (lon, lat, lon + rng.choice([0.0, 9.0]), lat)
            place = places[handle] if kind == UpdateKind.INSERT else places.pop(handle)
            rows = [Row((7,), (0,), (place,), kind, lsn, handle)]
            if kind == UpdateKind.DELETE and swaps.random() < 0.5:  # it is replaced
                lon = swaps.uniform(-170, 170)
                places[lsn] = (lon, lat, lon, lat)
                rows.append(Row((7,), (0,), (places[lsn],), UpdateKind.INSERT, lsn, lsn))
            holders = {i for one in rows for i in twin.find_holders(query_rows([one]))}
            seen.update(holders)
            last.update({worker: lsn - last[worker] for worker in holders})
            out = take(ledger_batch(lsn, lsn, [Update(one, 1) for one in rows], owner=0))
            assert {i for i, _ in sent(out, "worker", WorkerUpdates)} == holders

    places: dict[int, Box] = {}
    swaps = random.Random(f"swaps {seed}")
    update()
    names = {None: "begun", PlanStep.UNITE: "united", PlanStep.SWITCH: "switched"}
    for step in STEPS[how]:
        lsn += 1
        if step is None:
            record = PlanState(old).begin(new, apart=twin.is_apart)
            twin.apart = lsn
        else:
            record = step_record(step)
        twin.stage = names.get(step, "done")
        last.update({worker: lsn - last[worker] for worker in range(3)})
        change = dataclasses.replace(ledger_batch(lsn, lsn, [], owner=0), strategy=record)
        told = sent(take(change), "worker", WorkerUpdates)
        assert [i for i, _ in told] == [0, 1, 2]
        update()
    assert seen == {0, 1, 2}
