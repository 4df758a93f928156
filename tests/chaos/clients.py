"""Publishers, subscribers, updaters and readers: real clients that record what they call and what
comes."""

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
from ps2stream.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Ps2StreamError,
    ResourceExhausted,
)
from ps2stream.v1 import delivery_pb2, pubsub_pb2
from tests import naive
from tests.chaos.history import (
    STRIPES,
    History,
    Received,
    as_row,
    hot_object,
    probe_query,
    some_object,
    some_query,
)
from tests.history.record import Recorder

FAILURES = (Ps2StreamError, TimeoutError)
UPDATE = "/ps2stream.v1.PubSub/"
HOT = 12
"""Objects of a hot place and word in a batch."""
AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}
UNKNOWN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
"""After these a call may have been done, or may still be."""


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
            problem = f"{type(error).__name__}: {error}"
            self.history.recorder.complain(self.name, problem)

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
        sent = time.monotonic()
        self.history.sent |= dict.fromkeys(names[:STRIPES], (sent, self.dispatcher))
        self._send(client, names, objects)

    def _send(self, client: Client, names: Sequence[str], objects: Sequence[naive.Obj]) -> None:
        recorder = self.history.recorder
        rows = [as_row(n, o) for n, o in zip(names, objects, strict=True)]
        call = recorder.begin(
            self.name, "publish", level="durable", producer="", seq=0, objects=rows
        )
        try:
            receipt = client.publish(
                [
                    {
                        "id": n,
                        "lon": o.lon,
                        "lat": o.lat,
                        "text": o.text,
                        "attributes": o.attributes,
                    }
                    for n, o in zip(names, objects, strict=True)
                ]
            )
        except ResourceExhausted as error:
            recorder.end(call, "refused")
            self.full += 1
            self.history.failed("Publish", what(error))
            time.sleep(0.2)
        except InvalidArgument:
            raise
        except FAILURES as error:
            recorder.end(call, "unknown")
            self.history.failed("Publish", what(error))
            time.sleep(0.1)
        else:
            end_publication(recorder, call, receipt)
            self.history.accepted += 1


def end_publication(recorder: Recorder, call: int, receipt: Any) -> None:
    """It was answered with this receipt."""
    recorder.end(
        call,
        "ok",
        lsn=receipt.lsn,
        partition=receipt.partition,
        offset=receipt.first_offset,
        accepted=receipt.accepted,
    )


class Subscriber(Customer):
    """Takes one session's matches. `restless`: it leaves and comes back, takes over from
    itself at another dispatcher, and stalls."""

    def __init__(self, session: str, restless: bool, *rest: Any) -> None:
        super().__init__(f"subscriber {session}", *rest)
        self.session = session
        self.restless = restless
        self.received = self.history.sessions.setdefault(session, Received())
        self._call = 0
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
        recorder, client = self.history.recorder, self.client(self._at)
        after = delivery_pb2.Cursor.FromString(cursor).session_seq
        call = recorder.begin(self.name, "deliver", session=self.session, after=after)
        try:
            stream = client.subscribe(self.session, cursor=cursor)
            recorder.end(call, "ok")
            self._call = call
            return client, stream
        except FailedPrecondition as error:
            raise RuntimeError(f"a kept cursor was refused: {error}") from None
        except FAILURES as error:
            recorder.end(call, "unknown")
            self.history.failed("Deliver", what(error))
            client.close()
            self._at += 1
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
        received, now = self.received, time.monotonic()
        if batch.gap is not None:
            gap = batch.gap
            self.history.recorder.skip(self.session, self._call, gap.first, gap.last, gap.count)
            received.gaps += max(gap.last - max(received.last, gap.first - 1), 0)
        else:
            self._record(batch)
            for match in batch:
                if match.query_id.startswith("probe"):
                    self.history.arrived(self.session, match.object_id, now)
        received.last = max(received.last, batch.last)

    def _record(self, batch: Matches) -> None:
        rows = batch.objects.tolist()
        handles = batch.handles.tolist()
        matches = dict(zip(rows, batch, strict=True))
        numbers = {row: i for i, row in enumerate(matches)}
        self.history.recorder.receive(
            self.session,
            self._call,
            batch.first,
            batch.partition,
            [[h, q, numbers[r]] for h, q, r in zip(handles, batch.query_ids, rows, strict=True)],
            [[m.object_id, m.offset, m.lon, m.lat, m.text, m.attributes] for m in matches.values()],
        )
        names = (matches[row].object_id for row in rows)
        self.received.matches |= set(zip(handles, names, strict=True))


class Asker(Customer):
    """Reads queries through any dispatcher, one after the other."""

    def work(self) -> None:
        recorder = self.history.recorder
        clients = [self.client(i) for i in range(len(self.targets))]
        while not self.history.stop.wait(0.2):
            if not self.history.ids:
                continue
            name = self.rng.choice(self.history.ids[-200:])
            call = recorder.begin(self.name, "get", id=name)
            try:
                found = self.rng.choice(clients).get(name)
            except NotFound:
                recorder.end(call, "ok")
            except FAILURES as error:
                recorder.end(call, "unknown")
                self.history.failed("GetQuery", what(error))
            else:
                recorder.end(
                    call, "ok", lsn=found.lsn, session=found.session, expression=found.expression
                )
        for client in clients:
            client.close()


class Updater(Customer):
    """Inserts, replaces and deletes queries through any dispatcher; what is not answered is asked
    again, at another, until it is."""

    def __init__(self, name: str, sessions: Sequence[str], live: int, pause: float, *rest: Any):
        super().__init__(name, *rest)
        self.sessions = sessions
        self.live_target = live
        self.pause = pause
        self.live: list[naive.Query] = []
        self.repeated = 0
        self._operations = 0
        self._call = 0
        self.give_up = threading.Event()
        found = access(self.targets[0], **self.history.access)
        trust, self._metadata = found.credentials, found.metadata
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
                query = self.live.pop(self.rng.randrange(len(self.live)))
                (self._replace if self.rng.random() < 0.5 else self._remove)(query)
            time.sleep(self.rng.expovariate(1 / self.pause))

    def insert(self, query: naive.Query) -> None:
        self._insert(query, replace=False)
        self.live.append(query)

    def _insert(self, query: naive.Query, replace: bool) -> None:
        self.history.ids.append(query.id)
        what = query.id, query.expression, query.region, query.session
        request = requests.insert_request(*what, replace, retro=query.retro)
        names = ("id", "session", "expression", "region", "retro")
        args = {name: getattr(query, name) for name in names} | {"replace": replace}
        self._ask("InsertQuery", request, pubsub_pb2.InsertQueryResponse, "insert", args)

    def _replace(self, old: naive.Query) -> None:
        query = some_query(self.rng, old.id, old.session)
        self._insert(query, replace=True)
        self.live.append(query)

    def _insert_another(self, serial: int) -> None:
        self.insert(some_query(self.rng, f"{self.name}.{serial}", self.rng.choice(self.sessions)))

    def _remove(self, query: naive.Query) -> None:
        request = pubsub_pb2.DeleteQueryRequest(id=query.id, request_id=requests.new_request_id())
        kind = pubsub_pb2.DeleteQueryResponse
        self._ask("DeleteQuery", request, kind, "delete", {"id": query.id})

    def _ask(self, method: str, request: Any, kind: Any, call: str, args: dict[str, Any]) -> None:
        """Now and then the request is repeated, whose answer must be the same."""
        self._operations += 1
        again = self.rng.random() < 0.1
        for _ in range(1 + again):
            begun = time.monotonic()
            answer = self._send(method, request, kind, call, args)
            self.history.recorder.end(self._call, "ok", lsn=answer.lsn)
            self.history.updates.append((begun, time.monotonic()))
        self.repeated += again

    def _send(
        self, method: str, request: Any, kind: Any, call: str, args: dict[str, Any],
        timeout: float = 5,
    ) -> Any:  # fmt: skip
        """The answer, whose call the caller ends."""
        data, recorder = request.SerializeToString(), self.history.recorder
        while not self.give_up.is_set():
            channel: Any = self.rng.choice(self._channels)
            operation = f"{self.name} {self._operations}"
            self._call = recorder.begin(self.name, call, operation, **args)
            try:
                sent = channel.unary_unary(UPDATE + method)
                return kind.FromString(sent(data, timeout=timeout, metadata=self._metadata))
            except grpc.RpcError as error:
                code = getattr(error, "code", lambda: None)()
                self.history.failed(method, str(code))
                known = code is not None and code not in UNKNOWN
                recorder.end(self._call, "refused" if known else "unknown", code=str(code))
                if code not in AGAIN:
                    raise
            time.sleep(0.05)
        raise TimeoutError(f"{method} was never answered")
