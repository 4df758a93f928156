"""A worker that holds a million queries is killed, then one of each other role: when do they
serve again, and what do the cells of the other workers notice?"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ps2stream.client.client import Client
from ps2stream.errors import Ps2StreamError
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.plan import RoutingPlan, Space
from ps2stream.routing.plan_file import save_plan
from ps2stream.space.grid import Grid
from tests.chaos.host import Actor, Host, send
from tests.chaos.lanes import LAT, SIDES, Churn, Lane
from tests.chaos.run import Say

VOCABULARY = 50_000
CALM_S = 15.0
REST_S = 5.0  # until the next kill
STANDBY_S = 15.0  # the same, where another standby has to start
LIMIT_S = 60.0
SNAPSHOT_S = 120.0
WRITING_S = 3.0  # before a snapshot is there, at most: memory, copy, file


def recovery(
    queries: int, workers: int, say: Say, snapshots: bool = True, standbys: int = 0
) -> dict[str, Any]:
    """All queries are in the western half of the world, which is divided among all workers but
    one; that one has the eastern half. First a western worker is killed, then an actor of each
    other role, one after the other."""
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as folder:
        data = Path(folder) / "data"
        plan = Path(folder) / "plan.json"
        save_plan(halves(workers), plan)
        options = [f"--plan={plan}", f"--standbys={standbys}"]
        options += [*([] if snapshots else ["--snapshot-s=0"])]
        host = Host(
            data, Path(folder) / "log", workers=workers + 1, mergers=1, options=tuple(options)
        )
        pause = None
        with host:
            host.start()
            client = Client(host.targets[0], timeout=600)
            for side, lon in SIDES.items():
                near = (lon - 0.2, LAT - 0.2, lon + 0.2, LAT + 0.2)
                client.insert(side, f"probe{side}", near, session=side)
            began = time.monotonic()
            client.insert_many(some_queries(queries), session="others")
            inserted = time.monotonic() - began
            say(f"{queries} queries after {inserted:.0f} s")
            time.sleep(3)
            lanes = [Lane(side, host.targets[0]) for side in SIDES]
            west, east = lanes
            churn = Churn(host.targets[0])
            time.sleep(CALM_S)
            victim = host.actors()[f"worker-{workers // 2}"]  # that has the western probes
            size = resident(victim)
            written = wait_for_snapshot(data, victim, queries * 9 // 10, say) if snapshots else None
            if written is not None:
                time.sleep(1)
                pause = {
                    "before": spread(west.latencies(written - CALM_S, written - WRITING_S)),
                    "during": spread(west.latencies(written - WRITING_S, written)),
                }
            say(f"kill {victim.name} of {size >> 20} MiB")
            watch = Watch(host, victim)
            worker = watch.until(lambda: west.first(watch.gone))
            say(f"it served again: {worker}")
            rest_s = STANDBY_S if standbys else REST_S
            time.sleep(rest_s)
            before = east.latencies(watch.gone - CALM_S, watch.gone)
            during = east.latencies(watch.gone, watch.gone + (worker["served"] or LIMIT_S))
            roles = {"worker": worker}
            for role in ("dispatcher", "merger", "sequencer"):
                roles[role] = other(host, role, west, client)
                say(f"{role}: {roles[role]}")
                time.sleep(rest_s)
            churn.stop()
            for lane in lanes:
                lane.stop()
            client.close()
            stopped = time.monotonic()
            host.stop()
            begun = time.monotonic()
            host.start()
            ready = time.monotonic()
            again = Lane("west", host.targets[0])
            while (first := again.first(0)) is None and time.monotonic() - ready < LIMIT_S:
                time.sleep(0.02)
            again.stop()
            whole = {
                "stop": round(begun - stopped, 2),
                "ready": round(ready - begun, 2),
                "served": None if first is None else round(first - begun, 2),
            }
            host.stop()
    others = {"before": spread(before), "during": spread(during)}
    p99 = [spread["p99"] for spread in others.values()]
    ratio = round(p99[1] / p99[0], 2) if p99[0] and p99[1] else None
    back = [found["served"] for found in roles.values()]
    return {
        "held": all(s is not None and s <= 10 for s in back) and ratio is not None and ratio <= 2,
        "queries": queries,
        "workers": workers,
        "snapshots": snapshots,
        "standbys": standbys,
        "insert_s": round(inserted, 1),
        "worker_mib": size >> 20,
        "seconds": roles,
        "whole_s": whole,
        "snapshot_ms": pause,
        "others_ms": others,
        "ratio": ratio,
    }


def spread(seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> dict[str, float]:
    """Of latencies: how many, and p50, p99 and the longest in ms; nothing where there are none."""
    if not len(seconds):
        return {"n": 0, "p50": 0.0, "p99": 0.0, "max": 0.0}
    p50, p99, most = (round(float(x) * 1e3, 1) for x in np.percentile(seconds, [50, 99, 100]))
    return {"n": len(seconds), "p50": p50, "p99": p99, "max": most}


def halves(workers: int) -> RoutingPlan:
    """The west to `workers` workers, in stripes, the east to one more."""
    grid = Grid()
    columns, rows = grid.columns(0), grid.rows(0)
    stripe = np.minimum(np.arange(columns) * 2 * workers // columns, workers)
    leaves = tuple(Space(i) for i in range(workers + 1))
    cells = np.tile(stripe, rows).astype(np.uint32)
    return RoutingPlan(workers + 1, Analysis(salt=1), grid, leaves, cells)


def other(host: Host, role: str, lane: Lane, client: Client) -> dict[str, float | None]:
    """Kill an actor of a role; it serves when a probe is delivered, or an insert answered,
    that was published or asked for afterwards."""
    watch = Watch(host, host.actors()[f"{role}-0"])
    if role != "sequencer":
        return watch.until(lambda: lane.first(watch.gone))
    while time.monotonic() - watch.gone < LIMIT_S:
        try:
            client.insert(f"after {watch.gone}", "after", (1.0, 1.0, 2.0, 2.0), session="others")
        except (Ps2StreamError, TimeoutError):
            continue
        break
    answered = time.monotonic()
    return watch.until(lambda: answered)


class Watch:
    """kill -9 of an actor, and when the supervisor noticed and its successor listened."""

    def __init__(self, host: Host, victim: Actor) -> None:
        self._host, self._victim = host, victim
        self._from = host.log.stat().st_size
        self._noticed: float | None = None
        self._listens: float | None = None
        self._done = threading.Event()
        send(victim.pid, 9)
        while Path(f"/proc/{victim.pid}/stat").exists() and not _is_zombie(victim.pid):
            time.sleep(0.001)
        self.gone = time.monotonic()
        threading.Thread(target=self._look, daemon=True).start()

    def until(self, served: Callable[[], float | None]) -> dict[str, float | None]:
        """Seconds from the death to each step; None for what did not come."""
        while (end := served()) is None and time.monotonic() - self.gone < LIMIT_S:
            time.sleep(0.02)
        self._done.set()
        steps = {"noticed": self._noticed, "listens": self._listens, "served": end}
        return {k: None if at is None else round(at - self.gone, 2) for k, at in steps.items()}

    def _look(self) -> None:
        says = f"{self._victim.name} is replaced".encode()
        while not self._done.wait(0.02) and self._listens is None:
            if self._noticed is None:
                if says in self._host.log.read_bytes()[self._from :]:
                    self._noticed = time.monotonic()
            elif self._host.epochs().get(self._victim.name, 0) > self._victim.epoch:
                self._listens = time.monotonic()


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


def wait_for_snapshot(data: Path, victim: Actor, lsn: int, say: Say) -> float | None:
    """Until the worker has written one of this LSN or a later; when that was."""
    manifest = data / "snapshots" / victim.name / "manifest"
    began = time.monotonic()
    while time.monotonic() - began < SNAPSHOT_S:
        time.sleep(0.02)
        if manifest.exists() and (found := json.loads(manifest.read_bytes()[9:])["lsn"]) >= lsn:
            age = time.time() - manifest.stat().st_mtime
            say(f"a snapshot of LSN {found} after {time.monotonic() - began:.0f} s")
            return time.monotonic() - age
    return None


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
