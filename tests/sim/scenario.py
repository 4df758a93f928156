"""Schedules: what clients do and what goes wrong, drawn from a seed."""

from __future__ import annotations

import dataclasses
import random
from functools import partial
from typing import Any, NamedTuple

from ps2stream.controller.policy import ControllerPolicy
from ps2stream.language.analyzer import Analyzer
from ps2stream.planner.adjust.decide import Rules
from ps2stream.planner.adjust.replicate import ReplicationRules
from ps2stream.planner.adjust.strategy import CoexistenceLimit
from ps2stream.planner.load import Kind
from ps2stream.routing.costs import Costs
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Region
from ps2stream.workers.indexes import INDEX_NAMES
from tests.sim import hostile
from tests.sim.cluster import POISON, SimTopology
from tests.sim.validity import draw_validity
from tests.sim.withdrawals import draw_withdrawals
from tests.support.grids import with_lines

SESSIONS = ["ann", "bob", "cy"]
PRODUCERS = ["p", "q", "r"]
UNCONTROLLED = 1000
"""Seeds below have no controller, no publications that are repeated and no replacements: they find
the deliberate bugs by messages as they are."""
SCALED = 2000
"""Seeds from here on change the number of mergers; those below have always the same."""
MOST_MERGERS = 4
GROWN = 3000
"""Seeds from here on let dispatchers join."""
SHRUNK = 4000
"""Seeds from here on let them leave, too."""
UNEVEN = 400_000
"""Seeds from here on have grids of unequal cells half of the time."""
MOST_DISPATCHERS = 4
REPLACED = ["r0", "r1", "r2", "r3"]
"""The ids of queries that are replaced; each is mostly of one session."""
ROLES = ["dispatcher", "worker", "merger", "sequencer"]


class Event(NamedTuple):
    """At `at` ms: a method of World, and what it is given."""

    at: int
    what: str
    args: tuple[Any, ...]


class Scenario(NamedTuple):
    """What a seed makes; faults end at `peace`."""

    seed: int
    topology: SimTopology
    plans: tuple[Any, ...]
    feed_rows: int
    events: tuple[Event, ...]
    peace: int


def scenario(seed: int, is_plain: bool = False) -> Scenario:
    """What a seed makes; without predicates and replacements if it is plain."""
    return _Author(seed, is_plain).write()


class _Author:
    def __init__(self, seed: int, is_plain: bool) -> None:
        self.seed, self.is_plain = seed, is_plain
        self.rng = rng = random.Random(seed)
        self.plans = tuple(hostile.some_plan(rng) for _ in range(2))
        lines = random.Random(f"{seed} lines")
        if seed >= UNEVEN and lines.random() < 0.5:
            self.plans = tuple(
                dataclasses.replace(plan, grid=with_lines(lines, plan.grid)) for plan in self.plans
            )
        self.poisoned = rng.random() < 0.12
        poison = int(Analyzer(hostile.ANALYSIS).hash_terms([POISON])[0])
        self.topology = SimTopology(
            self.plans[0],
            dispatchers=rng.choice([1, 1, 2, 2, 3]),
            mergers=rng.choice([1, 2]),
            max_in_flight=rng.choice([1, 3, 64]),
            session_quota=rng.choice([600, 3_000, 64 << 20, 64 << 20]),
            segment_bytes=rng.choice([1 << 11, 1 << 13, 1 << 16]),
            chapter_bytes=rng.choice([1 << 10, 1 << 14]),
            poison=poison,
            snapshot_s=random.Random(f"{seed} period").choice([0.0, 0.1, 0.5, 2.0]),
            index=random.Random(f"{seed} index").choice(INDEX_NAMES),
            valid_objects_bytes=random.Random(f"{seed} valid").choice([0, 900, *[64 << 20] * 4]),
        )
        self.moves = [hostile.some_plan(rng, self._grid()) for _ in range(rng.choice([0, 1, 3]))]
        most = max(plan.workers for plan in (*self.plans, *self.moves))
        self.topology = dataclasses.replace(self.topology, most_workers=most)
        self.watch = random.Random(f"{seed} controller")
        self.predicates = () if is_plain or not hostile.has_attributes(seed) else hostile.PREDICATES
        if self.predicates:  # or hardly any query would be posted under a pair
            self.plans = tuple(hostile.with_frequencies(plan) for plan in self.plans)
            self.topology = dataclasses.replace(self.topology, plan=self.plans[0])
        self.sunset = random.Random(f"{seed} sunset")
        self.divide = random.Random(f"{seed} divide")
        controlled = seed >= UNCONTROLLED
        self.topology = dataclasses.replace(
            self.topology,
            policy=self._policy(),
            controlled=controlled,
            sample_objects=self.divide.choice([20, 500]) * controlled,
        )
        self.peace = rng.choice([3_000, 5_000, 8_000])
        self.apart = random.Random(f"{seed} snapshots")
        self.repeats = random.Random(f"{seed} repeats")
        self.serial = 0
        self.events: list[Event] = []

    def write(self) -> Scenario:
        rng = self.rng
        self._subscribe()
        for _ in range(rng.choice([20, 60, 120])):
            self._client(self._when())
        for plan in self.moves:
            at, give_up = self._when(), rng.choice([0, 0, 0, 50, 400, 2000])
            where, apart = self._where(), rng.random() < 0.4
            if apart and self.topology.controlled and self.sunset.random() < 0.7:
                give_up = -1
            self._add(at, "move", where, plan, give_up, apart)
        if rng.random() < 0.6:
            self._rough()
        for _ in range(rng.choice([0, 1, 2, 4, 8, 12])):
            self._fault(self._when())
        for _ in range(self.apart.choice([0, 0, 1, 3, 6])):
            self._worker_fault(int(self.apart.random() * self.peace))
        for _ in range(self.watch.choice([0, 0, 1, 3]) if self.topology.controlled else 0):
            self._controller_fault(int(self.watch.random() * self.peace))
        for _ in range(self.watch.choice([0, 0, 1, 2]) if self._restarts else 0):
            at = int(self.watch.random() * self.peace)
            self._add(at, "crash_all", self.watch.random() < 0.5, self.watch.choice([1, 500]), -1)
        if self.seed >= UNCONTROLLED and not self.is_plain:
            self._replace(random.Random(f"{self.seed} replacements"))
        if self.seed >= UNCONTROLLED and not self.is_plain:
            ends = random.Random(f"{self.seed} validity")
            draw_validity(ends, self.peace, self._add, partial(_draw_query, ends), SESSIONS)
        if self.seed >= UNCONTROLLED and not (self.is_plain or self.poisoned):
            withdrawn = random.Random(f"{self.seed} withdrawals")
            draw = partial(_draw_query, withdrawn)
            draw_withdrawals(withdrawn, self.peace, self.events[:], self._add, draw, SESSIONS)
        if self.seed >= SCALED:
            self._scale_mergers(random.Random(f"{self.seed} mergers"))
        if self.seed >= GROWN:
            self._scale_dispatchers(random.Random(f"{self.seed} dispatchers"))
        inquiries = random.Random(f"{self.seed} inquiries")
        for _ in range(inquiries.choice([0, 1, 5]) if self.topology.sample_objects else 0):
            at, where = int(inquiries.random() * self.peace), inquiries.randrange(3)
            expression = hostile.some_expression(inquiries, predicates=self.predicates)
            self._add(at, "inquire", where, expression, hostile.some_region(inquiries))
        events = tuple(sorted(self.events, key=lambda event: event.at))
        feed_rows = rng.choice([2, 5, 16_384])
        return Scenario(self.seed, self.topology, self.plans, feed_rows, events, self.peace)

    @property
    def _restarts(self) -> bool:
        """Whether the service may end and go on with the plan that served: see _fault."""
        return self.topology.controlled and not self.poisoned

    def _policy(self) -> ControllerPolicy:
        """Short periods; in every other run the controller adjusts by itself, and soon."""
        rng = self.watch
        algorithm = rng.choice(["gr", "gr+", "dp", "si", "ra"])
        pairs = rng.choice([1, 3])
        # Where checks cost much and copies little, splits pay.
        costs = self.divide.choice([Costs(), Costs(c1=50.0)])
        kinds: tuple[Kind, Kind] = ("cells", "definition1")
        rules = Rules(costs, self.divide.choice(kinds), 1.05, algorithm, pairs=pairs)
        sunset = CoexistenceLimit(
            self.sunset.choice([0.0, 0.3, 0.6]), self.sunset.choice([800, 3000])
        )
        ticks, adjusts = rng.choice([2, 5, 10]), rng.random() < 0.5
        hot = random.Random(f"{self.seed} hot").random() < 0.5
        soon = ReplicationRules(
            balance=1.05, certain=0.0, theta=0.2, word=0.05, least_rate=0.0, cool_s=1.0
        )
        return ControllerPolicy(rules, ticks, adjusts, 1e-9, hot, soon, sunset)

    def _controller_fault(self, at: int) -> None:
        rng, ms = self.watch, self.watch.choice([100, 600, 4000])
        match rng.choice(["crash", "crash", "pause", "isolate"]):
            case "crash":
                self._add(at, "crash_one", "controller", 0, False)
            case "pause":
                self._add(at, "pause_one", "controller", 0, ms, rng.random() < 0.5)
            case _:
                self._add(at, "isolate_one", "controller", 0, ms, rng.random() < 0.5)

    def _grid(self) -> Grid | None:
        """Mostly that of the service, which alone is taken."""
        return self.plans[0].grid if self.rng.random() < 0.9 else None

    def _when(self) -> int:
        """Mostly soon, so that there is much to do at once."""
        return int(self.rng.random() ** 1.5 * self.peace)

    def _add(self, at: int, what: str, *args: Any) -> None:
        self.events.append(Event(at, what, args))

    def _where(self) -> int:
        return self.rng.randrange(self.topology.dispatchers)

    def _subscribe(self) -> None:
        rng = self.rng
        for session in SESSIONS:
            window, size = rng.choice([1, 2, 256]), rng.choice([200, 1 << 20])
            self._add(rng.choice([0, 0, 500, 2000]), "connect", session, 0, self._where(),
                      window, size, rng.choice([0, 0, 20, 300]))  # fmt: skip
            if rng.random() < 0.3:
                self._add(self._when(), "connect", session, 1, self._where(), window, size, 0)
            for _ in range(rng.choice([0, 0, 1, 3])):
                at, reader = self._when(), rng.choice([0, 0, 1])
                if rng.random() < 0.5:
                    self._add(at, "break_off", session, reader)
                    self._add(at + rng.choice([1, 300, 1500]), "connect", session, reader,
                              self._where(), window, size, 0)  # fmt: skip
                else:
                    self._add(at, "stall", session, reader, rng.choice([300, 2000]))

    def _client(self, at: int) -> None:
        rng = self.rng
        what = rng.choices(["insert", "delete", "publish"], [5, 3, 6])[0]
        name = f"q{rng.randrange(12)}"
        if what == "delete":
            self._add(at, "delete", self._where(), name)
        elif what == "insert":
            expression = hostile.some_expression(rng, predicates=self.predicates)
            region = hostile.some_region(rng)
            if rng.random() < 0.1 and region.to_json() is not None:
                expression = ""
            self._add(at, "insert", self._where(), name, rng.choice(SESSIONS), expression, region)
        else:
            level = rng.choices(["DURABLE", "ACCEPTED", "NONE"], [8, 2, 1])[0]
            where, objects = self._where(), self._objects()
            if self.seed >= UNCONTROLLED and self.repeats.random() < 0.5:
                self._add(at, "repeat", where, objects, *self._producer())
            else:
                self._add(at, "publish", where, level, objects)

    def _replace(self, rng: random.Random) -> None:
        """Replacements, and deletes of what is replaced. Half of the queries are of a few, so that
        some are replaced by themselves."""

        few = [_draw_query(rng) for _ in range(3)]
        for _ in range(rng.choice([0, 5, 20, 40])):
            at, where = int(rng.random() ** 1.5 * self.peace), rng.randrange(3)
            if rng.random() < 0.15:
                self._add(at, "delete", where, rng.choice(REPLACED))
                continue
            wanted = []
            for _ in range(rng.choice([1, 1, 1, 2, 5])):
                number = rng.randrange(len(REPLACED))
                session = SESSIONS[number % 3] if rng.random() < 0.9 else rng.choice(SESSIONS)
                query = rng.choice(few) if rng.random() < 0.5 else _draw_query(rng)
                wanted.append((REPLACED[number], session, *query))
            copies = [rng.choice([0, 3, 300, 1_500]) for _ in range(rng.choice([0, 0, 1, 2]))]
            late = tuple((after, rng.randrange(3)) for after in copies)
            self._add(at, "replace", where, tuple(wanted), late)

    def _producer(self) -> tuple[str, tuple[tuple[int, int, bool], ...]]:
        """A producer, and the copies of a publication after its first: after so many ms, through
        which dispatcher, and whether it is by mistake another batch."""
        rng = self.repeats
        copies = []
        for _ in range(rng.choice([0, 1, 1, 2, 4])):
            after = rng.choice([0, 1, 3, 30, 300, 1_500, 4_000])
            copies.append((after, rng.randrange(self.topology.dispatchers), rng.random() < 0.1))
        return rng.choice(PRODUCERS), tuple(copies)

    def _objects(self) -> tuple[tuple[str, str, float, float], ...]:
        out = []
        for _ in range(self.rng.choice([1, 1, 3, 9])):
            self.serial += 1
            text, lon, lat = hostile.some_object(self.rng)
            if self.poisoned and self.rng.random() < 0.08:
                text += " " + POISON
            out.append((f"o{self.serial}", text, lon, lat))
        return tuple(out)

    def _rough(self) -> None:
        rng = self.rng
        for _ in range(rng.choice([1, 1, 3])):
            ms, delay = rng.choice([500, 2000, 8000]), rng.choice([4, 40, 200])
            drop, double = rng.choice([0.0, 0.01, 0.2]), rng.choice([0.0, 0.05])
            self._add(self._when(), "rough", ms, delay, drop, double, rng.choice([0.0, 0.05]))

    def _fault(self, at: int) -> None:
        rng, topology = self.rng, self.topology
        # Poison alone may kill workers there: others' deaths would be taken for its doing.
        roles = [role for role in ROLES if role != "worker" or not self.poisoned]
        role = rng.choice(roles)
        index = rng.randrange(self._count(role))
        ms = rng.choice([100, 600, 1500, 4000])
        logged = rng.choice(["dispatcher", "merger"])
        mine = rng.randrange(self._count(logged))
        kind = rng.randrange(12)
        if kind <= 2:
            self._add(at, "crash_one", role, index, rng.random() < 0.5)
        elif kind == 3:
            plan = rng.randrange(2) if not self.poisoned else 0
            self._add(at, "crash_all", rng.random() < 0.5, rng.choice([1, 500]), plan)
        elif kind == 4:
            self._add(at, "pause_one", role, index, ms, rng.random() < 0.5)
        elif kind == 5:
            self._add(at, "isolate_one", role, index, ms, rng.random() < 0.5)
        elif kind == 6:
            other = rng.choice(ROLES)
            to = (other, rng.randrange(self._count(other)))
            self._add(at, "cut", (role, index), to, ms, rng.random() < 0.7)
        elif kind == 7:
            self._add(at, "full_disk", logged, mine, ms)
        elif kind == 8:
            self._add(at, "bad_disk", logged, mine)
        elif kind == 9:
            self._add(at, "fuse", logged, mine, rng.randrange(12))
        elif kind == 10:
            self._add(at, "full_ledger", ms)
        else:
            self._add(at, "bad_ledger")
        del topology

    def _scale_mergers(self, rng: random.Random) -> None:
        """Other numbers of mergers, and deaths of those that take part in the move."""
        self.topology = dataclasses.replace(self.topology, most_mergers=MOST_MERGERS)
        for _ in range(rng.choice([0, 1, 2, 4, 6])):
            at = int(rng.random() * self.peace)
            where = rng.randrange(self.topology.dispatchers)
            self._add(at, "scale_mergers", where, rng.randint(1, MOST_MERGERS))
            for _ in range(rng.choice([0, 0, 1, 1, 3])):
                role = rng.choice(["dispatcher", "sequencer", "merger", "merger", "merger"])
                count = MOST_MERGERS if role == "merger" else self._count(role)
                later = min(at + rng.choice([5, 30, 100, 300, 1_000]), self.peace - 1)
                self._add(later, "crash_one", role, rng.randrange(count), rng.random() < 0.5)

    def _scale_dispatchers(self, rng: random.Random) -> None:
        """More dispatchers, publications that are repeated meanwhile, and deaths of those that
        take part."""
        self.topology = dataclasses.replace(self.topology, most_dispatchers=MOST_DISPATCHERS)
        dispatchers = self.topology.dispatchers
        changes = rng.choice([1, 2, 3, 5]) if self.seed >= SHRUNK else MOST_DISPATCHERS
        while changes and (dispatchers < MOST_DISPATCHERS or self.seed >= SHRUNK):
            changes -= 1
            dispatchers += rng.choice([1, 1, 2])
            if self.seed >= SHRUNK:
                dispatchers = rng.randint(1, MOST_DISPATCHERS)
            at = int(rng.random() * self.peace * 0.8)
            where = rng.randrange(self.topology.dispatchers)
            self._add(at, "scale_dispatchers", where, min(dispatchers, MOST_DISPATCHERS))
            for _ in range(rng.choice([0, 1, 2, 4])):
                role = rng.choice(["dispatcher", "dispatcher", "sequencer", "worker", "merger"])
                count = MOST_DISPATCHERS if role == "dispatcher" else self._count(role)
                later = min(at + rng.choice([5, 30, 100, 300, 1_000]), self.peace - 1)
                self._add(later, "crash_one", role, rng.randrange(count), rng.random() < 0.5)

    def _worker_fault(self, at: int) -> None:
        """What snapshots are for, and what befalls them."""
        rng = self.apart
        index = rng.randrange(self._count("worker"))
        kinds = ["full_disk", "bad_disk"]
        if not self.poisoned:  # see _fault
            kinds += ["fuse", "crash_all", *["crash_one"] * 4]
        match rng.choice(kinds):
            case "full_disk":
                self._add(at, "full_disk", "worker", index, rng.choice([100, 1500]))
            case "bad_disk":
                self._add(at, "bad_disk", "worker", index)
            case "fuse":
                self._add(at, "fuse", "worker", index, rng.randrange(8))
            case "crash_all":
                self._add(at, "crash_all", rng.random() < 0.5, rng.choice([1, 500]), 0)
            case _:
                self._add(at, "crash_one", "worker", index, rng.random() < 0.5)

    def _count(self, role: str) -> int:
        counts = {
            "dispatcher": self.topology.dispatchers,
            "merger": self.topology.mergers,
            "worker": min(plan.workers for plan in self.plans),
            "sequencer": 1,
        }
        return counts[role]


def _draw_query(rng: random.Random) -> tuple[str, Region]:
    return hostile.some_expression(rng), hostile.some_region(rng)
