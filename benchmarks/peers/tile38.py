"""Tile38 with fences, driven over its own protocol."""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ps2stream.errors import FailedPrecondition
from ps2stream.extras import name_missing_extra
from ps2stream.protocol.frame import F64

START_S = 20.0
LATE_S = 120.0
_CHUNK = 1000
"""Commands that are sent together."""


class Fences(NamedTuple):
    """rect float64[n, 4]: west, south, east, north in degrees; least float64[n]: km/h; lon, lat,
    speed float64[m] of the positions."""

    rect: F64
    least: F64
    lon: F64
    lat: F64
    speed: F64


class FenceServer(NamedTuple):
    """A server with all fences. publish: sends positions [first, last), which it has taken when
    the call returns; pairs: what it told so far, fence * m + position, as it came; pid: its
    process."""

    publish: Callable[[int, int], None]
    pairs: list[int]
    pid: int

    def wait_for(self, count: int) -> None:
        """Waits until so many pairs were told, or LATE_S."""
        end = time.monotonic() + LATE_S
        while len(self.pairs) < count and time.monotonic() < end:
            time.sleep(0.001)


@contextmanager
def serve_tile38(program: Path, world: Fences) -> Iterator[FenceServer]:
    """Runs Tile38 within the block, with all fences and a subscriber. Raises
    FailedPrecondition where it does not start."""
    with name_missing_extra("ps2stream bench peers tile38", "lab"):
        import redis
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        port = _find_port()
        words = [str(program), "-q", "-h", "127.0.0.1", "-p", str(port), "-d", folder]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(_end_process, process)
        client: Any = redis.Redis(port=port, protocol=2)
        _wait_for_start(client, process, redis.RedisError)
        for first in range(0, len(world.least), _CHUNK):
            pipe = client.pipeline(transaction=False)
            for fence in range(first, min(first + _CHUNK, len(world.least))):
                pipe.execute_command(*_set_fence(world, fence))
            pipe.execute()
        listener = client.pubsub(ignore_subscribe_messages=True)
        listener.psubscribe("f*")
        pairs: list[int] = []
        over = threading.Event()
        reading = threading.Thread(target=_read_events, args=(listener, world, pairs, over))
        reading.start()
        for end in (listener.close, reading.join, over.set):
            stack.callback(end)

        def publish(first: int, last: int) -> None:
            pipe = client.pipeline(transaction=False)
            columns = (world.speed, world.lat, world.lon)
            for number, row in enumerate(
                zip(*(c[first:last].tolist() for c in columns), strict=True)
            ):
                speed, lat, lon = row
                pipe.execute_command(
                    "SET",
                    "things",
                    f"p{first + number}",
                    "FIELD",
                    "speed",
                    speed,
                    "POINT",
                    lat,
                    lon,
                )
            pipe.execute()

        yield FenceServer(publish, pairs, process.pid)


def _set_fence(world: Fences, fence: int) -> tuple[Any, ...]:
    west, south, east, north = world.rect[fence].tolist()
    rule = "WHERE", "speed", float(world.least[fence]), "+inf", "FENCE", "DETECT", "inside"
    place = "BOUNDS", south, west, north, east
    return "SETCHAN", f"f{fence}", "WITHIN", "things", *rule, *place


def _read_events(listener: Any, world: Fences, pairs: list[int], over: threading.Event) -> None:
    while not over.is_set():
        message = listener.get_message(timeout=0.2)
        if message is not None and message["type"] == "pmessage":
            told = json.loads(message["data"])
            if told["detect"] == "inside":
                pairs.append(int(told["hook"][1:]) * len(world.lon) + int(told["id"][1:]))


def _find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _wait_for_start(client: Any, process: subprocess.Popen[bytes], errors: type[Exception]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            client.ping()
        except errors:
            time.sleep(0.05)
        else:
            return
    raise FailedPrecondition("tile38-server did not start")


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
