"""Random subscriptions and events, and what must match."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ps2stream.experiments.le_subscribe.rows import EventRows, SubscriptionRows

COMPARE: tuple[Callable[[Any, Any], bool], ...] = (
    operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt,
)  # fmt: skip
Predicate = tuple[int, int, int]
EXTREMES = (-(2**63), 2**63 - 1, 0, -1)


def satisfies(event: dict[int, int], subscription: Sequence[Predicate]) -> bool:
    """Every predicate by its definition; a missing attribute satisfies none."""
    return all(
        attribute in event and COMPARE[which](event[attribute], value)
        for attribute, which, value in subscription
    )


def to_rows(subscriptions: Sequence[Sequence[Predicate]]) -> SubscriptionRows:
    flat = [p for each in subscriptions for p in each]
    return SubscriptionRows(
        np.cumsum([0, *map(len, subscriptions)]).astype(np.int64),
        np.array([p[0] for p in flat], np.uint8),
        np.array([p[1] for p in flat], np.uint8),
        np.array([p[2] for p in flat], np.int64),
    )


def to_events(events: Sequence[dict[int, int]]) -> EventRows:
    return EventRows(
        np.cumsum([0, *map(len, events)]).astype(np.int64),
        np.array([a for each in events for a in each], np.uint8),
        np.array([v for each in events for v in each.values()], np.int64),
    )


def draw_subscription(rng: np.random.Generator, attributes: int, values: int) -> list[Predicate]:
    """Up to twelve predicates, most of them equalities, with repeats and contradictions; or none,
    or no equality."""
    kind = rng.random()
    count = int(rng.integers(0, 4)) if kind < 0.2 else int(rng.integers(1, 13))
    out: list[Predicate] = []
    for _ in range(count):
        which = 2 if rng.random() < 0.6 and kind > 0.1 else int(rng.choice([0, 1, 3, 4, 5]))
        extreme = rng.random() < 0.02
        value = int(rng.choice(EXTREMES)) if extreme else int(rng.integers(0, values))
        out.append((int(rng.integers(0, attributes)), which, value))
    if out and rng.random() < 0.1:
        out.append(out[0])
    return out


def draw_event(rng: np.random.Generator, attributes: int, values: int) -> dict[int, int]:
    """Any set of attributes, also none, in any order."""
    size = int(rng.integers(0, attributes + 1))
    chosen = rng.permutation(attributes)[:size]
    return {
        int(a): int(rng.choice(EXTREMES)) if rng.random() < 0.02 else int(rng.integers(0, values))
        for a in chosen
    }
