"""Roles of the service whose number changes: sessions move between mergers, dispatchers join and
leave."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ps2stream.client.client import Client
from tests.chaos.host import MOST_DISPATCHERS, Host
from tests.chaos.moves import ENDED_S, FAILURES, WAIT_S

MOST_MERGERS = 3


class ScaledRole(NamedTuple):
    """A role, the most of it, and the call of a client that asks for a number of it or tells of
    it."""

    name: str
    most: int
    scale: Callable[..., Any]


MERGERS = ScaledRole("mergers", MOST_MERGERS, Client.scale_mergers)
DISPATCHERS = ScaledRole("dispatchers", MOST_DISPATCHERS, Client.scale_dispatchers)


class RoleScaler:
    """Requests numbers of a role at random. `begun` counts the changes that were granted."""

    def __init__(
        self, host: Host, rng: random.Random, say: Callable[[str], None], role: ScaledRole
    ) -> None:
        self.host = host
        self.rng = rng
        self.say = say
        self.role = role
        self.begun = 0

    def scale(self) -> bool:
        """Begins a change, unless one is under way; returns whether it did."""
        name = self.role.name
        try:
            with Client(self.host.shuffle_targets(self.rng), timeout=WAIT_S) as client:
                now = getattr(self.role.scale(client), name)
                wanted = self.rng.choice([n for n in range(1, self.role.most + 1) if n != now])
                self.role.scale(client, wanted)
        except FAILURES as error:
            self.say(f"no other number of {name}: {type(error).__name__} {error}")
            return False
        self.say(f"from {now} to {wanted} {name}")
        self.begun += 1
        return True

    def ended(self, within: float = ENDED_S) -> None:
        """Waits until no number changes. Raises TimeoutError."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            try:
                with Client(self.host.shuffle_targets(self.rng), timeout=WAIT_S) as client:
                    if not self.role.scale(client).moving:
                        return
            except FAILURES as error:
                self.say(f"whether the number of {self.role.name} changes is not told: {error}")
            time.sleep(0.1)
        raise TimeoutError(f"a change of the number of {self.role.name} has no end")
