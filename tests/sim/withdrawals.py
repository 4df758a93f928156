"""Clients of the simulator that withdraw objects: before they are published, soon after, or much
later, and again until it is answered."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.protocol.id_sets import IdSet
from ps2stream.protocol.ports import Log
from tests.sim.clients import call, reach
from tests.sim.clock import Task

if TYPE_CHECKING:
    from tests.sim.process import Process
    from tests.sim.world import World


def draw_withdrawals(
    rng: random.Random,
    peace: int,
    events: Sequence[Any],
    add: Any,
    draw: Any,
    sessions: list[str],
) -> None:
    """Adds the events of a seed: withdrawals of objects that some of the events publish, and new
    queries with retro behind them. draw: of an expression and a region."""
    published = [event for event in events if event.what in ("publish", "repeat")]
    for number in range(rng.choice([0, 3, 8, 16]) if published else 0):
        of = rng.choice(published)
        objects = of.args[2] if of.what == "publish" else of.args[1]
        names = [each[0] for each in objects if rng.random() < 0.8]
        names += rng.sample(["never published", "o1", "o2"], rng.choice([0, 0, 1]))
        at = min(max(0, of.at + rng.choice([-2_000, -300, 0, 5, 40, 300, 2_000])), peace)
        if names:
            add(at, "withdraw", rng.randrange(3), tuple(names))
        if rng.random() < 0.25:
            # Soon after it was answered: what is not durable then is gone.
            after = rng.choice([2, 8, 15, 30, 200])
            add(min(at + after, peace), "crash_one", "dispatcher", rng.randrange(3), True)
        for _ in range(rng.choice([1, 1, 3])):
            later = min(at + rng.choice([0, 3, 60, 300, 1_500]), peace)
            query = f"w{number}", rng.choice(sessions), *draw()
            add(later, "insert_until", rng.randrange(3), *query, 0, True)


class _Attempt:
    """A call that withdraws objects, from `begun` to `ended`, in the order of all that happens.
    One that failed may yet be done. lsn: the highest one in the ledger when it was answered."""

    def __init__(self, names: frozenset[str], begun: int) -> None:
        self.names = names
        self.begun = begun
        self.ended = self.lsn = math.inf


class _Record(NamedTuple):
    """A withdrawal in the log of a dispatcher, up to `end`; its next object has this offset.
    counted, lsn: see WithdrawalRecord."""

    names: frozenset[str]
    partition: int
    offset: int
    counted: int
    lsn: int
    log: Log
    end: int

    def covers(self, partition: int, offset: int, lsn: int) -> bool:
        """Whether the readers of an archive would leave out an object of the names."""
        if self.log.synced < self.end:
            return False  # the dispatcher died first
        if partition == self.partition:
            return offset < self.offset
        return 0 < self.counted <= partition and lsn <= self.lsn


class Withdrawals:
    """The withdrawals of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} withdrawals")
        self._order = itertools.count()
        self._accepted: dict[str, tuple[int, int]] = {}  # by name: first and last
        self._attempts: list[_Attempt] = []
        self._records: list[_Record] = []

    def begin(self, where: int, names: Sequence[str]) -> None:
        """Withdraw these objects."""
        self._world.clock.spawn(self._send(where, frozenset(names)))

    def watch(self, process: Process) -> None:
        """Watch what a dispatcher notes."""
        log, router = process.edge.machine._log, process.edge.machine.router
        append = log.append_withdrawal

        def note(ids: IdSet, counted: int = 0, lsn: int = 0) -> int:
            end: int = append(ids, counted, lsn)
            names = frozenset(name.decode() for name in ids.ids)
            place = process.address.index, router.offset
            self._records.append(_Record(names, *place, counted, lsn, log.log, end))
            return end

        log.append_withdrawal = note

    def judge(self, names: Iterable[str]) -> None:
        """An archive leaves these objects out that are withdrawn, and no others."""
        for name in names:
            thing = self._world.things[name]
            place = thing.partition, thing.offset, thing.lsn
            is_covered = any(r.covers(*place) for r in self._records if name in r.names)
            if not is_covered and self.find_lsn(name) < math.inf:
                self._world.wrong(f"{name} is withdrawn, and an archive has it: {thing}")
            if is_covered and not self.may_be_gone(name):
                self._world.wrong(f"an archive lacks {name}, which is not withdrawn: {thing}")

    def note_accepted(self, names: Iterable[str]) -> None:
        """These objects are in the log of a dispatcher now."""
        now = next(self._order)
        for name in names:
            self._accepted[name] = self._accepted.get(name, (now, now))[0], now

    def find_lsn(self, name: str) -> float:
        """Returns the LSN up to which queries may be matched against what is valid of this object,
        infinity for all."""
        last = self._accepted[name][1]
        return min(
            (each.lsn for each in self._attempts if name in each.names and last < each.begun),
            default=math.inf,
        )

    def may_be_gone(self, name: str) -> bool:
        """Whether a withdrawal may concern the object: one that it did not come behind."""
        first = self._accepted[name][0]
        return any(name in each.names and first < each.ended for each in self._attempts)

    def _send(self, where: int, names: frozenset[str]) -> Task:
        world, what = self._world, f"withdraw {sorted(names)}"
        world.open.append(what)
        while True:
            process = reach(world, self._rng, where)
            if process is None:
                yield 100
                continue
            attempt = _Attempt(names, next(self._order))
            self._attempts.append(attempt)
            try:
                yield call(world, process, lambda edge: edge.withdraw_objects(sorted(names)))
            except (Unavailable, ResourceExhausted):
                where = self._rng.randrange(world.topology.dispatchers)
                yield self._rng.randint(20, 400)
                continue
            attempt.ended, attempt.lsn = next(self._order), world.ledger.lsn
            break
        world.tell(f"{what}: done at {attempt.lsn}")
        world.open.remove(what)
        world.answered += 1
