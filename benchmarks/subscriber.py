"""The pipeline benchmark's subscriber: one Deliver stream, in a process of its own."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from ps2stream.benchmarks.publisher import PublishInterval
from ps2stream.benchmarks.service_access import ServiceAccess
from ps2stream.protocol.frame import F64
from ps2stream.v1 import delivery_pb2 as pb

CREDIT_BATCHES, CREDIT_BYTES = 4096, 8 << 20


@dataclasses.dataclass
class DeliveryReceipt:
    """The deliveries since the last receipt. offsets: of the delivered objects, by arrival; at:
    when each delivery arrived (monotonic s); sample: handles of the sampled objects."""

    pairs: int = 0
    gaps: int = 0
    cpu: float = 0.0
    last: float = 0.0
    offsets: list[Any] = dataclasses.field(default_factory=list)
    at: list[float] = dataclasses.field(default_factory=list)
    sample: dict[int, list[int]] = dataclasses.field(default_factory=dict)

    def span(self, began: float) -> float:
        """Returns the seconds from `began` to the last arrival."""
        return max(self.last - began, 1e-9)

    def add(self, later: DeliveryReceipt) -> None:
        """Adds the next receipt of the same subscriber."""
        self.pairs += later.pairs
        self.gaps += later.gaps
        self.cpu += later.cpu
        self.last = max(self.last, later.last)
        self.offsets += later.offsets
        self.at += later.at
        for offset, handles in later.sample.items():
            self.sample.setdefault(offset, []).extend(handles)

    def sent(self, interval: PublishInterval) -> F64:
        """Returns the intended time of sending the batch of each delivered object, monotonic s."""
        if not self.offsets:
            return np.zeros(0)
        batch = np.searchsorted(interval.offsets, np.concatenate(self.offsets), "right") - 1
        sent: F64 = interval.intended[batch]
        return sent

    def latency(self, interval: PublishInterval) -> F64:
        """Returns the ms from the intended sending of its batch to the arrival of each object."""
        at = np.repeat(self.at, [len(o) for o in self.offsets])
        late: F64 = (at - self.sent(interval)) * 1e3
        return late


def subscribe(access: ServiceAccess, session: str, pipe: Connection, every: int) -> None:
    """Receives until the pipe holds None; any other message on it requests the receipt so far."""
    upward: queue.SimpleQueue[pb.DeliverRequest | None] = queue.SimpleQueue()
    fields = pb.DeliverFields(text=False)
    begin = pb.Start(
        session=session, fields=fields, credit_batches=CREDIT_BATCHES, credit_bytes=CREDIT_BYTES
    )
    upward.put(pb.DeliverRequest(start=begin))
    lock = threading.Lock()
    held = [DeliveryReceipt(cpu=-time.process_time())]

    def upstream() -> Iterator[pb.DeliverRequest]:
        while (message := upward.get()) is not None:
            yield message

    def answer() -> None:
        while pipe.recv() is not None:
            with lock:
                receipt, held[0] = held[0], DeliveryReceipt(cpu=-time.process_time())
            receipt.cpu += time.process_time()
            pipe.send(receipt)
        upward.put(None)

    with access.open_channel() as channel:
        stream: Any = channel.stream_stream(
            "/ps2stream.v1.PubSub/Deliver",
            request_serializer=pb.DeliverRequest.SerializeToString,
        )
        for data in stream(upstream()):
            now = time.monotonic()
            event = pb.DeliverResponse.FromString(data)
            if event.HasField("started"):
                pipe.send("started")
                threading.Thread(target=answer, daemon=True).start()
                continue
            batch = event.batch
            offsets = np.array(batch.object_offsets, np.int64)
            chosen = np.flatnonzero(offsets % every == 0)
            with lock:
                receipt = held[0]
                receipt.pairs += len(batch.pair_handles)
                receipt.gaps += batch.gap.count
                receipt.last = now
                receipt.offsets.append(offsets)
                receipt.at.append(now)
                for i in chosen.tolist():
                    mine = np.flatnonzero(np.array(batch.pair_objects) == i)
                    handles = np.array(batch.pair_handles, np.int64)[mine].tolist()
                    receipt.sample.setdefault(int(offsets[i]), []).extend(handles)
            done = pb.Credit(batches=1, bytes=len(data), ack=batch.session_seq)
            upward.put(pb.DeliverRequest(credit=done))
