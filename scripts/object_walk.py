"""Counts how often one object moves between rooms, from publish to delivery:
python scripts/object_walk.py [--json | --walk]

A service of one process is profiled while one object that matches one query goes through it. As on
Ray, small messages are handled on the service's loop. A move is a call into a room from another
one, or from outside of the package, such as a thread of gRPC's. Rooms are the actors, client,
service, cluster and store; libraries (language, space, protocol, routing, posts, observability) and
the modules of the package's root belong to whoever calls them; so do kernels, which Numba calls
from nowhere. Timers, which run anyway, are left out, and so is a coroutine that goes on where it
waited.
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from ps2stream import Client
from ps2stream.cluster.dispatcher_edge import DispatcherEdge
from ps2stream.cluster.service import start
from ps2stream.config import Settings

ROOT = Path(__file__).resolve().parent.parent
ACTORS = ("dispatcher", "workers", "merger", "sequencer", "controller", "planner")
INNER = ("client", "service", "cluster", "store")
TIMERS = ("tick", "census", "timers")
"""Threads, by a part of their names, that do what no object has asked for."""
WARM_UP = 9
OBJECTS = 9


class RoomMove(NamedTuple):
    """A call into `room` from `origin`, a room or "outside", in order of time."""

    origin: str
    room: str
    function: str
    file: str
    thread: str


def room_of(path: str) -> str:
    """Returns the room that a source file belongs to, or "" for a library's or a stranger's."""
    try:
        first, *rest = Path(path).resolve().relative_to(ROOT).parts
    except ValueError:
        return ""
    if path.endswith("kernels.py"):
        return ""
    if first in ACTORS:
        return first
    return rest[0] if first == "ps2stream" and len(rest) > 1 and rest[0] in INNER else ""


def is_resumed(frame: FrameType) -> bool:
    """Returns whether a coroutine goes on where it waited, which is no call."""
    code = frame.f_code
    # The argument of Python's RESUME is 0 where a function begins.
    return bool(code.co_flags & inspect.CO_COROUTINE and code.co_code[frame.f_lasti + 1] & 3)


class MoveRecorder:
    """Records moves of all threads; they are kept until taken."""

    def __init__(self) -> None:
        self._moves: list[RoomMove] = []
        self._rooms: dict[str, str] = {}

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or is_resumed(frame):
            return
        room = self._room(frame)
        if not room:
            return
        origin, caller = "outside", frame.f_back
        while caller is not None:
            if found := self._room(caller):
                origin = found
                break
            caller = caller.f_back
        name = threading.current_thread().name
        if origin != room and not any(part in name.lower() for part in TIMERS):
            code = frame.f_code
            file = str(Path(code.co_filename).resolve().relative_to(ROOT))
            self._moves.append(RoomMove(origin, room, code.co_qualname, file, name))

    def _room(self, frame: FrameType) -> str:
        path = frame.f_code.co_filename
        if path not in self._rooms:
            self._rooms[path] = room_of(path)
        return self._rooms[path]

    def take(self) -> list[RoomMove]:
        """Returns the moves since it was last called."""
        moves, self._moves = self._moves, []
        return moves


def walk_one_object() -> list[RoomMove]:
    """Returns the moves of one object: of OBJECTS, the one with the median of moves, since what the
    service does now and then can fall into a walk. Those before them have warmed everything up."""
    recorder = MoveRecorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    post = {"lon": 8.54, "lat": 47.37, "text": "coffee"}
    DispatcherEdge.never_blocks = True
    with (
        tempfile.TemporaryDirectory() as folder,
        start(Settings(runtime="local", port=0, workers=2, data_dir=Path(folder))) as service,
        Client(service.targets[0], timeout=90) as client,
    ):
        client.insert("walk", "coffee", (8.0, 47.0, 9.0, 48.0), session="walk")
        with client.subscribe("walk") as matches:
            received = iter(matches)
            walks: list[list[RoomMove]] = []
            for _ in range(WARM_UP + OBJECTS):
                recorder.take()
                client.publish([post])
                next(received)
                walks.append(recorder.take())
    sys.setprofile(None)
    threading.setprofile(None)
    return sorted(walks[WARM_UP:], key=len)[OBJECTS // 2]


def main(arguments: list[str]) -> None:
    """Prints the count, the moves by pair of rooms, and with --walk each move."""
    moves = walk_one_object()
    pairs = Counter((move.origin, move.room) for move in moves)
    files = len({move.file for move in moves})
    if "--json" in arguments:
        told = {f"{origin} -> {room}": count for (origin, room), count in pairs.items()}
        sys.stdout.write(json.dumps({"moves": len(moves), "files": files, "pairs": told}) + "\n")
        return
    for move in moves if "--walk" in arguments else ():
        sys.stdout.write(f"{move.origin:>10} -> {move.room:10} {move.file}: {move.function}\n")
    for (origin, room), count in pairs.most_common():
        sys.stdout.write(f"{count:5} {origin} -> {room}\n")
    sys.stdout.write(f"{len(moves)} moves between rooms, into {files} files\n")


if __name__ == "__main__":
    main(sys.argv[1:])
