"""Publishers that offer what the clock says, whether they are answered or not."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import grpc

from ps2stream.v1 import pubsub_pb2

WINDOW = 8  # batches under way on a stream, when it is answers that set the pace
GRACE_S = 30.0


@dataclasses.dataclass
class Flood:
    """What became of the batches. accepted: (partition, first offset, objects) of each that
    was; errors: other ends of streams, by status."""

    seconds: float
    offered: int = 0
    sent: int = 0
    refused: int = 0
    without_retry: int = 0
    cpu: float = 0.0
    accepted: list[tuple[int, int, int]] = dataclasses.field(default_factory=list)
    errors: Counter[str] = dataclasses.field(default_factory=Counter)
    elapsed: float = 0.0


def flood(target: str, pipe: Connection) -> None:
    """For each (requests, streams, batches a second or None, seconds) on the pipe, the Flood.
    The requests are encoded PublishStreamRequests, sent over and over."""
    while (asked := pipe.recv()) is not None:
        pipe.send(_run(target, *asked))


def _run(
    target: str, requests: list[bytes], streams: int, rate: float | None, seconds: float
) -> Flood:
    found = Flood(seconds, cpu=-time.process_time())
    channels = [
        grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1), ("n", i)])
        for i in range(min(streams, 8))
    ]
    lines = [_Line(found, channels[i % len(channels)], rate is None) for i in range(streams)]
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
        line.reader.join(GRACE_S)
    found.elapsed = time.monotonic() - began
    found.cpu += time.process_time()
    found.sent = sum(line.sent for line in lines)
    for channel in channels:
        channel.close()
    return found


class _Line:
    """One PublishStream. What is offered waits here; gRPC takes it as far as the service
    lets it."""

    def __init__(self, found: Flood, channel: grpc.Channel, paced: bool) -> None:
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
        )(self._requests())
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def offer(self, request: bytes) -> None:
        self._offered.put(request)

    def fill(self, requests: list[bytes]) -> None:
        """Enough for a while."""
        while self._offered.qsize() < 64:
            self._offered.put(requests[self._found.offered % len(requests)])
            self._found.offered += 1

    def close(self) -> None:
        """What was not taken yet stays."""
        self._closed = True
        self._offered.put(None)
        self._room.release()

    def _requests(self) -> Iterator[bytes]:
        while not self._closed:
            if self._paced:
                self._room.acquire()
            request = self._offered.get()
            if request is None or self._closed:
                return
            self.sent += 1
            yield request

    def _read(self) -> None:
        found = self._found
        try:
            for answer in self._call:
                if self._paced:
                    self._room.release()
                if answer.accepted:
                    at = (answer.partition, answer.first_offset, answer.accepted)
                    found.accepted.append(at)
                else:
                    found.refused += 1
                    found.without_retry += not answer.retry_after_ms
        except grpc.RpcError as error:
            found.errors[error.code().name] += 1
