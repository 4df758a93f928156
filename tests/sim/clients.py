"""The clients of the simulator: they ask, ask again elsewhere, and read their sessions.

Subscribers run the client's own `MatchReceiver`; each keeps its cursor together with what it made
of the matches, as the contract says.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ps2stream.client.matches import Gap, Matches, MatchReceiver
from ps2stream.client.shed_load import ShedLoad
from ps2stream.dispatcher.gateway import PublicationIdentity
from ps2stream.errors import FailedPrecondition, ResourceExhausted, Unavailable
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.rows import ObjectRows, QueryRows
from ps2stream.protocol.session_numbers import LEAP
from ps2stream.service.inbox import InboxCut
from ps2stream.service.inquiry_calls import NEWEST
from ps2stream.v1 import delivery_pb2
from tests import naive
from tests.sim.clock import Task, Wait
from tests.sim.cluster import Cluster
from tests.sim.process import Process

if TYPE_CHECKING:
    from tests.sim.world import World

PATIENCE_MS = 3_000
LOST_ANSWERS = 0.03


class Pair(NamedTuple):
    """A match as a subscriber was given it."""

    handle: int
    query_id: str
    object_id: str
    partition: int
    offset: int


class Box:
    """What all the streams of one session have brought: pairs by number, ranges of gaps."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name = name
        self.pairs: dict[int, Pair] = {}
        self.lost: set[int] = set()
        # Ranges of gaps that have an unknown number of pairs, and how many others they count.
        self.unknown: dict[tuple[int, int], int] = {}
        self.notices: dict[int, ShedLoad] = {}  # of shed load, by their numbers
        self.last = 0
        self.touched = 0  # when something came
        self._cluster = cluster

    def note_gap(self, gap: Gap) -> None:
        """Notes a gap; where an unknown number of pairs is among its numbers, it counts the
        others."""
        size = gap.last - gap.first + 1
        if gap.shed is not None:
            if (size, gap.count) != (1, 0) or self.notices.setdefault(
                gap.first, gap.shed
            ) != gap.shed:
                self._cluster.wrong(f"{self.name}: {gap} is no notice, or another than it was")
        elif size == gap.count:
            self.lost |= set(range(gap.first, gap.last + 1))
        elif size % LEAP == gap.count:
            self.unknown[gap.first, gap.last] = gap.count
        else:
            self._cluster.wrong(f"{self.name}: the gap {gap} does not count its pairs")

    def put(self, number: int, pair: Pair) -> None:
        old = self.pairs.setdefault(number, pair)
        if old != pair:
            self._cluster.wrong(f"{self.name} #{number} was {old} and is now {pair}")


def call(
    cluster: Cluster, process: Process, ask: Callable[[Any], Future[Any]], what: str = ""
) -> Wait:
    """A call to a dispatcher: its answer, unless it or the dispatcher gets lost."""
    answer: Future[Any] = Future()
    rng = process.rng
    lost = rng.random() < LOST_ANSWERS
    rtt = rng.randrange(4)
    wait = Wait(cluster.clock, answer, rtt)

    def settle(inner: Future[Any]) -> None:
        process.unanswered[what] -= 1
        if answer.done():
            return
        if error := inner.exception():
            answer.set_exception(error)
            return
        if process.shell.lapsed:
            cluster.wrong(f"{process.name} answers a client past its lease")
        if lost:
            answer.set_exception(Unavailable("the answer got lost"))
        else:
            answer.set_result(inner.result())

    def begin() -> None:
        begun: list[Future[Any]] = []
        if process.over:
            wait.give_up("the dispatcher is gone")
        elif process.run(lambda: begun.append(ask(process.edge))):
            process.unanswered[what] = process.unanswered.get(what, 0) + 1
            begun[0].add_done_callback(settle)
        else:
            wait.give_up("the dispatcher has ended")

    process.broken.append(wait.give_up)
    process.do(begin)
    cluster.clock.after(PATIENCE_MS, wait.give_up, "the deadline has passed")
    return wait


def publish(
    rows: ObjectRows,
    durable: bool,
    process: Process,
    identity: PublicationIdentity | None = None,
) -> Callable[[Any], Future[Any]]:
    """A publication of a client that may wait for room, and that may lose its patience."""
    rng = random.Random(f"{rows.id.tobytes()!r} {process.name}")
    wait_s, patience_ms = rng.choice([0.0, 0.0, 0.3, 2.0]), rng.choice([0, 0, 10, 100, 1_000])

    def ask(edge: Any) -> Future[Any]:
        routing: Future[Any] = edge.publish(rows, wait_s, durable, identity)
        if patience_ms:
            give_up = partial(edge.withdraw, routing, patience_ms / 1_000)
            process.host.clock.after(patience_ms, process.do, partial(process.run, give_up))
        return routing

    return ask


def inquire(cluster: World, process: Process, query: naive.Query, rows: QueryRows) -> None:
    """What the dispatcher estimates and explains, against brute force over its sample."""
    edge, handle = process.edge, np.array([NEWEST])
    estimate, sample = edge.price(rows.replace(handle=handle)), edge.sample()
    objects = [cluster.posted[name] for name in column_to_strings(sample.id_off, sample.id)]
    expected = [i for i, thing in enumerate(objects) if naive.matches(query, thing)]
    found = None if estimate is None else (estimate.sampled, estimate.matched.tolist())
    if found != ((len(objects), expected) if objects else None):
        cluster.wrong(f"{process.name} estimates {found} of {query}, not {expected}")
    for at, name in enumerate(column_to_strings(sample.id_off, sample.id)[:3]):
        one = sample.take(np.array([at]))
        thing = ObjectRows(
            one.id_off, one.id, one.time, one.lon, one.lat, one.text_off, one.text,
            one.term_off, one.term, one.opaque_off, one.opaque,
        )  # fmt: skip
        meeting = edge.meeting(rows.replace(handle=handle), thing)
        if meeting.matches != (at in expected):
            cluster.wrong(f"{process.name} explains that {query} and {name} meet: {meeting}")


def reach(cluster: Cluster, rng: random.Random, where: int) -> Process | None:
    """A process that serves clients: of dispatcher `where` while there is one, else any. More
    than one may, when an old one is still there."""
    serving = [p for p in cluster.processes.values() if p.serves and not p.over]
    mine = [p for p in serving if p.address == Address("dispatcher", where)]
    found = mine or serving
    return rng.choice(found) if found else None


class Inbox:
    """What a stream has brought and its client has not yet read, as the service holds it.
    over: it was taken over."""

    def __init__(self, process: Process) -> None:
        self.over = False
        self.held = process.inboxes.open()


class Reader:
    """A subscriber of a session: connects, takes what comes, acknowledges, breaks off.

    window: batches that may be under way; lag: ms that it takes to deal with what came.
    """

    def __init__(
        self, cluster: World, box: Box, rng: random.Random, window: int, size: int, lag: int
    ) -> None:
        self.cluster = cluster
        self.box = box
        self.rng = rng
        self.lag = lag
        self.wanted = True
        self.faithful = False  # comes back when a stream takes over, be it one of its own
        self.connected = False
        self.stalled_until = 0
        self._window = (window, size)
        self._cursor = b""
        self._receiver: MatchReceiver | None = None
        self._stream: Any = None
        self._inbox: Inbox | None = None
        self._call = 0  # that opened the stream, in the history
        self._round = 0  # of connecting; what belongs to an earlier one is passed over

    def connect(self, where: int) -> None:
        self.wanted = True
        self._round += 1
        self.connected = False
        self.cluster.clock.spawn(self._connect(where, self._round))

    def break_off(self) -> None:
        """The client dies; what it had not dealt with is forgotten, its cursor is not."""
        self.wanted = self.connected = False
        self._round += 1
        stream, self._stream = self._stream, None
        inbox, self._inbox = self._inbox, None
        if stream is not None:
            self.cluster.clock.after(self.rng.randrange(400), _close, *stream, inbox)

    def stall(self, ms: int) -> None:
        self.stalled_until = max(self.stalled_until, self.cluster.clock.now + ms)
        self.cluster.clock.after(ms, self._read, self._round)

    def _connect(self, where: int, number: int) -> Task:
        window, size = self._window
        while number == self._round and self.wanted:
            process = reach(self.cluster, self.rng, where)
            if process is None:
                yield self.rng.randint(50, 150)
                continue
            receiver = MatchReceiver(
                self.box.name,
                text=self.rng.random() < 0.5,
                credit_batches=window,
                credit_bytes=size,
                cursor=self._cursor,
            )
            start = delivery_pb2.DeliverRequest.FromString(receiver.start()).start
            inbox = Inbox(process)
            ended = self._sink_of(process, inbox, number)
            fields = start.fields.text | start.fields.position << 1 | start.fields.time << 2
            ask = (
                start.session, fields, start.credit_batches, start.credit_bytes, ended,
                start.cursor.session_seq,
            )  # fmt: skip
            opening = self.cluster.recorder.begin(
                f"reader of {self.box.name}", "deliver",
                session=self.box.name, after=start.cursor.session_seq,
            )  # fmt: skip
            try:
                attach = partial(_attach, ask)
                stream = yield call(self.cluster, process, attach)
            except (Unavailable, ResourceExhausted, FailedPrecondition) as error:
                if isinstance(error, FailedPrecondition) and "taken" not in str(error):
                    self.cluster.wrong(f"{self.box.name}: a good cursor was refused: {error}")
                    return
                where = self.rng.randrange(self.cluster.topology.dispatchers)
                yield self.rng.randint(20, 200)
                continue
            if number != self._round or process.over:
                _close(process, stream, inbox)
                if number == self._round:
                    continue
                return
            started = delivery_pb2.Started(
                session=stream.session, epoch=stream.epoch, incarnation=process.edge.incarnation
            )
            receiver.on(delivery_pb2.DeliverResponse(started=started).SerializeToString())
            self._receiver, self._stream, self._inbox = receiver, (process, stream), inbox
            self._call = opening
            self.cluster.recorder.end(self._call, "ok")
            self.connected = True
            self.box.touched = self.cluster.clock.now
            process.broken.append(lambda _why: self._broken(number))
            self._schedule(number)
            if inbox.over:
                self._taken_over(inbox)
            return

    def _sink_of(
        self, process: Process, inbox: Inbox, number: int
    ) -> Callable[[bytes | Exception], bool]:
        def sink(data: bytes | Exception) -> bool:
            if process.shell.lapsed:
                self.cluster.wrong(f"{process.name} delivers past its lease")
            if isinstance(data, Unavailable):  # its dispatcher leaves
                self.cluster.clock.after(1, self._left, inbox, number)
                return False
            if isinstance(data, Exception):
                inbox.over = True
                self.cluster.clock.after(1, self._taken_over, inbox)
                return False
            cut = inbox.held.put(data)
            if inbox.held.waiting > self._window[0]:
                self.cluster.wrong(f"{self.box.name} was sent more than its window")
            self._schedule(number)
            return cut

        return sink

    def _schedule(self, number: int) -> None:
        self.cluster.clock.after(1 + self.rng.randrange(self.lag + 1), self._read, number)

    def _broken(self, number: int) -> None:
        """The dispatcher is gone: look for another."""
        if number == self._round and self.wanted:
            self._stream = self._inbox = None
            self.connect(self.rng.randrange(self.cluster.topology.dispatchers))

    def _left(self, inbox: Inbox, number: int) -> None:
        if inbox is self._inbox:
            self._broken(number)

    def _taken_over(self, inbox: Inbox) -> None:
        if inbox is self._inbox:  # and not one whose answer got lost
            self.wanted = self.connected = False
            self._stream = None
            self._round += 1
            if self.faithful:
                self.connect(0)

    def _read(self, number: int) -> None:
        if number != self._round or self._receiver is None or self._stream is None:
            return
        if self.cluster.clock.now < self.stalled_until:
            return
        box, receiver, inbox = self.box, self._receiver, self._inbox
        process, stream = self._stream
        assert inbox is not None
        while isinstance(data := inbox.held.take(), bytes):
            box.touched = self.cluster.clock.now
            found = receiver.on(data)
            if found is None:
                continue
            self._record(found)
            if found.gap is not None:
                box.note_gap(found.gap)
            if (found.first if found.gap is None else found.gap.first) > box.last + 1:
                self.cluster.wrong(f"{box.name}: {found.first} follows on {box.last}")
            rows = zip(found.handles.tolist(), found, strict=True) if len(found) else ()
            for at, (handle, match) in enumerate(rows, found.first):
                box.put(at, Pair(handle, *match[:4]))
            box.last = max(box.last, found.last)
            receiver.took(found.last)
            self._cursor = receiver.cursor()
        credit = receiver.credit(flush=self.rng.random() < 0.5)
        if credit is not None:
            grant = delivery_pb2.DeliverRequest.FromString(credit).credit
            process.do(
                lambda: process.run(lambda: stream.credit(grant.batches, grant.bytes, grant.ack))
            )
        if isinstance(data, InboxCut):  # it has read what was left
            box.touched = self.cluster.clock.now
            process.do(lambda: process.run(lambda: stream.again(inbox.held.go_on)))

    def _record(self, found: Matches) -> None:
        recorder, box = self.cluster.recorder, self.box
        if found.gap is not None:
            recorder.skip(box.name, self._call, found.gap.first, found.gap.last, found.gap.count)
            return
        rows = [[m.object_id, m.offset, m.lon, m.lat, m.text, None] for m in found]
        pairs = zip(found.handles.tolist(), found.query_ids, range(len(rows)), strict=True)
        every = list(map(list, pairs))
        recorder.receive(box.name, self._call, found.first, found.partition, every, rows)


def _close(process: Process, stream: Any, inbox: Inbox) -> None:
    process.do(lambda: process.run(stream.close))
    process.do(inbox.held.close)


def _attach(ask: Any, edge: Any) -> Future[Any]:
    found: Future[Any] = edge.attach(*ask)
    return found
