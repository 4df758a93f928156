"""The shortest part of a seed's schedule that still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.sim.run import Result, play
from tests.sim.scenario import Event, scenario


def shrink(seed: int, bug: str = "", say: Callable[[str], None] = lambda _: None) -> Result:
    """Leave out events, many at a time and then fewer, as long as something is violated.
    The result of what is left; of the whole schedule where it violates nothing."""
    script = scenario(seed)
    events: Sequence[Event] = script.events
    best = play(script, events, bug)
    size = len(events) // 2
    while best.violations and size:
        at = 0
        while at < len(events):
            fewer = [*events[:at], *events[at + size :]]
            found = play(script, fewer, bug)
            if found.violations:
                events, best = fewer, found
                say(f"{len(events)} events: {best.violations[0][:100]}")
            else:
                at += size
        size = min(size // 2, len(events) // 2)
    return best
