"""Publishers, subscribers and updaters: real clients that take what comes and note it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc

from ps2stream.client import requests
from ps2stream.client.client import Client, Subscription
from ps2stream.client.connection import access
from ps2stream.client.matches import Matches
from ps2stream.errors import FailedPrecondition, InvalidArgument, Ps2StreamError, ResourceExhausted
from ps2stream.v1 import pubsub_pb2
from tests import naive
from tests.chaos.history import (
    STRIPES,
    Batch,
    Change,
    History,
    Seen,
    hot_object,
    probe_query,
    some_object,
    some_query,
)

FAILURES = (Ps2StreamError, TimeoutError)
UPDATE = "/ps2stream.v1.PubSub/"
HOT = 12
"""Objects of a hot place and word in a batch."""
AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def what(error: Exception) -> str:
    """Its kind, and of a kind that the contract does not name also its words."""
    return type(error).__name__ + (f": {error}" if type(error) is Ps2StreamError else "")


class Customer(threading.Thread):
    """A client in a thread; what it did not expect is a problem of the history."""

    def __init__(self, name: str, history: History, targets: Sequence[str], seed: str) -> None:
        super().__init__(daemon=True, name=name)
        self.history = history
        self.targets = targets
        self.rng = random.Random(seed + name)

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # noqa: BLE001
            self.history.problems.append(f"{self.name}: {type(error).__name__}: {error}")

    def work(self) -> None:
        raise NotImplementedError

    def client(self, dispatcher: int) -> Client:
        target = self.targets[dispatcher % len(self.targets)]
        return Client(target, timeout=20, **self.history.access)


class Publisher(Customer):
    """Publishes at one dispatcher, `rate` batches a second: probes and others, which are mostly of
    one place and word for `hot_s` seconds, and of another then. 0: there is none."""

    def __init__(self, name: str, dispatcher: int, rate: float, hot_s: float, *rest: Any) -> None:
        super().__init__(name, *rest)
        self.hot_s = hot_s
        self.dispatcher = dispatcher
        self.pause = 1 / rate
        self.full = 0

    def work(self) -> None:
        serial = 0
        due = time.monotonic()
        with self.client(self.dispatcher) as client:
            while not self.history.stop.is_set():
                self._publish(client, serial)
                serial += 1
                due = max(due + self.pause, time.monotonic() - 1)
                time.sleep(max(0.0, due - time.monotonic()))

    def _publish(self, client: Client, serial: int) -> None:
        rng = self.rng
        objects = [some_object(rng, probe) for probe in range(STRIPES)]
        names = [f"p{probe}.{self.name}.{serial}" for probe in range(STRIPES)]
        more = rng.randint(0, 6)
        objects += [some_object(rng) for _ in range(more)]
        if self.hot_s:
            spot = int(time.monotonic() / self.hot_s)
            objects += [hot_object(rng, spot) for _ in range(HOT)]
            more += HOT
        names += [f"o{i}.{self.name}.{serial}" for i in range(more)]
        batch = Batch(names, objects, 0, time.monotonic(), self.dispatcher)
        self.history.publishes(batch)
        rows = [
            {"id": n, "lon": o.lon, "lat": o.lat, "text": o.text, "attributes": o.attributes}
            for n, o in zip(names, objects, strict=True)
        ]
        try:
            receipt = client.publish(rows)
        except ResourceExhausted as error:
            batch.lsn = -2
            self.full += 1
            self.history.failed("Publish", what(error))
            time.sleep(0.2)
            return
        except InvalidArgument:
            raise
        except FAILURES as error:
            self.history.failed("Publish", what(error))
            time.sleep(0.1)
            return
        batch.partition, batch.offset = receipt.partition, receipt.first_offset
        batch.answered = time.monotonic()
        batch.lsn = receipt.lsn
        if receipt.lsn < batch.floor or receipt.accepted != len(names):
            self.history.problems.append(f"{names[0]}: {receipt}, but LSN {batch.floor} was told")


class Subscriber(Customer):
    """Takes one session's matches. `restless`: it leaves and comes back, takes over from
    itself at another dispatcher, and stalls."""

    def __init__(self, session: str, restless: bool, *rest: Any) -> None:
        super().__init__(f"subscriber {session}", *rest)
        self.session = session
        self.restless = restless
        self.seen = self.history.sessions.setdefault(session, Seen(session))
        self.leaving = threading.Event()
        self._stream: Subscription | None = None
        self._at = self.rng.randrange(len(self.targets))

    def work(self) -> None:
        cursor = b""
        client, stream = None, None
        while not self.leaving.is_set():
            if stream is None:
                client, stream = self._open(cursor)
                if stream is None:
                    time.sleep(0.1)
                    continue
            self._stream = stream
            deed = self._take(stream)
            other: tuple[Client | None, Subscription | None] = (None, None)
            if deed == "take over":
                self._at += 1
                other = self._open(stream.cursor)
            elif deed == "stall":
                self.leaving.wait(self.rng.uniform(2, 12))
                continue
            stream.close()
            cursor = stream.cursor
            assert client is not None
            client.close()
            if deed == "leave":
                self._at += self.rng.randrange(2)
                self.leaving.wait(self.rng.uniform(0.1, 8))
            client, stream = other
        for open_ in (stream, client):
            if open_ is not None:
                open_.close()

    def leave(self) -> None:
        """End, from another thread."""
        self.leaving.set()
        if self._stream is not None:
            self._stream.close()

    def _open(self, cursor: bytes) -> tuple[Client | None, Subscription | None]:
        client = self.client(self._at)
        try:
            return client, client.subscribe(self.session, cursor=cursor)
        except FailedPrecondition as error:
            raise RuntimeError(f"a kept cursor was refused: {error}") from None
        except FAILURES as error:
            self.history.failed("Deliver", what(error))
            client.close()
            return None, None

    def _take(self, stream: Subscription) -> str:
        """Read until the stream fails or something else is to be done."""
        until = time.monotonic() + self.rng.uniform(2, 20)
        try:
            for batch in stream.batches():
                self._note(batch)
                if self.restless and time.monotonic() > until:
                    return self.rng.choice(["take over", "leave", "stall"])
        except FAILURES as error:
            self.history.failed("Deliver", what(error))
        return "again"

    def _note(self, batch: Matches) -> None:
        seen, now = self.seen, time.monotonic()
        last = len(seen.pairs)
        first = batch.first if batch.gap is None else batch.gap.first
        if first > last + 1:
            seen.problems.append(f"{seen.name}: number {first} came after {last}")
            seen.pairs += [None] * (first - last - 1)
        if batch.gap is not None:
            fresh = max(batch.gap.last - len(seen.pairs), 0)
            seen.gaps += fresh
            seen.pairs += [None] * fresh
            return
        for number, match in enumerate(batch, batch.first):
            pair = (match.query_id, match.object_id, match.partition, match.offset)
            if number <= len(seen.pairs):
                seen.repeats += 1
                if seen.pairs[number - 1] != pair:
                    seen.problems.append(
                        f"{seen.name}: number {number} was {seen.pairs[number - 1]}, now {pair}"
                    )
                continue
            seen.pairs.append(pair)
            known = self.history.where.get(match.object_id)
            if known is None:
                continue  # the verdict says so
            obj = known[0].objects[known[1]]
            got = match.lon, match.lat, match.text, match.attributes
            if got != (obj.lon, obj.lat, obj.text, obj.attributes):
                seen.problems.append(f"{seen.name}: {match} is not {obj}")
            if match.query_id.startswith("probe"):
                self.history.arrived(seen.name, match.object_id, now)


class Updater(Customer):
    """Inserts, replaces and deletes queries through any dispatcher; what is not answered is asked
    again, at another, until it is."""

    def __init__(self, name: str, sessions: Sequence[str], live: int, pause: float, *rest: Any):
        super().__init__(name, *rest)
        self.sessions = sessions
        self.live_target = live
        self.pause = pause
        self.live: list[Change] = []
        self.repeated = 0
        self.give_up = threading.Event()
        trust, self._metadata = access(self.targets[0], **self.history.access)
        self._channels = [
            grpc.insecure_channel(target, requests.CHANNEL_OPTIONS)
            if trust is None
            else grpc.secure_channel(target, trust, requests.CHANNEL_OPTIONS)
            for target in self.targets
        ]

    def setup(self) -> None:
        """The probes' queries of two sessions, and half of the others."""
        for session in self.sessions[:2]:
            for probe in range(STRIPES):
                self.insert(probe_query(session, probe))
        self.live.clear()
        while len(self.live) < self.live_target // 2:
            self._insert_another(len(self.live))

    def work(self) -> None:
        serial = self.live_target
        while not self.history.stop.is_set():
            if len(self.live) < self.rng.uniform(0.5, 1.5) * self.live_target:
                serial += 1
                self._insert_another(serial)
            else:
                change = self.live.pop(self.rng.randrange(len(self.live)))
                (self._replace if self.rng.random() < 0.5 else self._remove)(change)
            time.sleep(self.rng.expovariate(1 / self.pause))

    def insert(self, query: naive.Query) -> None:
        change = self._begin(query)
        change.inserted = self._insert(query, replace=False)
        self.live.append(change)

    def _begin(self, query: naive.Query) -> Change:
        """A query of this id, of which more than one may live one after the other."""
        change = Change(query)
        self.history.queries.setdefault(query.id, []).append(change)
        return change

    def _insert(self, query: naive.Query, replace: bool) -> int:
        what = query.id, query.expression, query.region, query.session
        request = requests.insert_request(*what, replace, retro=query.retro)
        return self._ask("InsertQuery", request, pubsub_pb2.InsertQueryResponse)

    def _replace(self, old: Change) -> None:
        query = some_query(self.rng, old.query.id, old.query.session)
        new = self._begin(query)
        new.inserted = old.deleted = self._insert(query, replace=True)
        self.live.append(new)

    def _insert_another(self, serial: int) -> None:
        self.insert(some_query(self.rng, f"{self.name}.{serial}", self.rng.choice(self.sessions)))

    def _remove(self, change: Change) -> None:
        request = pubsub_pb2.DeleteQueryRequest(
            id=change.query.id, request_id=requests.new_request_id()
        )
        change.deleted = self._ask("DeleteQuery", request, pubsub_pb2.DeleteQueryResponse)

    def _ask(self, method: str, request: Any, kind: Any) -> int:
        """The LSN; now and then the request is repeated, whose answer must be the same."""
        lsn = self._answer(method, request, kind)
        if self.rng.random() < 0.1:
            again = self._answer(method, request, kind)
            self.repeated += 1
            if again != lsn:
                self.history.problems.append(f"{method} {request}: LSN {lsn}, repeated {again}")
        return lsn

    def _answer(self, method: str, request: Any, kind: Any) -> int:
        data = request.SerializeToString()
        while not self.give_up.is_set():
            channel: Any = self.rng.choice(self._channels)
            asked = time.monotonic()
            try:
                call = channel.unary_unary(UPDATE + method)
                answer = kind.FromString(call(data, timeout=5, metadata=self._metadata))
                self.history.told(answer.lsn, asked, time.monotonic())
                return int(answer.lsn)
            except grpc.RpcError as error:
                code = getattr(error, "code", lambda: None)()
                self.history.failed(method, str(code))
                if code not in AGAIN:
                    raise
            time.sleep(0.05)
        raise TimeoutError(f"{method} was never answered")
