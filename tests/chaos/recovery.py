"""A worker that holds a million queries is killed: when does it serve again, and what do the
cells of the other workers notice?"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ps2stream.client import Client
from ps2stream.errors import Ps2StreamError
from tests.chaos.host import Actor, Host, send
from tests.chaos.run import Say

SIDES = {"west": (-180.0, -1.0), "east": (1.0, 180.0)}
VOCABULARY = 50_000
RATE = 40.0
"""Probes a second on each side."""
CALM_S = 15.0
LIMIT_S = 60.0


def recovery(queries: int, say: Say) -> dict[str, Any]:
    """Two workers, each with one half of the world; all queries are in the western one."""
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        host = Host(Path(folder) / "data", Path(folder) / "log", workers=2, mergers=1)
        with host:
            host.start()
            client = Client(host.targets[0], timeout=600)
            for side, (left, right) in SIDES.items():
                client.insert(side, f"probe{side}", (left, -90.0, right, 90.0), session=side)
            began = time.monotonic()
            client.insert_many(some_queries(queries), session="others")
            inserted = time.monotonic() - began
            say(f"{queries} queries after {inserted:.0f} s")
            time.sleep(3)
            lanes = [Lane(side, host.targets[0]) for side in SIDES]
            time.sleep(CALM_S)
            workers = [a for a in host.actors().values() if a.role == "worker"]
            victim = max(workers, key=resident)
            size = resident(victim)
            killed = time.monotonic()
            send(victim.pid, 9)
            say(f"killed {victim.name} of {size >> 20} MiB")
            west, east = lanes
            while (back := west.first(killed)) is None and time.monotonic() - killed < LIMIT_S:
                time.sleep(0.05)
            seconds = (back or time.monotonic()) - killed
            say(f"it served again after {seconds:.1f} s")
            time.sleep(10)
            for lane in lanes:
                lane.stop()
            before = east.latencies(killed - CALM_S, killed)
            during = east.latencies(killed, killed + seconds)
            client.close()
            host.stop()
    p99 = [
        round(float(np.percentile(x, 99)) * 1e3, 1) if len(x) else None for x in (before, during)
    ]
    ratio = round(p99[1] / p99[0], 2) if p99[0] and p99[1] else None
    return {
        "held": back is not None and seconds <= 10 and ratio is not None and ratio <= 2,
        "queries": queries,
        "insert_s": round(inserted, 1),
        "worker_mib": size >> 20,
        "back_s": round(seconds, 2),
        "others_p50_before_ms": round(float(np.median(before)) * 1e3, 1),
        "others_p50_during_ms": round(float(np.median(during)) * 1e3, 1) if len(during) else None,
        "others_p99_before_ms": p99[0],
        "others_p99_during_ms": p99[1],
        "ratio": ratio,
        "samples": [len(before), len(during)],
    }


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
        lon = -90.0 if self.side == "west" else 90.0
        pool = threading.Semaphore(64)

        def one(name: str) -> None:
            try:
                self._out.publish(
                    [{"id": name, "lon": lon, "lat": 9.0, "text": "probe" + self.side}]
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


def some_queries(n: int) -> Iterator[tuple[str, str, tuple[float, float, float, float]]]:
    """Two words each, in small rectangles of the western half."""
    rng = random.Random(7)
    for i in range(n):
        a, b = (int(VOCABULARY * rng.random() ** 2) for _ in range(2))
        west, south = rng.uniform(-180, -2), rng.uniform(-80, 79)
        yield f"q{i}", f"w{a} AND w{b}", (west, south, west + 0.5, south + 0.5)


def resident(actor: Actor) -> int:
    """Bytes in memory."""
    pages = Path(f"/proc/{actor.pid}/statm").read_text().split()[1]
    return int(pages) * 4096
