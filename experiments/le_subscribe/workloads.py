"""The generator of subscriptions and events of algorithms.md 3.7, seeded.

Subscriptions have fixed predicates, whose attributes all share, and free equalities on attributes
drawn among the others. Events have every attribute. Values are uniform over 1..values, of one
attribute over fewer if the workload is skewed.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from ps2stream.experiments.le_subscribe.layout import SelectivityColumns
from ps2stream.experiments.le_subscribe.rows import EQ, GT, LT, EventRows, SubscriptionRows
from ps2stream.experiments.le_subscribe.selectivity import count_events
from ps2stream.protocol.frame import I64

KNOWN = 10_000  # events of the statistics
BATCH = 10_000
"""Subscriptions of an insert, as in the paper."""


@dataclasses.dataclass(frozen=True)
class PredicateWorkload:
    """A specification (section 6.1 of the paper).

    attributes: of events (nA), the first of which are fixed; fixed: operators of the fixed
    predicates, on attributes first, first + 1 and so on; free: equalities on attributes drawn from
    first + len(fixed) to first + span - 1; values: size of the domain; skewed: fixed attributes
    whose values are only 1 and 2.
    """

    fixed: tuple[int, ...]
    free: int
    attributes: int = 32
    values: int = 35
    first: int = 0
    span: int = 32
    skewed: tuple[int, ...] = ()

    @property
    def predicates(self) -> int:
        """The number of predicates of a subscription."""
        return len(self.fixed) + self.free

    def draw_subscriptions(self, n: int, rng: np.random.Generator) -> SubscriptionRows:
        """Returns n subscriptions."""
        width, fixed = self.predicates, len(self.fixed)
        attribute = np.empty((n, width), np.uint8)
        attribute[:, :fixed] = self.first + np.arange(fixed)
        among = self.span - fixed
        for begin in range(0, n, BATCH):
            end = min(begin + BATCH, n)
            order = rng.random((end - begin, among), np.float32).argsort(axis=1)
            attribute[begin:end, fixed:] = self.first + fixed + order[:, : self.free]
        operator = np.full((n, width), EQ, np.uint8)
        operator[:, :fixed] = self.fixed
        value = self._draw_values(attribute, rng)
        return SubscriptionRows(
            np.arange(n + 1) * width, attribute.ravel(), operator.ravel(), value.ravel()
        )

    def draw_events(self, n: int, rng: np.random.Generator) -> EventRows:
        """Returns n events."""
        attribute = np.tile(np.arange(self.attributes, dtype=np.uint8), (n, 1))
        value = self._draw_values(attribute, rng)
        return EventRows(np.arange(n + 1) * self.attributes, attribute.ravel(), value.ravel())

    def learn(self, rng: np.random.Generator) -> SelectivityColumns:
        """Returns the statistics of KNOWN events."""
        return count_events(self.draw_events(KNOWN, rng))

    def _draw_values(self, attribute: np.ndarray[tuple[int, int], np.dtype[np.uint8]],
                     rng: np.random.Generator) -> I64:  # fmt: skip
        value = rng.integers(1, self.values + 1, attribute.shape)
        for skewed in self.skewed:
            value[attribute == skewed] = (value[attribute == skewed] - 1) % 2 + 1
        return value


W0 = PredicateWorkload((EQ, EQ), 3)
W1 = PredicateWorkload((EQ, EQ, GT), 1)
W2 = PredicateWorkload((EQ, EQ, LT, LT, LT, LT, LT, GT), 1)
DRIFT = PredicateWorkload((EQ,), 4, span=16), PredicateWorkload((EQ,), 4, first=16, span=16)
"""Subscriptions move from 16 attributes to the other 16."""
SKEW = W0, PredicateWorkload((EQ, EQ), 3, skewed=(0,))
"""Events and subscriptions turn to two values of one fixed attribute."""
