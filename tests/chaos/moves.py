"""Moves of the service to other plans, and a kill at a chosen step of one.

A step is over in a moment. Whom it waits for is stopped meanwhile: queries are loaded until
every worker has said that it holds its own; old batches are under way until every merger has
answered.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from ps2stream.client.answers import MigrationInfo
from ps2stream.client.client import Client
from ps2stream.errors import FailedPrecondition, Ps2StreamError
from tests.chaos.host import Host, send

HOLDERS = {"transferring": "worker", "retiring": "merger"}
ROLES = ("source", "target", "sequencer", "controller", "dispatcher", "merger")
LEAST, MOST = 2, 4  # workers
FAILURES = (Ps2StreamError, TimeoutError)
FILL_S = 0.5
"""Until batches are under way that whoever is stopped has not answered."""
WAIT_S = 15.0
"""For a step, or for a worker to start."""
ENDED_S = 60.0
"""For a move to end."""
TRIES = 3


class Change(NamedTuple):
    """`begin` asks for it; some of what `source` has goes to `target`, which is one of
    `workers` after it."""

    name: str
    source: int
    target: int
    workers: int
    begin: Callable[[Client], Any]


def exchanged(plan: bytes, a: int, b: int) -> bytes:
    """The plan that follows, with two workers in each other's place."""
    body = json.loads(plan)
    other = {a: b, b: a}
    for leaf in body["leaves"]:
        if "worker" in leaf:
            leaf["worker"] = other.get(leaf["worker"], leaf["worker"])
            continue
        leaf["terms"] = {term: other.get(w, w) for term, w in leaf["terms"].items()}
        if "workers" in leaf:
            leaf["workers"] = [other.get(w, w) for w in leaf["workers"]]
        else:
            leaf["to"] = [[other.get(w, w) for w in pair] for pair in leaf["to"]]
    body["base_version"], body["version"] = body["version"], body["version"] + 1
    return json.dumps(body).encode()


class Mover:
    """Begins moves at random, and kills. `begun` counts them by kind, `killed` who was killed at
    which step: "source, transferring"."""

    def __init__(self, host: Host, rng: random.Random, say: Callable[[str], None]) -> None:
        self.host = host
        self.rng = rng
        self.say = say
        self.begun: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self.told: tuple[MigrationInfo, ...] = ()  # what the service says of those that ended

    def move(self, role: str = "", step: str = "", within: float = WAIT_S) -> str:
        """Begin one; who was killed at that step, or nobody when it was not to be."""
        try:
            with Client(self.host.shuffle_targets(self.rng), timeout=within) as client:
                change = self._change(client)
                if not role:
                    self._begin(client, change)
                    return ""
                return self._amid(client, change, role, step)
        except FAILURES as error:
            self.say(f"no move: {type(error).__name__} {error}")
        return ""

    def kill_at_step(self, role: str, step: str) -> None:
        """Moves until one has met a kill of this role at this step, but not for ever, and waits
        until it has ended. Raises TimeoutError."""
        for _ in range(TRIES):
            time.sleep(1)
            killed = self.move(role, step)
            self.ended()
            if killed:
                return

    def ended(self, within: float = ENDED_S) -> None:
        """Wait until none is under way. Raises TimeoutError."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            try:
                with Client(self.host.shuffle_targets(self.rng), timeout=WAIT_S) as client:
                    found = client.migrations()
                    self.told = found.migrations
                    if not found.following_version:
                        return
            except FAILURES as error:
                self.say(f"how a move goes is not told: {error}")
            time.sleep(0.1)
        raise TimeoutError("a move has no end")

    def figures(self) -> dict[str, Any]:
        """As JSON takes them; of the postings that workers lack or have beyond their own, of all
        moves at whose end they were counted."""
        counted = [(m.missing, m.surplus or 0) for m in self.told if m.missing is not None]
        return {
            "moves": dict(sorted(self.begun.items())),
            "moves_total": self.begun.total(),
            "killed_amid_moves": dict(sorted(self.killed.items())),
            "moves_counted": len(counted),
            "postings_missing": sum(missing for missing, _ in counted),
            "postings_surplus": sum(surplus for _, surplus in counted),
        }

    def _change(self, client: Client) -> Change:
        """Raises FailedPrecondition while there is one."""
        now = client.migrations()
        if now.following_version:
            raise FailedPrecondition(f"one is under way, {now.state}")
        n, rng = now.workers, self.rng
        more = rng.choice([n - 1] * (n > LEAST) + [n + 1] * (n < MOST))
        if rng.random() < 0.5:
            source, target = rng.sample(range(n), 2)
            plan = exchanged(client.plan(), source, target)
            return Change("apply", source, target, n, lambda c: c.apply_plan(plan))
        few = range(min(n, more))
        source = rng.choice(few) if more > n else n - 1
        target = n if more > n else rng.choice(few)
        return Change(f"scale {n} to {more}", source, target, more, lambda c: c.scale(more))

    def _begin(self, client: Client, change: Change) -> None:
        if self.rng.random() < 0.3:
            try:
                moved = client.rebalance()
            except FailedPrecondition:
                moved = {}
            if moved.get("migrations"):
                self._count("rebalance")
                return
        change.begin(client)
        self._count(change.name)

    def _count(self, name: str) -> None:
        self.begun[name.partition(" ")[0]] += 1
        self.say(f"move: {name}")

    def _amid(self, client: Client, change: Change, role: str, step: str) -> str:
        mine = {"source": change.source, "target": change.target}
        victim = f"worker-{mine[role]}" if role in mine else f"{role}-0"
        before = self.host.actors()
        holders = [n for n, a in before.items() if a.role == HOLDERS[step] and n != victim]
        if not holders:
            self.say(f"nobody holds {step} up")
            return ""
        holder = before[self.rng.choice(holders)]
        problems: list[Exception] = []

        def begin() -> None:
            try:
                with Client(client.target, timeout=4 * WAIT_S) as other:
                    change.begin(other)
            except FAILURES as error:
                problems.append(error)

        asking = threading.Thread(target=begin, daemon=True)
        last = f"worker-{change.workers - 1}"
        if hires := last not in before:  # which takes too long for somebody to be stopped
            asking.start()
            self._until(lambda: last in self.host.actors())
        try:
            send(holder.pid, signal.SIGSTOP)
            if not hires:
                time.sleep(FILL_S)
                asking.start()
            self._until(lambda: client.migrations().state == step or not asking.is_alive())
            if problems:
                raise problems[0]
            self._count(change.name)
            self._until(lambda: client.migrations().state in (step, "none"))
            actor = self.host.actors().get(victim)
            state = client.migrations().state
            if actor is None or state != step or not send(actor.pid, signal.SIGKILL):
                self.say(f"{step} {victim}: {state}")
                return ""
            self.say(f"{step}, {holder.name} stopped: kill {victim}, the {role}")
            self.killed[f"{role}, {step}"] += 1
            time.sleep(self.rng.uniform(0.1, 1.0))
            return actor.role
        finally:
            send(holder.pid, signal.SIGCONT)

    def _until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not true():
            if time.monotonic() > deadline:
                raise TimeoutError("the step did not come")
            time.sleep(0.01)
