"""Made histories: of clients of a service that keeps its promises, in a random order of events.

Calls overlap, answers get lost, some calls are done though nobody is told, streams break and go on.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests import naive
from tests.history.reading import NEVER

Line = dict[str, Any]
WORDS = ["flood", "fire", "storm", "quake", "snow"]
SESSIONS = ["ann", "bob"]
PROCESSES = 4
NANOSECONDS = 1_000_000


@dataclass
class _Live:
    query: naive.Query
    handle: int
    end: int = NEVER


@dataclass
class _Session:
    pairs: list[tuple[int, str, str, tuple[int, int], list[Any]]] = field(default_factory=list)
    received: int = 0
    stream: int = 0
    fresh: bool = True


class _World:
    """What the service does, in the order in which it does it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[tuple[int, int, Line]] = []
        self.lsn = 0
        self.acknowledged: list[tuple[int, int]] = []  # when, LSN
        self.lives: dict[str, list[_Live]] = defaultdict(list)
        self.offsets = [0, 0]
        self.stamps = [0, 0]
        self.sessions = {name: _Session() for name in SESSIONS}
        self.calls = 0
        self.withdrawn: set[str] = set()
        self.valid: list[tuple[str, naive.Obj, tuple[int, int], int]] = []

    def say(self, at: int, line: Line) -> None:
        self.lines.append((at, len(self.lines), line))

    def begin(self, at: int, process: str, call: str, operation: str, args: Line) -> int:
        self.calls += 1
        line = {"begin": self.calls, "process": process, "call": call}
        self.say(at, {**line, "operation": operation or f"call {self.calls}", "args": args})
        return self.calls

    def end(self, at: int, number: int, outcome: str, result: Line) -> None:
        self.say(at, {"end": number, "outcome": outcome, "result": result})

    # --- what the service does -----------------------------------------------------------

    def insert(self, args: Line) -> Line:
        live = [each for each in self.lives[args["id"]] if each.end == NEVER]
        query = naive.Query(
            args["id"], args["session"], args["expression"], args["region"], retro=args["retro"]
        )
        self.lsn += 1
        for each in live:
            assert args["replace"]
            each.end = self.lsn
        self.lives[query.id].append(_Live(query, self.lsn))
        if query.retro:
            for name, obj, place, stamp in self.valid:
                if stamp < self.lsn and name not in self.withdrawn and naive.matches(query, obj):
                    self._match(query, self.lsn, name, obj, place)
        return {"lsn": self.lsn}

    def delete(self, args: Line) -> Line:
        [live] = [each for each in self.lives[args["id"]] if each.end == NEVER]
        self.lsn += 1
        live.end = self.lsn
        return {"lsn": self.lsn}

    def get(self, args: Line) -> Line:
        for each in self.lives[args["id"]]:
            if each.end == NEVER:
                query = each.query
                return {
                    "lsn": each.handle, "session": query.session, "expression": query.expression
                }  # fmt: skip
        return {}

    def withdraw(self, args: Line) -> Line:
        known = {name for name, *_ in self.valid}
        self.withdrawn |= known & set(args["ids"])
        return {}

    def publish(self, args: Line, begun: int) -> Line:
        partition = self.rng.randrange(2)
        floor = max((lsn for at, lsn in self.acknowledged if at < begun), default=0)
        stamp = self.rng.randint(max(floor, self.stamps[partition]), self.lsn)
        self.stamps[partition] = stamp
        first = self.offsets[partition]
        self.offsets[partition] += len(args["objects"])
        for i, (name, lon, lat, text, attributes, until) in enumerate(args["objects"]):
            obj, place = naive.Obj(lon, lat, text, attributes, until), (partition, first + i)
            if until:
                self.valid.append((name, obj, place, stamp))
            for versions in self.lives.values():
                for each in versions:
                    if each.handle <= stamp < each.end and naive.matches(each.query, obj):
                        self._match(each.query, each.handle, name, obj, place)
            for versions in self.lives.values():
                for each in versions:
                    # It was on its way while the query came.
                    retro = each.query.retro and until and stamp < each.handle
                    if retro and naive.matches(each.query, obj):
                        self._match(each.query, each.handle, name, obj, place)
        return {
            "lsn": stamp, "partition": partition, "offset": first, "accepted": len(args["objects"])
        }  # fmt: skip

    def _match(
        self, query: naive.Query, handle: int, name: str, obj: naive.Obj, place: tuple[int, int]
    ) -> None:
        row = [name, place[1], obj.lon, obj.lat, obj.text, dict(obj.attributes)]
        self.sessions[query.session].pairs.append((handle, query.id, name, place, row))

    # --- what sessions receive -----------------------------------------------------------

    def deliver(self, at: int, name: str, is_last: bool = False) -> None:
        session, rng = self.sessions[name], self.rng
        if session.fresh or rng.random() < 0.1:
            after = rng.choice([session.received, session.received, 0])
            args = {"session": name, "after": after}
            session.stream = self.begin(at, f"subscriber {name}", "deliver", "", args)
            self.end(at, session.stream, "ok", {})
            if not after:
                session.received = rng.randint(session.received // 2, session.received)
            session.fresh = False
        while session.received < len(session.pairs):
            rest = session.pairs[session.received :]
            count = len(rest) if is_last else rng.randint(1, len(rest))
            same = [p for p in rest[:count] if p[3][0] == rest[0][3][0]]
            if [p[3][0] for p in rest[: len(same)]] != [rest[0][3][0]] * len(same):
                same = rest[:1]
            self.say(
                at,
                {
                    "session": name, "stream": session.stream, "first": session.received + 1,
                    "partition": rest[0][3][0],
                    "pairs": [[h, q, i] for i, (h, q, *_) in enumerate(same)],
                    "objects": [row for *_, row in same],
                },
            )  # fmt: skip
            session.received += len(same)
            if not is_last:
                return


def make(seed: int, steps: int = 120) -> list[Line]:
    """The lines of a history of so many operations."""
    rng = random.Random(seed)
    world = _World(rng)
    events: list[tuple[int, int, Callable[[int], None]]] = []
    for process in range(PROCESSES):
        _plan(world, rng, f"client {process}", steps // PROCESSES, events)
    end = max(at for at, *_ in events) + 100
    for at in range(50, end, 60):
        for name in SESSIONS:
            events.append((at, len(events), partial(world.deliver, name=name)))
    for at, _, act in sorted(events, key=lambda each: each[:2]):
        act(at)
    for name in SESSIONS:
        world.deliver(end, name)
        world.deliver(end, name, is_last=True)
    world.say(end + 1, {"settled": True})
    head = {"at": 0, "history": 1, "clock": "made", "skew_ns": 0, "wall_ms": 0}
    lines = sorted(world.lines, key=lambda each: each[:2])
    return [head, *({"at": at * NANOSECONDS, **line} for at, _, line in lines)]


def _plan(
    world: _World,
    rng: random.Random,
    process: str,
    steps: int,
    events: list[tuple[int, int, Callable[[int], None]]],
) -> None:
    """A client that makes one call after the other, each until it is answered, or not at all."""
    live: list[str] = []
    now = rng.randrange(50)

    def at(when: int, act: Callable[[int], None]) -> None:
        events.append((when, len(events), act))

    for step in range(steps):
        call, args = _draw(rng, process, step, live)
        operation = f"{process} {step}"
        outcome = "refused" if call == "publish" and rng.random() < 0.05 else "ok"
        lost = rng.random() < 0.1
        if lost and args.get("id") in live:
            live.remove(args["id"])  # nobody knows what it is now
        done = rng.random() < 0.7 if lost else outcome == "ok"
        repeats = rng.choice([0, 0, 0, 1, 2]) if not lost and outcome == "ok" else 0
        box: dict[str, Any] = {}
        begun = now

        def begin(when: int, call: str = call, args: Line = args, operation: str = operation,
                  box: dict[str, Any] = box) -> None:  # fmt: skip
            box["number"] = world.begin(when, process, call, operation, args)

        def act(when: int, call: str = call, args: Line = args, box: dict[str, Any] = box,
                begun: int = begun) -> None:  # fmt: skip
            if "result" not in box or call == "get":
                work = getattr(world, call)
                box["result"] = work(args, begun) if call == "publish" else work(args)

        def end(when: int, outcome: str, call: str = call, box: dict[str, Any] = box) -> None:
            result = box["result"] if outcome == "ok" else {}
            if outcome == "ok" and call in ("insert", "delete"):
                world.acknowledged.append((when, result["lsn"]))
            world.end(when, box["number"], outcome, result)

        at(begun, begin)
        for i in range(repeats + 1):
            took, wait = rng.randint(1, 30), rng.randint(1, 30)
            if done:
                late = rng.randint(0, 200) if lost else 0
                at(now + took + late, act)
            now += took + wait
            if lost:
                if rng.random() < 0.5:
                    at(now, partial(end, outcome="unknown"))
            elif i < repeats and rng.random() < 0.5:
                at(now, partial(end, outcome="unknown"))
            else:
                at(now, partial(end, outcome=outcome))
            now += rng.randint(1, 10)
            if i < repeats:
                at(now, begin)
        now += rng.randint(1, 60)


def _draw(rng: random.Random, process: str, step: int, live: list[str]) -> tuple[str, Line]:
    kind = rng.choice(
        ["insert", "insert", "replace", "delete", "get", *["publish"] * 4, "withdraw"]
    )
    name = rng.choice(live) if live else ""
    if kind == "insert" or (not live and kind in ("replace", "delete", "get")):
        name = f"{process} q{step}"
        live.append(name)
        return "insert", _draw_query(rng, name, False)
    if kind == "replace":
        return "insert", _draw_query(rng, name, True)
    if kind == "delete":
        live.remove(name)
        return "delete", {"id": name}
    if kind == "get":
        return "get", {"id": name}
    if kind == "withdraw":
        return "withdraw", {"ids": [f"{process} o{rng.randrange(step + 1)}.0"]}
    objects = [
        [f"{process} o{step}.{i}", float(rng.randint(-90, 90)), float(rng.randint(-45, 45)),
         " ".join(rng.sample(WORDS, 2)), {"severity": i}, rng.choice([0, 1 << 50])]
        for i in range(rng.randint(1, 3))
    ]  # fmt: skip
    level = rng.choice(["durable", "durable", "accepted"])
    return "publish", {"level": level, "producer": process, "seq": step, "objects": objects}


def _draw_query(rng: random.Random, name: str, replace: bool) -> Line:
    region = None
    if rng.random() < 0.3:
        region = {
            "type": "Rect", "lon_min": -60.0, "lat_min": -40.0, "lon_max": 60.0, "lat_max": 40.0
        }  # fmt: skip
    return {
        "id": name, "session": rng.choice(SESSIONS), "expression": rng.choice(WORDS),
        "region": region, "replace": replace, "retro": rng.random() < 0.2,
    }  # fmt: skip
