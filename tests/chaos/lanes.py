"""A light load of two sides of the world, and how long each of its objects takes."""

from __future__ import annotations

import threading
import time

import numpy as np

from ps2stream.client.client import Client
from ps2stream.errors import Ps2StreamError

SIDES = {"west": -90.0, "east": 90.0}  # the longitudes of the probes
LAT = 9.0
RATE = 40.0
"""Probes a second on each side."""


class Churn:
    """Inserts and deletes, ten a second each: objects are matched as of what came last."""

    def __init__(self, target: str) -> None:
        self._client = Client(target, timeout=60)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()
        self._client.close()

    def _run(self) -> None:
        near = (SIDES["west"], LAT, SIDES["west"] + 0.2, LAT + 0.2)
        serial = 0
        while not self._done.wait(0.1):
            serial += 1
            try:
                self._client.insert(f"churn{serial}", "churn", near, session="others")
                self._client.delete(f"churn{serial}")
            except (Ps2StreamError, TimeoutError):
                continue


class Lane:
    """A publisher and a subscriber of one side: (published, delivered) of each probe."""

    def __init__(self, side: str, target: str) -> None:
        self.side = side
        self.sent: dict[str, float] = {}
        self.seen: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._out = Client(target, timeout=60)
        self._in = Client(target, timeout=60)
        self._stream = self._in.subscribe(side)
        for work in (self._publish, self._take):
            threading.Thread(target=work, daemon=True).start()

    def first(self, since: float) -> float | None:
        """When the first probe that was published later was delivered."""
        return min((seen for sent, seen in list(self.seen) if sent >= since), default=None)

    def latencies(self, since: float, until: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Seconds, of the probes that were published then."""
        return np.array([seen - sent for sent, seen in self.seen if since <= sent < until])

    def stop(self) -> None:
        self._done.set()
        self._stream.close()
        self._in.close()
        self._out.close()

    def _publish(self) -> None:
        pool = threading.Semaphore(64)

        def one(name: str) -> None:
            try:
                self._out.publish(
                    [{"id": name, "lon": SIDES[self.side], "lat": LAT, "text": "probe" + self.side}]
                )
            except (Ps2StreamError, TimeoutError, ValueError):
                self.sent.pop(name)
            finally:
                pool.release()

        due = time.monotonic()
        serial = 0
        while not self._done.is_set():
            pool.acquire()
            name = f"{self.side}{serial}"
            serial += 1
            self.sent[name] = time.monotonic()
            threading.Thread(target=one, args=(name,), daemon=True).start()
            due += 1 / RATE
            time.sleep(max(0.0, due - time.monotonic()))

    def _take(self) -> None:
        for match in self._stream:
            if (sent := self.sent.get(match.object_id)) is not None:
                self.seen.append((sent, time.monotonic()))
