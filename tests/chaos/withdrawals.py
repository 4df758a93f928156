"""A client that withdraws objects, before and after they are published, and then asks for them by
new queries with retro."""

from __future__ import annotations

import time

from ps2stream.client import requests
from ps2stream.v1 import pubsub_pb2
from tests import naive
from tests.chaos.clients import Updater, end_publication
from tests.chaos.history import as_row

VALID_S = 24 * 3_600
PATIENCE_S = 15.0
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
        query = naive.Query(word, rng.choice(self.sessions), word, None, retro=True)
        self._insert(query, replace=False)
        if rng.random() < 0.9:  # some stay, and nothing that came before comes again
            self._remove(query)

    def _withdraw(self, names: list[str]) -> None:
        self._operations += 1
        request = pubsub_pb2.WithdrawObjectsRequest(ids=names)
        kind = pubsub_pb2.WithdrawObjectsResponse
        self._send("WithdrawObjects", request, kind, "withdraw", {"ids": names}, PATIENCE_S)
        self.history.recorder.end(self._call, "ok")

    def _publish(self, serial: int, names: list[str], word: str) -> None:
        """Publishes the objects, once however often it is sent."""
        self._operations += 1
        until = int((time.time() + VALID_S) * 1000)
        objects = [naive.Obj(0.001 * i, 47.0, word, until=until) for i in range(len(names))]
        rows = [
            {"id": name, "lon": o.lon, "lat": o.lat, "text": o.text, "until": o.until}
            for name, o in zip(names, objects, strict=True)
        ]
        request = requests.publish_request(rows, "durable", False, self.name, serial)
        args = {
            "level": "durable", "producer": self.name, "seq": serial,
            "objects": list(map(as_row, names, objects)),
        }  # fmt: skip
        kind = pubsub_pb2.PublishResponse
        for _ in range(1 + (self.rng.random() < 0.1)):
            answer = self._send("Publish", request, kind, "publish", args, PATIENCE_S)
            end_publication(self.history.recorder, self._call, answer)
