"""How long it took until everything flowed again after a fault."""

from __future__ import annotations

import math
from statistics import median

from tests.chaos.history import History

LASTS_S = 20.0
"""After a stop."""


def recoveries(
    history: History, faults: list[tuple[float, str]], others: list[tuple[float, str]]
) -> dict[str, dict[str, dict[str, float]]]:
    """Seconds from each fault until every lane (dispatcher x session x stripe) had delivered
    an object that was published after it, and an update asked for after it was answered: n,
    p50 and max by what it was. "alone": of those that were over before anything else went
    wrong; "all": also of those that overlapped."""
    found: dict[str, dict[str, list[float]]] = {"alone": {}, "all": {}}
    busy = 0.0  # until then something else is wrong
    events = sorted([*faults, *others])
    for i, (at, what) in enumerate(events):
        lanes = [*history.arrivals.values(), history.updates]
        end = max(min((b for a, b in lane if a >= at), default=math.inf) for lane in lanes)
        counts = (at, what) in faults and end < math.inf
        if counts:
            found["all"].setdefault(what, []).append(end - at)
        if counts and at > busy and (i + 1 == len(events) or events[i + 1][0] > end):
            found["alone"].setdefault(what, []).append(end - at)
        busy = max(busy, end if counts else at + LASTS_S)
    return {
        which: {
            what: {"n": len(s), "p50": round(median(s), 2), "max": round(max(s), 2)}
            for what, s in sorted(of.items())
        }
        for which, of in found.items()
    }
