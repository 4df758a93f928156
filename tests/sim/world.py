"""A run: a service, its clients and its faults, by a schedule; then peace, rest, judgement."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows, delete_rows
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import column_to_strings, strings_to_column
from ps2stream.protocol.messages.plan import PlanAction, PlanChangeReply
from ps2stream.protocol.messages.updates import UpdateDecision, UpdateStatus
from ps2stream.protocol.rows import ObjectRows, QueryRows
from ps2stream.routing.plan import RoutingPlan
from ps2stream.space.regions import Region
from tests import naive
from tests.history.record import Recorder
from tests.sim.clients import Box, Reader, call, inquire, publish, reach
from tests.sim.clock import Task
from tests.sim.cluster import POISON, SEQUENCER, Cluster, SimTopology
from tests.sim.hostile import some_attributes
from tests.sim.network import Cut, Temper
from tests.sim.process import Process
from tests.sim.repeats import Repeats, Thing
from tests.sim.replacements import Replacements, Wanted
from tests.sim.validity import VALIDITY_FROM, find_end, with_validity
from tests.sim.withdrawals import Withdrawals
from tests.support.attributes import opaque_column

REST_MS = 240_000  # after the last fault everything must have come to rest
QUIET_MS = 4_500  # nothing came for as long: nothing is left to come


class World(Cluster):
    """`act` takes the events of a schedule."""

    def __init__(self, seed: str, topology: SimTopology, plans: Sequence[Any]) -> None:
        super().__init__(seed, topology)
        self.plans = plans
        self.analyzer = topology.analyzer()
        self.frequencies = topology.frequencies(self.analyzer)
        self.sources: dict[tuple[str, str, bytes], naive.Query] = {}  # session, id, form
        self.posted: dict[str, naive.Obj] = {}
        self.things: dict[str, Thing] = {}
        self.durable: set[str] = set()
        self.accepted: dict[str, Process] = {}
        self.sheddable: set[str] = set()  # while load was shed, and not of the sample
        self.updates: list[tuple[int, str, str]] = []  # acknowledged: LSN, kind, id
        self.known = 0  # the highest LSN that was acknowledged to anyone
        self.boxes: dict[str, Box] = {}
        self.readers: dict[str, list[Reader]] = {}
        self.open: list[str] = []  # calls that clients still make
        self.answered = 0
        self.departed = 0  # dispatchers that left
        self.scaled = 0  # how often another number of mergers was granted
        self.repeats = Repeats(self)
        self.replacements = Replacements(self)
        self.withdrawals = Withdrawals(self)
        self.retros = 0  # inserts with retro
        self.has_validity = seed.isdigit() and int(seed) >= VALIDITY_FROM
        self.may_drop_valid = topology.valid_objects_bytes < 1 << 20
        self.recorder = Recorder(None)
        self._operations = 0
        self._rng = random.Random(f"{seed} clients")
        self._deletes = 0

    # --- what clients do -----------------------------------------------------------------

    def insert(self, where: int, name: str, session: str, expression: str, region: Region) -> None:
        query, rows = self._compile(name, session, expression, region)
        self.sources[session, name, rows.source.tobytes()] = query
        self.clock.spawn(self._update(where, "insert", name, rows, session, ""))

    def insert_until(
        self,
        where: int,
        name: str,
        session: str,
        expression: str,
        region: Region,
        after: int,
        retro: bool,
    ) -> None:
        """Insert a query that ends after so many ms, 0 for never."""
        query, rows = self._compile(name, session, expression, region)
        until = self.clock.wall_ms() + after if after else 0
        rows = with_validity(rows, until, retro)
        query = dataclasses.replace(query, until=until or None, retro=retro)
        self.retros += retro
        self.sources[session, name, rows.source.tobytes()] = query
        self.clock.spawn(self._update(where, "insert", name, rows, session, ""))

    def replace(
        self, where: int, wanted: Sequence[Wanted], copies: Sequence[tuple[int, int]]
    ) -> None:
        """Replace queries; see `Replacements.begin`."""
        self.replacements.begin(where, wanted, copies)

    def delete(self, where: int, name: str) -> None:
        self._deletes += 1
        rows = delete_rows(strings_to_column([name]))
        self.clock.spawn(self._update(where, "delete", name, rows, "", f"r{self._deletes}"))

    def publish(
        self, where: int, level: str, objects: Sequence[tuple[str, str, float, float]]
    ) -> None:
        """objects: name, text, longitude, latitude."""
        self.post(objects)
        self.clock.spawn(self._publish(where, level, objects))

    def post(self, objects: Sequence[tuple[str, str, float, float]]) -> None:
        """Note objects that are to be published, and their attributes."""
        for name, text, lon, lat in objects:
            attributes = some_attributes(self.seed, name)
            until = find_end(self, name)
            self.posted[name] = naive.Obj(lon, lat, text, attributes, until)

    def repeat(
        self,
        where: int,
        objects: Sequence[tuple[str, str, float, float]],
        producer: str,
        copies: Sequence[tuple[int, int, bool]],
    ) -> None:
        """Publish with a producer and a seq; see `Repeats.begin`."""
        self.repeats.begin(where, objects, producer, copies)

    def withdraw(self, where: int, names: Sequence[str]) -> None:
        """Withdraw objects; see `Withdrawals.begin`."""
        self.withdrawals.begin(where, names)

    def inquire(self, where: int, expression: str, region: Region) -> None:
        """Ask a dispatcher what a query would match, and how it and an object would meet."""
        serving = [p for p in self.of("dispatcher") if p.serves and not (p.over or p.paused)]
        if serving:
            process = serving[where % len(serving)]
            query, rows = self._compile("-", "", expression, region)
            process.run(lambda: inquire(self, process, query, rows))

    def connect(
        self, session: str, reader: int, where: int, window: int, size: int, lag: int
    ) -> None:
        """Reader number `reader` of the session opens a stream, perhaps anew."""
        box = self.boxes.setdefault(session, Box(session, self))
        mine = self.readers.setdefault(session, [])
        while len(mine) <= reader:
            rng = random.Random(f"{self.seed} {session} {len(mine)}")
            mine.append(Reader(self, box, rng, window, size, lag))
        mine[reader].connect(where)

    def break_off(self, session: str, reader: int) -> None:
        if len(self.readers.get(session, [])) > reader:
            self.readers[session][reader].break_off()

    def stall(self, session: str, reader: int, ms: int) -> None:
        if len(self.readers.get(session, [])) > reader:
            self.readers[session][reader].stall(ms)

    def move(self, where: int, plan: RoutingPlan, give_up: int, apart: bool) -> None:
        """Begin to move to this plan; after `give_up` ms, unless that is 0, ask for the end. Or
        let it coexist with the present one for so long; -1: until the controller unites them."""
        self.clock.spawn(self._move(where, plan, give_up, apart))

    def scale_mergers(self, where: int, mergers: int) -> None:
        """Let sessions move to this number of mergers."""
        self.clock.spawn(self._scale_mergers(where, mergers))

    def scale_dispatchers(self, where: int, dispatchers: int) -> None:
        """Let dispatchers join, or leave, until there are so many."""
        self.clock.spawn(self._scale_dispatchers(where, dispatchers))

    def jump(self, whose: str, ms: int) -> None:
        """A clock jumps ahead, or back."""
        skews = self.clock.skews
        skews[whose] = skews.get(whose, 0) + ms

    # --- what befalls the service ----------------------------------------------------------

    def crash_one(self, role: str, index: int, power: bool) -> None:
        if (address := self._present(role, index)) is not None:
            self.crash(address, power)

    def crash_all(self, power: bool, down: int, plan: int) -> None:
        """plan: the number of the one to go on with; negative: that which served last."""
        self.end(power, down)
        given = self.plans[plan % len(self.plans)] if plan >= 0 else self.topology.plan
        if plan < 0 and self.ledger.plan:
            given = RoutingPlan.from_dict(json.loads(self.ledger.plan), given.analysis)
        values = {f: getattr(self.topology, f) for f in self.topology.__dataclass_fields__}
        mergers = self.ledger.mergers or self.topology.mergers
        found = {"plan": given, "mergers": mergers, "dispatchers": self._counted}
        self.topology = SimTopology(**{**values, **found})

    def lose_log(self, role: str, index: int, down: int) -> None:
        """Everything stops, and when it comes back this actor's log is gone."""
        self.crash_all(False, down, -1)
        self.disk(Address(role, index)).lose(Path(f"{role}-{index}"))  # type: ignore[arg-type]

    def pause_one(self, role: str, index: int, ms: int, killable: bool) -> None:
        if (address := self._present(role, index)) is not None:
            self.pause(address, ms, killable)

    def isolate_one(self, role: str, index: int, ms: int, lost: bool) -> None:
        if (address := self._present(role, index)) is not None:
            self.isolate(address, ms, lost)

    def cut(self, one: tuple[str, int], other: tuple[str, int], ms: int, lost: bool) -> None:
        a, b = self._present(*one), self._present(*other)
        if a is not None and b is not None and a != b:
            self.network.cuts.append(Cut(a, b, self.clock.now + ms, lost))

    def rough(self, ms: int, delay: int, drop: float, double: float, overtake: float) -> None:
        self.network.temper = Temper(delay, drop, double, overtake)
        self.clock.after(ms, self._smooth, self.network.temper)

    def full_disk(self, role: str, index: int, ms: int) -> None:
        if (address := self._present(role, index)) is not None:
            disk = self.disk(address)
            disk.full = True
            self.clock.after(ms, setattr, disk, "full", False)

    def bad_disk(self, role: str, index: int) -> None:
        """The next sync fails."""
        if (address := self._present(role, index)) is not None:
            self.disk(address).fail_sync = True

    def fuse(self, role: str, index: int, changes: int) -> None:
        """The power is cut in the middle of a write to the disk."""
        if (address := self._present(role, index)) is not None:
            self.disk(address).fuse = changes

    def full_ledger(self, ms: int) -> None:
        self.ledger.refusing = "the disk is full"
        self.clock.after(ms, setattr, self.ledger, "refusing", "")

    def bad_ledger(self) -> None:
        self.ledger.failing = True

    # --- the run ---------------------------------------------------------------------------

    def act(self, events: Sequence[tuple[int, str, tuple[Any, ...]]]) -> None:
        for at, what, args in events:
            self.clock.at(at, self._event, what, args)

    def peace(self) -> None:
        """From now on nothing fails."""
        self.tell("peace")
        self.network.heal()
        self.ledger.refusing, self.ledger.failing = "", False
        for disk in self.disks.values():
            disk.full, disk.fail_sync, disk.fuse = False, False, None
        for process in self.processes.values():
            process.killable = True
            if process.over:
                continue
            if self.current.get(process.address) is not process:
                self.ended(process, "found and killed")
            else:
                process.shell.lease = float("inf")
                if process.paused:
                    process.wake()
        for box in self.boxes.values():
            for reader in self.readers[box.name]:
                reader.stalled_until = 0
                reader.break_off()
            first = self.readers[box.name][0]
            first.faithful = True
            first.connect(0)

    def rest(self) -> bool:
        """Run until nothing is left to do, and a while longer: what a batch that was completed
        last brings may still be on its way. False when that does not come."""
        end = self.clock.now + REST_MS
        still = 0
        while self.clock.now < end:
            self.clock.run(self.clock.now + 500)
            still = still + 1 if self.at_rest else 0
            if self.violations or still > 2:
                return True
        return False

    @property
    def at_rest(self) -> bool:
        return not self.busy

    @property
    def busy(self) -> list[str]:
        """What there is still to do."""
        found = list(self.open)
        if len(self.current) < len(self.topology.addresses()):
            found.append("starting")
        for process in self.current.values():
            machine: Any = getattr(process.shell, "machine", None)
            if process.over or not process.started:
                found.append(f"{process.name} is down")
            elif process.address.role == "dispatcher":
                router = process.edge.machine.router
                if not router.retro.is_idle:
                    found.append(f"{process.name} matches new queries")
                if router.in_flight or router.undecided or router.oldest != router.offset:
                    found.append(f"{process.name}: {router.in_flight} batches")
                if len(process.edge.machine.publications.identified):
                    found.append(f"{process.name} has publications to answer")
                if not router.ready and process.address.index < self._counted:
                    found.append(f"{process.name} is not ready")
            elif process.address.role == "merger" and machine.busy:
                found.append(f"{process.name} sends")
            elif process.address.role == "worker" and machine.held:
                found.append(f"{process.name}: {machine.held} held")
            elif process.address == SEQUENCER and machine.strategy.following is not None:
                found.append("a move is under way")
            if process.address == SEQUENCER and process.shell.machine.tables.is_changing:  # type: ignore[attr-defined]
                found.append("sessions move")
        for name, box in self.boxes.items():
            if not any(reader.connected for reader in self.readers[name]):
                found.append(f"{name} is not connected")
            elif self.clock.now - box.touched < QUIET_MS:
                found.append(f"{name} is served")
        return found

    @property
    def _counted(self) -> int:
        """The dispatchers that count."""
        noted = self.ledger.dispatchers.split()
        return int(noted[0]) if noted else self.topology.dispatchers

    @property
    def left_out(self) -> int:
        """The latest end of the valid objects of dispatchers that left, as the ledger has it."""
        sequencer: Any = self.current[SEQUENCER].shell
        producers = sequencer.machine.tables.producers
        return 0 if producers is None else int(producers.left_out)

    def moves(self) -> list[dict[str, Any]]:
        """Those that ended, as they are told."""
        sequencer: Any = self.current[SEQUENCER].shell
        found: list[dict[str, Any]] = sequencer.machine.moves
        return found

    def build(self, objects: Sequence[tuple[str, str, float, float]]) -> ObjectRows:
        """The rows of a publication that is made now."""
        names, texts = [o[0] for o in objects], [o[1] for o in objects]
        lons, lats = [o[2] for o in objects], [o[3] for o in objects]
        id_off, ids = strings_to_column(names)
        text_off, text = strings_to_column(texts)
        term_off, term = self.analyzer.analyse(text_off, text)
        lon, lat = np.array(lons, np.float64), np.array(lats, np.float64)
        time = np.full(len(names), self.clock.wall_ms(), np.int64)
        opaque = opaque_column([self.posted[name].attributes for name in names])
        until = np.array([self.posted[name].until for name in names], np.int64)
        rows = ObjectRows(id_off, ids, time, lon, lat, text_off, text, term_off, term, *opaque)
        return dataclasses.replace(rows, until=until) if until.any() else rows

    # --- inside ------------------------------------------------------------------------------

    def _compile(
        self, name: str, session: str, expression: str, region: Region
    ) -> tuple[naive.Query, QueryRows]:
        compiled = compile_column(*strings_to_column([expression]), self.analyzer, self.frequencies)
        assert not compiled.errors
        rows = build_rows(strings_to_column([name]), compiled, [region])
        return naive.Query(name, session, expression, region.to_json()), rows

    def _event(self, what: str, args: tuple[Any, ...]) -> None:
        self.tell(f"{what}{args}")
        getattr(self, what)(*args)

    def _present(self, role: str, index: int) -> Address | None:
        address = Address(role, index)  # type: ignore[arg-type]
        process = self.current.get(address)
        return None if process is None or process.over else address

    def _smooth(self, temper: Temper) -> None:
        if self.network.temper is temper:
            self.network.temper = Temper()

    def made(self, process: Process) -> None:
        """Watch what a dispatcher accepts."""
        if process.address.role == "dispatcher":
            machine = process.edge.machine.router
            process.serves = False
            accept = machine.publish

            def publish(rows: ObjectRows, may_shed: Any = None) -> Any:
                batch, lsn, out = accept(rows, may_shed)
                self.withdrawals.note_accepted(column_to_strings(rows.id_off, rows.id))
                if may_shed is not None:
                    sample = machine.shedding._samples.get(batch)
                    whole = [] if sample is None else sample.row.tolist()
                    names = column_to_strings(rows.id_off, rows.id)
                    may = {names[i] for i in np.flatnonzero(may_shed).tolist() if i not in whole}
                    self.sheddable |= may
                for i, name in enumerate(column_to_strings(rows.id_off, rows.id)):
                    if name in self.things:
                        self.wrong(f"{name} was accepted twice")
                    thing = Thing(self.posted[name], process.address.index, batch + i, lsn)
                    self.things[name] = thing
                return batch, lsn, out

            machine.publish = publish
            self.repeats.watch(process)
            self.withdrawals.watch(process)
            self.clock.spawn(self._serve(process))

    def _serve(self, process: Process) -> Task:
        """The endpoint opens once it has caught up. Some time after it has left it is stopped."""
        router = process.edge.machine.router
        while not process.over:
            if process.started and router.ready:
                process.serves = True
            elif process.serves and process.rng.random() < 0.1:
                process.serves = False
                self.departed += 1
                if process.rng.random() < 0.7 and self.current.get(process.address) is process:
                    self.crash(process.address, power=process.rng.random() < 0.5)
            yield 20

    def _update(
        self, where: int, kind: str, name: str, rows: QueryRows, session: str, request: str
    ) -> Task:
        self.open.append(f"{kind} {name}")
        operation, args = self._name_operation(), self._describe(kind, name, session, rows)
        while True:
            process = reach(self, self._rng, where)
            if process is None:
                yield 100
                continue
            ask: Callable[[Any], Future[UpdateDecision]] = lambda edge: edge.update(  # noqa: E731
                rows, [session], [request]
            )
            number = self.recorder.begin(operation, kind, operation, **args)
            try:
                decision = yield call(self, process, ask)
            except (Unavailable, ResourceExhausted) as error:
                self.recorder.end(number, _find_outcome(error))
                where = self._rng.randrange(self.topology.dispatchers)
                yield self._rng.randint(20, 400)
                continue
            status, lsn = int(decision.status[0]), int(decision.lsn[0])
            if status == UpdateStatus.UNAVAILABLE:
                self.recorder.end(number, "unknown")
                yield self._rng.randint(20, 400)
                continue
            if status == UpdateStatus.OK:
                self.updates.append((lsn, kind, name))
                self.known = max(self.known, lsn)
                self.recorder.end(number, "ok", lsn=lsn)
            else:
                self.recorder.end(number, "refused", code=UpdateStatus(status).name)
            self.tell(f"{kind} {name}: {UpdateStatus(status).name} {lsn} ({process.name})")
            break
        self.open.remove(f"{kind} {name}")
        self.answered += 1

    def _move(self, where: int, plan: RoutingPlan, give_up: int, apart: bool) -> Task:
        for attempt in range(10):
            process, sequencer = reach(self, self._rng, where), self.current.get(SEQUENCER)
            if process is None or sequencer is None or attempt:
                yield 300
            if process is None or sequencer is None:
                continue
            shell: Any = sequencer.shell
            base = shell.machine.strategy.plan.version
            what = PlanAction.COEXIST if apart else PlanAction.MOVE
            body = plan.to_dict() | {"version": base + 1, "base_version": base}
            if apart:  # then no unit may be replicated
                body.pop("replicas", None)
            try:
                reply = yield call(self, process, _wish(json.dumps(body).encode(), what))
            except (Unavailable, ResourceExhausted):
                continue
            problem = reply.problem.tobytes().decode()
            self.tell(f"the move to {plan.workers} workers: {problem or 'begun'}")
            break
        while give_up >= 0 and (give_up or apart):
            yield give_up or 300
            give_up = 0
            process = reach(self, self._rng, where)
            if process is None:
                continue
            with contextlib.suppress(Unavailable, ResourceExhausted):
                reply = yield call(
                    self, process, _wish(b"", PlanAction.UNITE if apart else PlanAction.MOVE)
                )
                problem = reply.problem.tobytes().decode()
                self.tell(f"the move is {'united' if apart else 'given up'}: {problem}")
                apart = apart and bool(problem) and "no two plans" not in problem

    def _scale_mergers(self, where: int, mergers: int) -> Task:
        self.open.append(f"scale to {mergers} mergers")
        while True:
            process = reach(self, self._rng, where)
            if process is None:
                yield 300
                continue
            ask: Callable[[Any], Future[Any]] = lambda edge: edge.mergers(mergers)  # noqa: E731
            try:
                reply = yield call(self, process, ask)
            except (Unavailable, ResourceExhausted):
                continue
            problem = reply.problem.tobytes().decode()
            self.tell(f"to {mergers} mergers: {problem or 'begun'}")
            if not problem:
                break
            yield 100
        self.scaled += 1
        self.open.remove(f"scale to {mergers} mergers")

    def _scale_dispatchers(self, where: int, dispatchers: int) -> Task:
        self.open.append(f"scale to {dispatchers} dispatchers")
        while True:
            process = reach(self, self._rng, where)
            if process is None:
                yield 300
                continue
            ask: Callable[[Any], Future[Any]] = lambda edge: edge.dispatchers(dispatchers)  # noqa: E731
            try:
                reply = yield call(self, process, ask)
            except (Unavailable, ResourceExhausted):
                continue
            problem = reply.problem.tobytes().decode()
            self.tell(f"to {dispatchers} dispatchers: {problem or 'begun'}")
            if not problem:
                break
            yield 100
        self.scaled += 1
        self.open.remove(f"scale to {dispatchers} dispatchers")

    def _publish(
        self, where: int, level: str, objects: Sequence[tuple[str, str, float, float]]
    ) -> Task:
        names, rows = [o[0] for o in objects], self.build(objects)
        self.open.append(f"publish {names}")
        operation, args = self._name_operation(), self._describe_objects(level, names)
        for _ in range(60):
            process = reach(self, self._rng, where)
            known = self.known
            if process is None:
                yield 100
                continue
            ask = publish(rows, level == "DURABLE", process)
            number = self.recorder.begin(operation, "publish", operation, **args)
            try:
                found = yield call(self, process, ask, f"publish {names}")
            except ResourceExhausted:
                self.recorder.end(number, "refused")
                yield self._rng.randint(20, 200)
                continue
            except Unavailable as error:
                self.recorder.end(number, "unknown")
                self.tell(f"{level} {names} is not answered: {error}")
                break
            self.recorder.end(
                number, "ok", lsn=found.lsn, partition=found.partition, offset=found.offset,
                accepted=len(names),
            )  # fmt: skip
            self._accepted(process, level, names, found, known)
            break
        self.open.remove(f"publish {names}")
        self.answered += 1

    def _name_operation(self) -> str:
        self._operations += 1
        return f"operation {self._operations}"

    def _describe(self, kind: str, name: str, session: str, rows: QueryRows) -> dict[str, Any]:
        """An update, as a history has it."""
        if kind == "delete":
            return {"id": name}
        query = self.sources[session, name, rows.source.tobytes()]
        return {
            "id": name, "session": session, "expression": query.expression,
            "region": query.region, "replace": False, "retro": False,
        }  # fmt: skip

    def _describe_objects(self, level: str, names: Sequence[str]) -> dict[str, Any]:
        """A publication; what kills workers is left out in the end."""
        objects = [(name, self.posted[name]) for name in names]
        if any(POISON in obj.text for _, obj in objects):
            level = "ACCEPTED"
        rows = [[n, o.lon, o.lat, o.text, dict(o.attributes), o.until] for n, o in objects]
        return {"level": level.lower(), "producer": "", "seq": 0, "objects": rows}

    def _accepted(
        self, process: Process, level: str, names: list[str], found: AcceptedBatch, known: int
    ) -> None:
        self.tell(f"{level} {names} at {found.lsn} as {found.offset:#x} ({process.name})")
        if found.lsn < known:
            self.wrong(f"{names} matched as of {found.lsn}, when {known} was acknowledged")
        for i, name in enumerate(names):
            thing = self.things.get(name)
            if thing is None or thing[1:] != (found.partition, found.offset + i, found.lsn):
                self.wrong(f"{name} was accepted as {found}, but it is {thing}")
            if level == "DURABLE":
                self.durable.add(name)
            elif level == "ACCEPTED":
                self.accepted[name] = process


def _find_outcome(error: Exception) -> str:
    return "refused" if isinstance(error, ResourceExhausted) else "unknown"


def _wish(plan: bytes, what: PlanAction) -> Callable[[Any], Future[PlanChangeReply]]:
    return lambda edge: edge.strategy(plan, what)


def sequencer_of(world: World) -> Process:
    return world.current[SEQUENCER]
