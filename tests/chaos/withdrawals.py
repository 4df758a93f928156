"""A client that withdraws objects, before and after they are published, and then asks for them by
new queries with retro."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc

from ps2stream.client import requests
from ps2stream.v1 import pubsub_pb2
from tests import naive
from tests.chaos.clients import AGAIN, UPDATE, Updater
from tests.chaos.history import Batch

VALID_S = 24 * 3_600
KINDS = ("kept", "taken", "early")
"""Objects of a round: not withdrawn, withdrawn once they are published, and before that."""


class Withdrawer(Updater):
    """Each call goes to any dispatcher, again and again until it is answered, before the next one.
    So of each object it is certain whether a query meets it."""

    def setup(self) -> None:
        """Needs nothing."""

    def work(self) -> None:
        serial = 0
        while not self.history.stop.is_set():
            serial += 1
            self._play(serial)
            time.sleep(self.rng.expovariate(1 / self.pause))

    def _play(self, serial: int) -> None:
        rng, word = self.rng, f"{self.name}x{serial}"
        names = [f"{kind}.{word}.{i}" for kind in KINDS for i in range(rng.randint(1, 3))]
        taken = [name for name in names if name.startswith("taken")]
        self._withdraw([name for name in names if name.startswith("early")])
        self._publish(serial, names, word)
        self._withdraw(taken)
        self.history.withdrawn.update(taken)
        query = naive.Query(word, rng.choice(self.sessions), word, None, retro=True)
        change = self._begin(query)
        change.inserted = self._insert(query, replace=False)
        if rng.random() < 0.9:  # some stay, and nothing that came before comes again
            self._remove(change)

    def _withdraw(self, names: list[str]) -> None:
        request = pubsub_pb2.WithdrawObjectsRequest(ids=names)
        self._send("WithdrawObjects", request, pubsub_pb2.WithdrawObjectsResponse)

    def _publish(self, serial: int, names: list[str], word: str) -> None:
        """Publishes the objects, once however often it is sent."""
        until = int((time.time() + VALID_S) * 1000)
        objects = [naive.Obj(0.001 * i, 47.0, word, until=until) for i in range(len(names))]
        batch = Batch(names, objects, 0, time.monotonic(), 0)
        self.history.publishes(batch)
        rows = [
            {"id": name, "lon": o.lon, "lat": o.lat, "text": o.text, "until": o.until}
            for name, o in zip(names, objects, strict=True)
        ]
        request = requests.publish_request(rows, "durable", False, self.name, serial)
        answer = self._send("Publish", request, pubsub_pb2.PublishResponse)
        batch.partition, batch.offset, batch.lsn = (
            answer.partition, answer.first_offset, answer.lsn
        )  # fmt: skip

    def _send(self, method: str, request: Any, kind: Any) -> Any:
        data = request.SerializeToString()
        while not self.give_up.is_set():
            channel: Any = self.rng.choice(self._channels)
            call: Callable[..., bytes] = channel.unary_unary(UPDATE + method)
            try:
                return kind.FromString(call(data, timeout=15, metadata=self._metadata))
            except grpc.RpcError as error:
                code = getattr(error, "code", lambda: None)()
                self.history.failed(method, str(code))
                if code not in AGAIN:
                    raise
            time.sleep(0.05)
        raise TimeoutError(f"{method} was never answered")
