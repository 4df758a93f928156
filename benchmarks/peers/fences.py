"""Fences with rules over moving things: Tile38 and the service, each as a server of its own.

A fence is a rectangle and the least speed that is to be told. Each position is of another thing, so
that a fence tells of it once: `inside` in Tile38, and a match here. Results are compared with brute
force. Both servers write what they accept to disk, and neither waits for it by itself: Tile38 syncs
its log once a second; the service answers at the level `accepted`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.benchmarks.peers.tile38 import Fences, FenceServer, serve_tile38
from ps2stream.client.client import Client
from ps2stream.client.subscription import Subscription
from ps2stream.errors import FailedPrecondition, invalid
from ps2stream.protocol.frame import F64, I64

BATCH = 1024
FASTEST_KM_H = 130.0
_TICKS = os.sysconf("SC_CLK_TCK")


class ServedRun(NamedTuple):
    """What a server did: seconds from the first position to the last expected pair, its processor
    seconds meanwhile, and the pairs that it told, fence * m + position."""

    seconds: float
    cpu_s: float
    pairs: I64


def find_pairs(world: Fences) -> I64:
    """Returns fence * m + position of all pairs by brute force, ascending."""
    found = []
    for fence, ((west, south, east, north), least) in enumerate(
        zip(world.rect.tolist(), world.least.tolist(), strict=True)
    ):
        inside = (world.lon >= west) & (world.lon <= east) & (world.speed >= least)
        inside &= (world.lat >= south) & (world.lat <= north)
        found.append(np.flatnonzero(inside) + fence * len(world.lon))
    return np.concatenate([np.zeros(0, np.int64), *found])


def make_fences(fences: int, positions: int, seed: int = 1) -> Fences:
    """Returns fences of 1 to 10 km around places of a country of 10 by 10 degrees."""
    rng = np.random.default_rng(seed)
    towns = rng.uniform([5.0, 45.0], [15.0, 55.0], (500, 2))
    share = 1 / np.arange(1, 501)

    def draw(count: int, spread: float) -> F64:
        own = towns[rng.choice(500, count, p=share / share.sum())]
        return own + rng.normal(0, spread, (count, 2))

    middle = draw(fences, 0.1)
    half = rng.uniform(0.5, 5.0, fences)[:, None] / np.array([70.0, 111.0])
    low = np.floor((middle - half) * 1000) / 1000 + 0.0005
    high = np.floor((middle + half) * 1000) / 1000 + 0.0005
    lon, lat = np.round(draw(positions, 0.1), 3).T
    return Fences(
        np.concatenate([low, high], 1),
        np.floor(rng.uniform(30, FASTEST_KM_H, fences)) + 0.5,
        lon,
        lat,
        np.floor(rng.uniform(0, FASTEST_KM_H, positions)),
    )


def run_fences(
    program: Path, fences: int = 10_000, positions: int = 50_000, runs: int = 3, seed: int = 1
) -> dict[str, Any]:
    """Returns positions per second, and per processor second of the server, of Tile38 and of the
    service, in turns, JSON-able; verified: the pairs of all runs that were lost, told twice or
    false by brute force. program: tile38-server. Raises FailedPrecondition and InvalidArgument."""
    if not program.is_file():
        raise invalid("code", f"there is no tile38-server at {program}")
    world = make_fences(fences, positions, seed)
    due = find_pairs(world)
    servers: dict[str, Callable[[], AbstractContextManager[FenceServer]]] = {
        "tile38": lambda: serve_tile38(program, world),
        "ps2stream": lambda: serve_fences(world),
    }
    found: dict[str, list[ServedRun]] = {name: [] for name in servers}
    for _ in range(runs):
        for name, serve in servers.items():
            with serve() as server:
                found[name].append(_measure(server, positions, due))
    every = [told for all_told in found.values() for told in all_told]
    figures = {
        name: {
            "positions_per_second": float(np.median([positions / t.seconds for t in all_told])),
            "positions_per_cpu_second": float(np.median([positions / t.cpu_s for t in all_told])),
        }
        for name, all_told in found.items()
    }
    return {
        "settings": {"fences": fences, "positions": positions, "runs": runs, "seed": seed},
        "pairs": len(due),
        **figures,
        "verified": {"wrong": sum(_count_wrong(told.pairs, due) for told in every)},
    }


def _count_wrong(pairs: I64, due: I64) -> int:
    """Returns the number of pairs that are missing, told again, or false."""
    once = np.unique(pairs)
    return len(np.setxor1d(once, due)) + len(pairs) - len(once)


def _measure(server: FenceServer, positions: int, due: I64) -> ServedRun:
    cpu, begun = _read_cpu(server.pid), time.monotonic()
    for first in range(0, positions, BATCH):
        server.publish(first, min(first + BATCH, positions))
    server.wait_for(len(due))
    seconds, spent = time.monotonic() - begun, _read_cpu(server.pid) - cpu
    return ServedRun(seconds, spent, np.sort(np.array(server.pairs, np.int64)))


def _read_cpu(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / _TICKS


@contextmanager
def serve_fences(world: Fences) -> Iterator[FenceServer]:
    """Runs a service of one process within the block, with all fences and a subscriber."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        words = ["--runtime", "local", "--workers", "1", "--port", "0", "--json", "--data-dir"]
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-m", "ps2stream", "serve", *words, folder],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        )
        stack.callback(process.terminate)
        client = stack.enter_context(Client(_read_target(process)))
        client.insert_many(
            (f"f{fence}", f"speed >= {least}", tuple(rect))
            for fence, (least, rect) in enumerate(
                zip(world.least.tolist(), world.rect.tolist(), strict=True)
            )
        )
        pairs: list[int] = []
        matches = stack.enter_context(
            client.subscribe(text=False, position=False, time=False, attributes=False)
        )
        reading = threading.Thread(target=_read_matches, args=(matches, world, pairs))
        reading.start()
        stack.callback(reading.join)
        stack.callback(matches.close)
        ids = np.char.add("p", np.arange(len(world.lon)).astype(str))

        def publish(first: int, last: int) -> None:
            part = slice(first, last)
            columns = {
                "id": pa.array(ids[part]),
                "lon": pa.array(world.lon[part]),
                "lat": pa.array(world.lat[part]),
                "text": pa.array([""] * (last - first)),
                "speed": pa.array(world.speed[part]),
            }
            client.publish(pa.table(columns), level="accepted")

        yield FenceServer(publish, pairs, process.pid)


def _read_target(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        found = json.loads(line)
        if found.get("event") == "ready":
            target: str = found["targets"][0]
            return target
    raise FailedPrecondition("the service did not start")


def _read_matches(matches: Subscription, world: Fences, pairs: list[int]) -> None:
    for batch in matches.batches():
        pairs.extend(
            int(match.query_id[1:]) * len(world.lon) + int(match.object_id[1:]) for match in batch
        )
