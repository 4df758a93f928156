"""The links between processes: real heads and fences, over a network that misbehaves.

Each ordered pair of addresses has a generator of its own, so that what happens on one link
does not depend on the others: a schedule from which events are taken away stays like itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ps2stream.cluster.actor_home import ActorHome
from ps2stream.cluster.fence import MessageFence, MessageHead
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.addresses import Address, Send
from tests.sim.clock import Clock


class Temper(NamedTuple):
    """How a network is. delay: ms at most; drop, double, overtake: probabilities."""

    delay: int = 4
    drop: float = 0.0
    double: float = 0.0
    overtake: float = 0.0


CALM = Temper()


class Cut(NamedTuple):
    """Between these two, or for all of one: messages are lost, or held until the end."""

    one: Address
    other: Address | None
    until: int
    lost: bool

    def covers(self, a: Address, b: Address) -> bool:
        return self.one in (a, b) and self.other in (None, a, b)


Deliver = Callable[[str, list[bytes]], None]


class Network:
    """Carries messages to endpoints; `deliver(endpoint, message)` takes them there."""

    def __init__(self, clock: Clock, seed: str, deliver: Deliver) -> None:
        self.clock = clock
        self.temper = CALM
        self.cuts: list[Cut] = []
        self.sent = 0
        self._seed = seed
        self._deliver = deliver
        self._links: dict[tuple[Address, Address], _Link] = {}

    def heal(self) -> None:
        """From now on nothing is lost."""
        self.temper = CALM
        self.cuts = []

    def post(self, source: Address, to: Address, endpoint: str, message: list[bytes]) -> None:
        link = self._links.get((source, to))
        if link is None:
            link = self._links[source, to] = _Link(self._seed, source, to)
        self.sent += 1
        now = self.clock.now
        for when in link.fates(self.temper, now):
            arrives = when
            for cut in self.cuts:
                if cut.until > now and cut.covers(source, to):
                    arrives = -1 if cut.lost else max(arrives, cut.until)
                    if cut.lost:
                        break
            if arrives >= 0:
                self.clock.at(arrives, self._deliver, endpoint, message)


class _Link:
    def __init__(self, seed: str, source: Address, to: Address) -> None:
        self._rng = random.Random(f"{seed} {source.role}{source.index}>{to.role}{to.index}")
        self._last = 0

    def fates(self, temper: Temper, now: int) -> list[int]:
        """When a message arrives: never, once or twice. Draws alike for each message."""
        rng = self._rng
        delay, fate, again = rng.random(), rng.random(), rng.random()
        when = now + 1 + int(delay * temper.delay)
        if fate < temper.drop:
            return []
        fate -= temper.drop
        if fate < temper.overtake:
            return [when + int(again * 10 * temper.delay)]
        when = self._last = max(self._last, when)
        return [when, when + int(again * 10 * temper.delay)] if fate > 1 - temper.double else [when]


class SimLinks:
    """Stands for cluster.links.Links: the same, over a Network."""

    def __init__(
        self, network: Network, owner: Address, epoch: int, _meter: StageMeter | None = None
    ) -> None:
        self.owner = owner
        self.epoch = epoch
        self.fence = MessageFence()
        self._network = network
        self._outlets: dict[Address, tuple[str, int]] = {}  # endpoint, number of the last

    def bind(self, folder: Path) -> str:
        return f"{self.owner.role}-{self.owner.index}.{self.epoch}"

    def connect(
        self, peer: Address, endpoint: str, epoch: int, _home: ActorHome | None = None
    ) -> None:
        self.fence.raise_to(peer, epoch)
        self._outlets[peer] = (endpoint, 0)

    def post(self, sends: list[Send]) -> None:
        if not sends:
            return
        by_peer: dict[Address, list[bytes]] = {}
        encoded: dict[int, bytes] = {}
        for to, frame in sends:
            data = encoded.get(id(frame))
            if data is None:
                data = encoded[id(frame)] = frame.encode()
            by_peer.setdefault(to, []).append(data)
        for to, frames in by_peer.items():
            if to in self._outlets:
                endpoint, number = self._outlets[to]
                self._outlets[to] = (endpoint, number + 1)
                head = MessageHead(self.owner, self.epoch, number + 1).encode()
                self._network.post(self.owner, to, endpoint, [head, *frames])

    def close(self) -> None:
        self._outlets = {}
