"""Sessions of the service that move to more or fewer mergers."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from ps2stream.client.client import Client
from tests.chaos.host import Host
from tests.chaos.moves import ENDED_S, FAILURES, WAIT_S

MOST_MERGERS = 3


class MergerScaler:
    """Requests numbers of mergers at random. `begun` counts the moves that were granted."""

    def __init__(self, host: Host, rng: random.Random, say: Callable[[str], None]) -> None:
        self.host = host
        self.rng = rng
        self.say = say
        self.begun = 0

    def scale(self) -> bool:
        """Begins a move, unless one is under way; returns whether it did."""
        try:
            with Client(self.rng.choice(self.host.targets), timeout=WAIT_S) as client:
                now = client.scale_mergers().mergers
                wanted = self.rng.choice([n for n in range(1, MOST_MERGERS + 1) if n != now])
                client.scale_mergers(wanted)
        except FAILURES as error:
            self.say(f"no move of sessions: {type(error).__name__} {error}")
            return False
        self.say(f"sessions move from {now} to {wanted} mergers")
        self.begun += 1
        return True

    def ended(self, within: float = ENDED_S) -> None:
        """Waits until no session moves. Raises TimeoutError."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            try:
                with Client(self.rng.choice(self.host.targets), timeout=WAIT_S) as client:
                    if not client.scale_mergers().moving:
                        return
            except FAILURES as error:
                self.say(f"how the sessions move is not told: {error}")
            time.sleep(0.1)
        raise TimeoutError("a move of sessions has no end")
