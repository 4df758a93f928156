"""A subscriber that takes everything at once, for benchmarks."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, NamedTuple

import grpc

from ps2stream.v1 import delivery_pb2

OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.use_local_subchannel_pool", 1),  # each channel gets a connection of its own
]


class TakenObject(NamedTuple):
    """An object of a delivery, and the time of its arrival (monotonic s)."""

    id: str
    partition: int
    offset: int
    at: float


class EagerSubscriber:
    """A subscriber of a session with one query.

    `got`: the objects received; `again`: the number received more than once, by their numbers;
    `waits`: seconds from each acknowledgement to the next delivery; `gaps`: pairs that were lost.
    `window`: batches that may be under way, 0: as many as the service allows.
    """

    def __init__(self, target: str, session: str, window: int = 0) -> None:
        self.got: list[TakenObject] = []
        self.waits: list[float] = []
        self.again = 0
        self.gaps = 0
        self._upward: queue.SimpleQueue[Any] = queue.SimpleQueue()
        begin = delivery_pb2.Start(session=session, credit_batches=window)
        self._upward.put(delivery_pb2.DeliverRequest(start=begin))
        self._channel = grpc.insecure_channel(target, options=OPTIONS)
        self._call: Any = self._channel.stream_stream(
            "/ps2stream.v1.PubSub/Deliver",
            request_serializer=delivery_pb2.DeliverRequest.SerializeToString,
        )(iter(self._upward.get, None))
        next(self._call)
        threading.Thread(target=self._read_deliveries, daemon=True).start()

    def close(self) -> None:
        self._upward.put(None)
        self._channel.close()

    def _read_deliveries(self) -> None:
        acked = 0.0
        last = 0
        try:
            for data in self._call:
                now = time.monotonic()
                if acked:
                    self.waits.append(now - acked)
                batch = delivery_pb2.DeliverResponse.FromString(data).batch
                self.gaps += batch.gap.count
                # Pairs that were received before; each pair is an object here.
                known = max(last + 1 - batch.session_seq, 0)
                objects = zip(batch.object_ids, batch.object_offsets, strict=True)
                new = [TakenObject(id_, batch.partition, offset, now) for id_, offset in objects][
                    known:
                ]
                self.again += len(batch.pair_handles) - len(new)
                self.got += new
                last = max(last, batch.session_seq + len(batch.pair_handles) - 1)
                done = delivery_pb2.Credit(batches=1, bytes=len(data), ack=last)
                self._upward.put(delivery_pb2.DeliverRequest(credit=done))
                acked = time.monotonic()
        except grpc.RpcError:
            return
