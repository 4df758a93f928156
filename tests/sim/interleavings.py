"""Delivered set = oracle, each pair once, under random interleavings of inserts,
deletes, re-inserts, publishes and restarts, with several of every role."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.errors import ResourceExhausted
from ps2stream.language.analyzer import Analysis
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows, delete_rows
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.updates import UpdateDecision, UpdateStatus
from ps2stream.protocol.rows import ObjectRows, UpdateKind
from ps2stream.routing.plan import RoutingPlan, Space, Text, built_in_plan, text_plan
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Circle, Polygon, Rect, Region, World
from ps2stream.store.memory import MemoryLog, MemoryStore
from tests import naive
from tests.sim import hostile
from tests.sim.scheduler import Mailbox, Sim
from tests.support.grids import with_lines
from tests.support.replicas import replicated

WORDS = ["flood", "river", "creek", "Fire", "straße", "a", "🌊", "東京", "the", "e\u0301te"]
WORDS += ["floods", "flooding", "rivers"]  # the same only to a stemmer
SPOTS = [-180.0, 180.0, 179.99, -0.0, 0.0, 0.703125, 45.0, -73.9, -74.0, 12.5]
LATS = [-90.0, 90.0, 0.0, -0.0, 40.7, 40.70001, 0.703125, -33.0, 89.9]
SESSIONS = ["ann", "bob", "cy"]
ANALYSIS = Analysis(salt=7)
Plans = Callable[[random.Random], RoutingPlan]


def some_region(rng: random.Random) -> Region:
    kind = rng.randrange(6)
    lon, lat = rng.choice(SPOTS), rng.choice(LATS)
    if kind == 0:
        return World()
    if kind == 1:
        return Circle(lon, lat, rng.choice([0.5, 30.0, 900.0, 9000.0]))
    if kind == 2:
        import shapely

        x, y = min(max(lon, -170.0), 170.0), min(max(lat, -80.0), 80.0)
        side = rng.choice([0.5, 5.0])
        return Polygon(shapely.Polygon([(x, y), (x + side, y), (x, y + side)]))
    lat2 = rng.choice(LATS)
    return Rect(lon, min(lat, lat2), rng.choice(SPOTS), max(lat, lat2))


def some_plan(rng: random.Random) -> RoutingPlan:
    return replicated(rng, _some_plan(rng), ["flood", "river", "the"], SPOTS, LATS)


def _some_plan(rng: random.Random) -> RoutingPlan:
    workers = rng.randint(1, 4)
    grid = Grid(rng.choice([0, 4, 9]), rng.choice([0, 3, 8]), max_cells=rng.choice([1, 4, 64]))
    grid = rng.choice([grid, with_lines(rng, grid)])
    kind = rng.randrange(3)
    if kind == 0:
        sample = np.array([-74.0, 0.0, 12.5]), np.array([40.7, 0.0, -33.0])
        return built_in_plan(ANALYSIS, grid, workers, sample, {"flood": 3, "the": 9})
    if kind == 1:
        return text_plan(ANALYSIS, grid, workers, {"flood": workers - 1})
    every = tuple(range(workers))
    leaves: list[Space | Text] = [
        Space(rng.randrange(workers)),
        Text(every, {"river": 0}),
        Text(every),
    ]
    cells = np.array(
        [rng.randrange(3) for _ in range(1 << (grid.lon_bits + grid.lat_bits))], np.uint32
    )
    return RoutingPlan(workers, ANALYSIS, grid, tuple(leaves), cells, {"fire": 5})


@dataclass
class History:
    """What clients asked and were answered; the oracle reads nothing else."""

    queries: dict[int, naive.Query] = field(default_factory=dict)  # handle -> query
    born: dict[int, int] = field(default_factory=dict)
    deletes: list[tuple[str, int]] = field(default_factory=list)  # id, LSN
    objects: list[tuple[str, int, naive.Obj]] = field(default_factory=list)

    def expected(self) -> dict[str, Counter[tuple[str, str]]]:
        found: dict[str, Counter[tuple[str, str]]] = {s: Counter() for s in SESSIONS}
        died: dict[int, int] = {}
        for name, lsn in self.deletes:  # ends the youngest of that id before it
            died[max(h for h, q in self.queries.items() if q.id == name and h < lsn)] = lsn
        young: dict[str, int] = {}
        for handle, query in sorted(self.queries.items()):  # or it is replaced by the next
            if query.id in young:
                died.setdefault(young[query.id], handle)
            young[query.id] = handle
        for name, lsn, obj in self.objects:
            for handle, query in self.queries.items():
                if self.born[handle] <= lsn < died.get(handle, lsn + 1) and naive.matches(
                    query, obj
                ):
                    found[query.session][query.id, name] += 1
        return found


class World_:
    """One service, restarted now and then, its subscribers, and the history."""

    def __init__(self, rng: random.Random, plan: Plans) -> None:
        self.rng = rng
        self.replacing = random.Random(rng.getstate()[1][0])  # draws nothing of the other
        self.plan = plan
        self.store = MemoryStore()
        self.logs: dict[Address, MemoryLog] = {}
        self.mergers = rng.randint(1, 2)
        self.history = History()
        self.delivered: dict[str, dict[int, tuple[str, str]]] = {s: {} for s in SESSIONS}
        self.open: list[tuple[Future[UpdateDecision], Any]] = []
        self.serial = self.published = self.answered = self.replacements = 0
        self.start()

    def start(self) -> None:
        topology = Topology(
            self.plan(self.rng),
            dispatchers=self.rng.randint(1, 3),
            mergers=self.mergers,
            max_in_flight=self.rng.choice([1, 3, 10_000]),
            session_quota=64 << 20,
        )
        self.sim = Sim(topology, self.store, self.rng, self.logs)
        self.boxes = {s: Mailbox() for s in SESSIONS}
        for name, box in self.boxes.items():
            edge = self.rng.choice(self.sim.edges)
            future = edge.attach(name, 7, self.rng.choice([1, 256]), 1 << 20, box)
            future.add_done_callback(box.attached)
        self.sim.settle()

    def insert(self) -> None:
        rng = self.rng
        name, session = f"q{rng.randrange(12)}", rng.choice(SESSIONS)
        expression, region = hostile.some_expression(rng, WORDS), some_region(rng)
        if rng.random() < 0.1 and not isinstance(region, World):
            expression = ""
        edge = rng.choice(self.sim.edges)
        off, source = strings_to_column([expression])
        compiled = compile_column(off, source, edge.analyzer, edge.frequencies)
        assert not compiled.errors
        rows = build_rows(strings_to_column([name]), compiled, [region])
        request = ""
        if self.replacing.random() < 0.5:
            session = SESSIONS[int(name[1:]) % 3]
            rows = rows.replace(kind=np.full(1, UpdateKind.REPLACE, np.uint8))
            self.replacements += 1
            request = f"replace {self.replacements}"
        query = naive.Query(name, session, expression, region.to_json())
        self.open.append((edge.update(rows, [session], [request]), ("insert", query)))

    def delete(self) -> None:
        name = f"q{self.rng.randrange(12)}"
        edge = self.rng.choice(self.sim.edges)
        rows = delete_rows(strings_to_column([name]))
        self.open.append((edge.update(rows, [""], [""]), ("delete", name)))

    def publish(self) -> None:
        rng = self.rng
        edge = rng.choice(self.sim.edges)
        size = rng.choice([0, 1, 5])
        names, texts, lons, lats = [], [], [], []
        for _ in range(size):
            self.serial += 1
            names.append(f"o{self.serial}")
            texts.append(" ".join(rng.choice(WORDS) for _ in range(rng.randrange(6))))
            lons.append(rng.choice(SPOTS))
            lats.append(rng.choice(LATS))
        id_off, ids = strings_to_column(names)
        text_off, text = strings_to_column(texts)
        term_off, term = edge.analyzer.analyse(text_off, text)
        lon, lat = np.array(lons, np.float64), np.array(lats, np.float64)
        rows = ObjectRows(
            id_off, ids, np.zeros(size, np.int64), lon, lat, text_off, text, term_off, term
        )
        self.collect()
        # Visibility: all that was acknowledged before, to anyone, counts (contract.md 1).
        known = max([0, *self.history.born.values(), *(lsn for _, lsn in self.history.deletes)])
        objects = [naive.Obj(x, y, a) for a, x, y in zip(texts, lons, lats, strict=True)]

        def accepted(done: Future[AcceptedBatch]) -> None:
            if isinstance(done.exception(), ResourceExhausted):
                self.answered += 1
                return  # nothing was accepted
            lsn = done.result().lsn
            assert lsn >= known
            self.history.objects += [(name, lsn, o) for name, o in zip(names, objects, strict=True)]
            self.answered += 1

        edge.publish(rows).add_done_callback(accepted)
        self.published += 1

    def collect(self) -> None:
        """Read the answers that have come."""
        waiting = []
        for future, what in self.open:
            if not future.done():
                waiting.append((future, what))
                continue
            decision = future.result()
            status, lsn = int(decision.status[0]), int(decision.lsn[0])
            if status != UpdateStatus.OK:
                continue
            if what[0] == "insert":
                if lsn not in self.history.queries:
                    self.history.queries[lsn] = what[1]
                    self.history.born[lsn] = lsn
                assert self.history.queries[lsn].id == what[1].id
            else:
                self.history.deletes.append((what[1], lsn))
        self.open = waiting

    def restart(self) -> None:
        self.rest()
        self.start()

    def rest(self) -> None:
        self.sim.settle()
        self.collect()
        assert not self.open
        assert self.answered == self.published
        for name, box in self.boxes.items():
            for number, pair in zip(box.seqs, box.pairs, strict=True):
                # What was not acknowledged comes again, with its number.
                assert self.delivered[name].setdefault(number, pair) == pair
            assert box.gaps == 0
            assert sorted(self.delivered[name]) == [*range(1, len(self.delivered[name]) + 1)]


def run(seed: int, steps: int, plan: Plans = some_plan, restarts: float = 0.15) -> None:
    """plan: asked at every start; restarts: about one in 23 steps at 1."""
    rng = random.Random(seed)
    world = World_(rng, plan)
    for _ in range(steps):
        action = rng.choices(
            [world.insert, world.delete, world.publish, world.restart, None],
            [4, 2, 5, restarts, 12],
        )[0]
        if action is None:
            for _ in range(rng.randrange(12)):
                world.sim.step()
        else:
            action()
    world.rest()
    expected = world.history.expected()
    for name in SESSIONS:
        assert Counter(world.delivered[name].values()) == expected[name], (seed, name)
