"""Publishers of the simulator that send a batch until it is answered, and then perhaps again: each
copy through any dispatcher, while others are under way, and now and then another batch by mistake.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ps2stream.dispatcher.gateway import AcceptedBatch, PublicationIdentity
from ps2stream.errors import AlreadyExists, FailedPrecondition, ResourceExhausted, Unavailable
from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.rows import ObjectRows
from tests import naive
from tests.sim.clients import call, publish, reach
from tests.sim.clock import Task
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.world import World

WINDOW = 6
"""The publications that are remembered of a producer."""
TRIES = 400
"""Within peace, one of these must succeed."""
Objects = Sequence[tuple[str, str, float, float]]


class Thing(NamedTuple):
    """An object that a dispatcher accepted. durable: its client was told so; kept: told at
    level ACCEPTED by this process."""

    obj: naive.Obj
    partition: int
    offset: int
    lsn: int


class Repeats:
    """The publications with a producer and a seq of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = random.Random(f"{world.seed} copies")
        self._seqs: Counter[str] = Counter()
        self._answers: dict[tuple[str, int], AcceptedBatch] = {}
        self._accepted: set[tuple[str, int]] = set()
        self._of_name: dict[str, tuple[str, int]] = {}

    def begin(
        self, where: int, objects: Objects, producer: str, copies: Sequence[tuple[int, int, bool]]
    ) -> None:
        """Publish these objects under the next seq of the producer. copies: after so many ms,
        through this dispatcher, and whether it is another batch."""
        world = self._world
        self._seqs[producer] += 1
        key = producer, self._seqs[producer]
        wrong = [(f"wrong {name}", text, lon, lat) for name, text, lon, lat in objects]
        world.post((*objects, *wrong))
        self._of_name |= dict.fromkeys((each[0] for each in (*objects, *wrong)), key)
        rows, mistaken = world.build(objects), world.build(wrong)
        known = world.known
        world.clock.spawn(self._send(0, where, key, rows, known))
        for after, through, is_mistake in copies:
            if is_mistake:
                world.clock.spawn(self._mistake(after, through, key, mistaken))
            else:
                world.clock.spawn(self._send(after, through, key, rows, known))

    def watch(self, process: Process) -> None:
        """Watch what a dispatcher accepts, and what it routes, also of what an earlier incarnation
        accepted."""
        machine = process.edge.machine.router
        reserve, route = machine.reserve, machine._route_batch

        def accept(rows: ObjectRows) -> Any:
            names = column_to_strings(rows.id_off, rows.id)
            self._accepted.update(self._of_name[name] for name in names)
            self._world.withdrawals.note_accepted(names)
            return reserve(rows)

        def watched(batch: int, lsn: int, rows: ObjectRows, *rest: Any, **more: Any) -> Any:
            for i, name in enumerate(column_to_strings(rows.id_off, rows.id)):
                if name in self._of_name:
                    self._note(name, (process.address.index, batch + i, lsn))
            return route(batch, lsn, rows, *rest, **more)

        machine.reserve, machine._route_batch = accept, watched

    def _note(self, name: str, place: tuple[int, int, int]) -> None:
        """An object is at this place, and at no other."""
        world = self._world
        known = world.things.setdefault(name, Thing(world.posted[name], *place))
        if known[1:] != place:
            world.wrong(f"{name} was published twice: {known} and {place}")

    def _send(
        self, after: int, where: int, key: tuple[str, int], rows: ObjectRows, known: int
    ) -> Task:
        world, what = self._world, f"publish {key}"
        world.open.append(what)
        yield after
        found = None
        for _ in range(TRIES):
            process = reach(world, self._rng, where)
            if process is None:
                yield 100
                continue
            try:
                found = yield call(world, process, publish(rows, True, process, _name(key, rows)))
                break
            except (ResourceExhausted, Unavailable):
                where = self._rng.randrange(world.topology.dispatchers)
                yield self._rng.choice([1, 20, 200, 600])
            except FailedPrecondition as error:
                self._check_refusal(key, error)
                break
            except AlreadyExists as error:
                world.wrong(f"{key} is the first and was refused: {error}")
                break
        else:
            world.wrong(f"{key} was not answered")
        world.open.remove(what)
        world.answered += 1
        if found is not None:
            self._check_answer(key, rows, found, known)

    def _mistake(self, after: int, where: int, key: tuple[str, int], rows: ObjectRows) -> Task:
        """Once the first is answered, another batch is sent under its seq."""
        world, what = self._world, f"mistake {key}"
        world.open.append(what)
        yield after
        for _ in range(TRIES):
            process = reach(world, self._rng, where)
            if process is None or key not in self._answers:
                yield 100
                continue
            try:
                yield call(world, process, publish(rows, True, process, _name(key, rows)))
                world.wrong(f"another batch was accepted as {key}")
                break
            except (ResourceExhausted, Unavailable):
                where = self._rng.randrange(world.topology.dispatchers)
                yield self._rng.choice([1, 20, 200, 600])
            except FailedPrecondition as error:
                self._check_refusal(key, error)
                break
            except AlreadyExists:
                break
        world.open.remove(what)

    def _check_answer(
        self, key: tuple[str, int], rows: ObjectRows, found: AcceptedBatch, known: int
    ) -> None:
        world = self._world
        world.tell(f"{key} at {found.lsn} as {found.partition}:{found.offset:#x}")
        if self._answers.setdefault(key, found) != found:
            world.wrong(f"{key} was answered with {self._answers[key]} and then with {found}")
        if found.lsn < known:
            world.wrong(f"{key} matched as of {found.lsn}, when {known} was acknowledged")
        for i, name in enumerate(column_to_strings(rows.id_off, rows.id)):
            self._note(name, (found.partition, found.offset + i, found.lsn))
            world.durable.add(name)

    def _check_refusal(self, key: tuple[str, int], error: FailedPrecondition) -> None:
        """Only what is older than a window of publications is refused as too old."""
        producer, seq = key
        later = sum(p == producer and s > seq for p, s in self._accepted)
        self._world.tell(f"{key} is too old: {error}")
        if later < WINDOW:
            self._world.wrong(f"{key} was refused after {later} others: {error}")


def _name(key: tuple[str, int], rows: ObjectRows) -> PublicationIdentity:
    digest = hashlib.blake2b(rows.id.tobytes(), digest_size=16).digest()
    return PublicationIdentity(*key, digest)
