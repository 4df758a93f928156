"""Global adjustment: when to plan anew, and when the old plan goes (algorithms.md 1.9)."""

from __future__ import annotations

from typing import Literal

from ps2stream.batch import F64
from ps2stream.planner.load import balance

FALL = 0.10
SUNSET_SHARE = 0.05
SUNSET_MS = 7 * 24 * 3600 * 1000

Reason = Literal["load", "balance"]


def repartition(
    now: F64, planned: F64, sigma: float, unmet: bool, fall: float = FALL
) -> Reason | None:
    """Why to repartition, None for not to. now, planned: load of each worker under the
    current and under a new plan, of the same recent sample, microseconds, float64[workers]
    (load.worker_loads).

    "load": the sum falls by at least the share `fall`. "balance": local adjustment could not
    bring the balance to sigma (unmet), and the new plan is better balanced."""
    if planned.sum() <= (1 - fall) * now.sum() and now.sum() > 0:
        return "load"
    better = balance(planned) < balance(now)
    return "balance" if unmet and balance(now) > sigma and better else None


def sunset(
    old: int, live: int, age_ms: int, share: float = SUNSET_SHARE, after_ms: int = SUNSET_MS
) -> bool:
    """Whether what is left of the old strategy should migrate and the strategy go: when at
    most `share` of the live queries are its own, or it was replaced `after_ms` ago. old,
    live: queries of the old strategy and of both; age_ms: since the switch."""
    return old <= share * live or age_ms >= after_ms
