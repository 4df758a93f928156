"""The pipeline benchmark's publisher and updater, in a process of its own."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.benchmarks.workload import PostColumns
from ps2stream.client.caller import PUBSUB
from ps2stream.client.channel import take_requests
from ps2stream.client.joining import RequestJoiner
from ps2stream.client.window import SendWindow
from ps2stream.protocol.arrow_ipc import to_ipc
from ps2stream.protocol.frame import F64, I64, column_to_strings
from ps2stream.v1 import object_pb2, pubsub_pb2, query_pb2

LOAD_ROWS = 8192
EVERY = 4  # object batches between two update batches
ANSWER_S = 120  # for all answers of a phase, repeats of what was refused among them
UPDATED = 1024  # objects a batch; of smaller ones as many more lie between two update batches
SESSION = "bench"
NEVER = np.iinfo(np.int64).max


@dataclasses.dataclass(frozen=True)
class PublisherJob:
    """The work of a publisher: posts over and over; the first `start` queries, then the later
    ones, of which query i is deleted once `death[i]` were inserted after the start. level: of
    publication, in lower case."""

    access: ServiceAccess
    posts: PostColumns
    expressions: list[str]
    rect: F64
    death: I64
    start: int
    batch: int
    level: str


@dataclasses.dataclass
class PublishInterval:
    """A phase of publishing. Times are in monotonic seconds; offsets and lsns are those of the
    accepted batches, in order; rows the first post of each; born and died the LSN of each query's
    insert and delete."""

    began: float
    elapsed: float = 0.0
    cpu: float = 0.0
    objects: int = 0
    inserts: int = 0
    deletes: int = 0
    size: int = 0
    offsets: Any = None
    lsns: Any = None
    rows: Any = None
    intended: Any = None
    born: Any = None
    died: Any = None

    @property
    def tuples(self) -> int:
        return self.objects + self.inserts + self.deletes

    @property
    def first_offset(self) -> int:
        return int(self.offsets[0]) if len(self.offsets) else 0

    def sampled(self, every: int) -> list[tuple[int, int, int]]:
        """Returns (offset, LSN, post) of the objects whose offset `every` divides."""
        found = []
        for first, lsn, row in zip(
            self.offsets.tolist(), self.lsns.tolist(), self.rows.tolist(), strict=True
        ):
            offset = first + -first % every
            if offset < first + self.size:
                found.append((offset, lsn, row + offset - first))
        return found


class _RequestStream:
    """A bidirectional stream with as many requests unanswered as the clients have with
    `in_flight=None`, and joined as they join them."""

    def __init__(self, channel: grpc.Channel, name: str, kind: Any, on: Callable[[Any], None]):
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._joiner = RequestJoiner()
        self._window = SendWindow()
        self._change = threading.Condition()
        self._on = on
        call: Any = channel.stream_stream(f"{PUBSUB}{name}", None, kind.FromString)
        self._answers = call(take_requests(self._requests, self._joiner))
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()

    def send(self, request: bytes) -> None:
        with self._change:
            while self._window.is_full:
                self._change.wait()
            self._window.note_sent(len(request))
        self._requests.put(request)

    def drain(self) -> None:
        with self._change:
            if not self._change.wait_for(lambda: not len(self._window), ANSWER_S):
                raise TimeoutError(f"the service did not answer requests for {ANSWER_S} s")

    def close(self) -> None:
        """Ends the stream before the channel closes: an open stream would end with an error."""
        self._requests.put(None)
        self._reader.join(10)

    def _read_answers(self) -> None:
        for first in self._answers:
            answers = (first, *getattr(first, "following", ()))
            self._joiner.is_allowed = getattr(first, "takes_following", False)
            for answer in answers:
                self._on(answer)
            with self._change:
                for _ in answers:
                    self._window.note_answered()
                self._change.notify_all()


def make_insert_request(job: PublisherJob, rows: range) -> pubsub_pb2.InsertQueriesRequest:
    """Returns the request that inserts these queries."""
    rect = job.rect[rows.start : rows.stop]
    columns = {
        "id": pa.array([f"q{i}" for i in rows]),
        "expression": pa.array(job.expressions[rows.start : rows.stop]),
        **{
            name: pa.array(np.ascontiguousarray(rect[:, i]))
            for i, name in enumerate(("lon_min", "lat_min", "lon_max", "lat_max"))
        },
    }
    batch = query_pb2.QueryBatch(arrow=to_ipc(pa.RecordBatch.from_pydict(columns)), session=SESSION)
    return pubsub_pb2.InsertQueriesRequest(batch=batch)


def make_publish_request(
    job: PublisherJob, texts: pa.Array, first: int, size: int
) -> pubsub_pb2.PublishStreamRequest:
    """Returns the request that publishes posts first..first + size - 1, whose texts are `texts` of
    all posts."""
    part = slice(first, first + size)
    columns = {
        "id": pa.array([str(i) for i in range(first, first + size)]),
        "lon": pa.array(job.posts.lon[part]),
        "lat": pa.array(job.posts.lat[part]),
        "text": texts[first : first + size],
    }
    batch = object_pb2.ObjectBatch(arrow=to_ipc(pa.RecordBatch.from_pydict(columns)))
    level = object_pb2.PublishLevel.Value(f"PUBLISH_LEVEL_{job.level.upper()}")
    return pubsub_pb2.PublishStreamRequest(batch=batch, level=level, join_answers=True)


class BenchmarkPublisher:
    """A client that publishes posts, and inserts and deletes queries, over three streams."""

    def __init__(self, job: PublisherJob, channel: grpc.Channel) -> None:
        self.job = job
        self._inserting: queue.SimpleQueue[range] = queue.SimpleQueue()
        self._deleting: queue.SimpleQueue[I64] = queue.SimpleQueue()
        n = len(job.expressions)
        self.born = np.zeros(n, np.int64)
        self.died = np.full(n, NEVER, np.int64)
        self._publishing: queue.SimpleQueue[tuple[int, int, int]] = queue.SimpleQueue()
        self._refused: queue.SimpleQueue[tuple[int, int, int]] = queue.SimpleQueue()
        self._retry_s = 0.0  # by the last refusal
        self.acks: list[tuple[int, int, int]] = []
        inserted, deleted = pubsub_pb2.InsertQueriesResponse, pubsub_pb2.DeleteQueriesResponse
        self.inserts = _RequestStream(channel, "InsertQueries", inserted, self._record_inserts)
        self.deletes = _RequestStream(channel, "DeleteQueries", deleted, self._record_deletes)
        self.objects = _RequestStream(
            channel, "PublishStream", pubsub_pb2.PublishStreamResponse, self._record_publication
        )
        self._order = np.argsort(job.death, kind="stable")
        self._due = job.death[self._order]
        self._next_delete = 0
        self.next = 0
        self._texts = pa.array(column_to_strings(job.posts.text_off, job.posts.text))
        self._batches: dict[tuple[int, int], bytes] = {}

    def insert_first(self) -> None:
        """Inserts the queries that are live at the start, and waits until all are answered."""
        while self.next < self.job.start:
            self.insert(min(self.next + LOAD_ROWS, self.job.start))
        self.inserts.drain()

    def close(self) -> None:
        """Ends the streams."""
        for stream in (self.objects, self.inserts, self.deletes):
            stream.close()

    def insert(self, last: int) -> None:
        """Inserts the queries up to `last`."""
        rows = range(self.next, min(last, len(self.job.expressions)))
        self.next = rows.stop
        if not rows:
            return
        request = make_insert_request(self.job, rows)
        self._inserting.put(rows)
        self.inserts.send(request.SerializeToString())

    def delete(self) -> None:
        """Deletes the queries that are due and whose insert has been answered."""
        due = int(np.searchsorted(self._due, self.next - self.job.start, "right"))
        rows = self._order[self._next_delete : due]
        rows = rows[self.born[rows] > 0]
        self._next_delete = due
        if len(rows):
            self._deleting.put(rows)
            ids = [f"q{i}" for i in rows.tolist()]
            request = pubsub_pb2.DeleteQueriesRequest(ids=ids)
            self.deletes.send(request.SerializeToString())

    def publish(self, first: int, size: int, number: int = 0) -> None:
        """Publishes posts first..first + size - 1, encoded once and sent over and over, as the
        batch of this number of a phase."""
        request = self._encode_batch(first, size)
        self._publishing.put((first, size, number))
        self.objects.send(request)

    def _repeat_refused(self) -> None:
        """Publishes again what the service refused because it has enough to do."""
        if not self._refused.empty():
            time.sleep(self._retry_s)
        while not self._refused.empty():
            self.publish(*self._refused.get())

    def _drain(self) -> None:
        """Waits until all that was sent is answered, and what was published is accepted."""
        self.objects.drain()
        deadline = time.monotonic() + ANSWER_S
        while not self._refused.empty():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the service refused batches for {ANSWER_S} s")
            self._repeat_refused()
            self.objects.drain()
        for stream in (self.inserts, self.deletes):
            stream.drain()

    def phase(
        self,
        seconds: float,
        rate: float | None,
        size: int,
        stopped: Callable[[], bool] = lambda: False,
    ) -> PublishInterval:
        """Sends for `seconds`, or until stopped, at `rate` tuples per second or as fast as
        answers come."""
        for first in range(0, len(self.job.posts.lon) - size + 1, size):
            self._encode_batch(first, size)  # outside the measured time
        self.acks.clear()
        interval = PublishInterval(time.monotonic(), -time.process_time(), size=size)
        interval.cpu = -time.process_time()
        pause = size * 1.2 / rate if rate else 0.0
        per_batch = size / 10
        every = EVERY * max(UPDATED // size, 1)
        intended: list[float] = []
        rows: list[int] = []
        posts = len(self.job.posts.lon) - len(self.job.posts.lon) % size
        base, k = self.next, 0
        first_delete = self._next_delete
        while (moment := interval.began + k * pause if rate else time.monotonic()) < (
            interval.began + seconds
        ) and not stopped():
            if (wait := moment - time.monotonic()) > 0:
                time.sleep(wait)
            intended.append(moment)
            rows.append(k * size % posts)
            self._repeat_refused()
            self.publish(rows[-1], size, k)
            k += 1
            if k % every == 0:
                self.insert(base + int(k * per_batch))
                self.delete()
        self._drain()
        interval.elapsed = time.monotonic() - interval.began
        interval.cpu += time.process_time()
        interval.objects = k * size
        interval.inserts = self.next - base
        interval.deletes = self._next_delete - first_delete
        acks = np.array(sorted(self.acks), np.int64).reshape(-1, 3)  # what was refused comes later
        interval.offsets, interval.lsns, number = acks.T
        interval.rows = np.array(rows, np.int64)[number]
        interval.intended = np.array(intended)[number]
        interval.born, interval.died = self.born.copy(), self.died.copy()
        return interval

    def _encode_batch(self, first: int, size: int) -> bytes:
        """Returns the request that publishes a batch, made at the first call."""
        if (first, size) not in self._batches:
            made = make_publish_request(self.job, self._texts, first, size)
            self._batches[first, size] = made.SerializeToString()
        return self._batches[first, size]

    def _record_inserts(self, answer: pubsub_pb2.InsertQueriesResponse) -> None:
        rows = self._inserting.get()
        if answer.errors:
            raise ValueError(f"an insert was refused: {answer.errors[0]}")
        self.born[rows.start : rows.stop] = answer.lsns

    def _record_deletes(self, answer: pubsub_pb2.DeleteQueriesResponse) -> None:
        rows = self._deleting.get()
        if answer.errors:
            raise ValueError(f"a delete was refused: {answer.errors[0]}")
        self.died[rows] = answer.lsns

    def _record_publication(self, answer: pubsub_pb2.PublishStreamResponse) -> None:
        sent = self._publishing.get()
        if answer.accepted:
            self.acks.append((answer.first_offset, answer.lsn, sent[2]))
        elif answer.retry_after_ms:
            self._retry_s = answer.retry_after_ms / 1000
            self._refused.put(sent)
        else:
            raise ValueError(f"a batch was refused: {answer}")


def publish(job: PublisherJob, pipe: Connection) -> None:
    """Inserts the queries, then runs the phases that the pipe requests: (seconds, rate, size). A
    phase of infinite seconds ends with the next message on the pipe."""
    with job.access.open_channel() as channel:
        publisher = BenchmarkPublisher(job, channel)
        loading = PublishInterval(time.monotonic())
        publisher.insert_first()
        loading.elapsed = time.monotonic() - loading.began
        pipe.send(loading)
        while (phase := pipe.recv()) is not None:
            seconds, rate, size = phase
            endless = seconds == float("inf")
            stopped = pipe.poll if endless else lambda: False
            interval = publisher.phase(seconds, rate, size, stopped)
            if endless:
                pipe.recv()
            pipe.send(interval)
        publisher.close()
