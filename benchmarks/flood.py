"""Publishers that offer batches by the clock, whether they are answered or not: over streams, or
in calls of their own."""

from __future__ import annotations

import dataclasses
import itertools
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import grpc

from ps2stream.client.failures import rpc_error
from ps2stream.errors import ResourceExhausted
from ps2stream.v1 import pubsub_pb2

WINDOW = 8  # batches under way on a stream, if answers set the pace
CALLS = 16  # under way for each caller, which offers no more beyond that
GRACE_S = 30.0


@dataclasses.dataclass
class FloodOutcome:
    """The outcome of the batches of a flood.

    accepted: (partition, first offset, objects) of each accepted batch. refused: for each refused
    batch, the milliseconds after which to try again. errors: other ends of streams and calls, by
    status. elapsed: the seconds to the last accepted batch.
    """

    seconds: float
    offered: int = 0
    sent: int = 0
    cpu: float = 0.0
    accepted: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    refused: list[int] = dataclasses.field(default_factory=list)
    errors: Counter[str] = dataclasses.field(default_factory=Counter)
    last: float = 0.0
    elapsed: float = 0.0

    def note(
        self,
        answer: pubsub_pb2.PublishStreamResponse | pubsub_pb2.PublishResponse,
        retry_after_ms: int,
    ) -> None:
        """Records the answer to a batch. retry_after_ms: when to try again if it was refused."""
        if answer.accepted:
            self.last = time.monotonic()
            self.accepted.append((answer.partition, answer.first_offset, answer.accepted))
        else:
            self.refused.append(retry_after_ms)


def flood(target: str, pipe: Connection) -> None:
    """Answers each (requests, streams, batches per second or None, seconds, in calls or not) on
    the pipe with the Flood. The requests are encoded, as PublishStreamRequests or
    PublishRequests, which are the same, and sent over and over."""
    while (request := pipe.recv()) is not None:
        pipe.send(_run_flood(target, *request))


def _run_flood(
    target: str,
    requests: list[bytes],
    streams: int,
    rate: float | None,
    seconds: float,
    calls: bool,
) -> FloodOutcome:
    """Offers the requests for `seconds`, at `rate` or as fast as they are answered."""
    found = FloodOutcome(seconds, cpu=-time.process_time())
    channels = [
        grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1), ("n", i)])
        for i in range(min(streams, 8))
    ]
    lines: list[_FloodStream | _FloodCaller] = [
        _FloodCaller(found, channel) if calls else _FloodStream(found, channel, rate is None)
        for channel in itertools.islice(itertools.cycle(channels), streams)
    ]
    began = time.monotonic()
    while (now := time.monotonic()) < began + seconds:
        if rate is None:
            time.sleep(min(0.05, began + seconds - now))
            for line in lines:
                line.fill(requests)
            continue
        due = int((now - began) * rate)
        while found.offered < due:
            lines[found.offered % streams].offer(requests[found.offered % len(requests)])
            found.offered += 1
        time.sleep(0.005)
    for line in lines:
        line.close()
    for line in lines:
        line.join(GRACE_S)
    found.elapsed = max(found.last - began, seconds)
    found.cpu += time.process_time()
    found.sent = sum(line.sent for line in lines)
    for channel in channels:
        channel.close()
    return found


class _FloodStream:
    """A PublishStream. Offered requests wait here; gRPC takes them as far as the service allows."""

    def __init__(self, found: FloodOutcome, channel: grpc.Channel, paced: bool) -> None:
        self._found = found
        self._offered: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(WINDOW)
        self._paced = paced
        self._closed = False
        self.sent = 0
        self._call: Any = channel.stream_stream(
            "/ps2stream.v1.PubSub/PublishStream",
            request_serializer=bytes,
            response_deserializer=pubsub_pb2.PublishStreamResponse.FromString,
        )(self._take_requests())
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()
        self.join = self._reader.join

    def offer(self, request: bytes) -> None:
        self._offered.put(request)

    def fill(self, requests: list[bytes]) -> None:
        """Queues enough requests for a while."""
        while self._offered.qsize() < 64:
            self._offered.put(requests[self._found.offered % len(requests)])
            self._found.offered += 1

    def close(self) -> None:
        """Ends the stream; requests that gRPC has not taken are dropped."""
        self._closed = True
        self._offered.put(None)
        self._room.release()

    def _take_requests(self) -> Iterator[bytes]:
        while not self._closed:
            if self._paced:
                self._room.acquire()
            request = self._offered.get()
            if request is None or self._closed:
                return
            self.sent += 1
            yield request

    def _read_answers(self) -> None:
        found = self._found
        try:
            for answer in self._call:
                if self._paced:
                    self._room.release()
                found.note(answer, answer.retry_after_ms)
        except grpc.RpcError as error:
            found.errors[error.code().name] += 1


class _FloodCaller:
    """A client that makes Publish calls, up to CALLS at a time."""

    def __init__(self, found: FloodOutcome, channel: grpc.Channel) -> None:
        self._found = found
        self._room = threading.Semaphore(CALLS)
        self.sent = 0
        self._call: Any = channel.unary_unary(
            "/ps2stream.v1.PubSub/Publish",
            request_serializer=bytes,
            response_deserializer=pubsub_pb2.PublishResponse.FromString,
        )

    def offer(self, request: bytes) -> bool:
        if not self._room.acquire(blocking=False):
            return False
        self.sent += 1
        self._call.future(request).add_done_callback(self._record_answer)
        return True

    def close(self) -> None:
        """Does nothing: calls under way continue."""

    def fill(self, requests: list[bytes]) -> None:
        """Starts as many calls as may be under way."""
        while self.offer(requests[self.sent % len(requests)]):
            self._found.offered += 1

    def join(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        for _ in range(CALLS):
            self._room.acquire(timeout=max(until - time.monotonic(), 0.0))

    def _record_answer(self, call: Any) -> None:
        error = call.exception()
        if error is None:
            self._found.note(call.result(), 0)
        elif isinstance(known := rpc_error(error), ResourceExhausted):
            self._found.refused.append(known.retry_after_ms)
        else:
            self._found.errors[error.code().name] += 1
        self._room.release()
