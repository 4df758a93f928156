"""Subscriptions and events as columns.

A subscription is a conjunction of predicates (attribute, operator, value); an event is a set of
pairs (attribute, value), at most one of an attribute. Attributes are numbers below ATTRIBUTES,
values are integers, as in the paper.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U8

LT, LE, EQ, NE, GE, GT = range(6)
OPERATORS = ("<", "<=", "=", "!=", ">=", ">")
ATTRIBUTES = 64
PREDICATES = 64
"""Predicates of a subscription, at most."""


class SubscriptionRows(NamedTuple):
    """Subscriptions: off int64[n + 1]; attribute uint8[], operator uint8[] and value int64[] of
    the predicates of all, one subscription after the other."""

    off: I64
    attribute: U8
    operator: U8
    value: I64

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.off) - 1

    def cut(self, first: int, end: int) -> SubscriptionRows:
        """Returns the subscriptions first..end - 1, as views."""
        inside = slice(int(self.off[first]), int(self.off[end]))
        return SubscriptionRows(
            self.off[first : end + 1] - self.off[first],
            self.attribute[inside], self.operator[inside], self.value[inside],
        )  # fmt: skip


class EventRows(NamedTuple):
    """Events: off int64[n + 1]; attribute uint8[] and value int64[] of the pairs of all."""

    off: I64
    attribute: U8
    value: I64

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.off) - 1

    def cut(self, first: int, end: int) -> EventRows:
        """Returns the events first..end - 1, as views."""
        inside = slice(int(self.off[first]), int(self.off[end]))
        return EventRows(
            self.off[first : end + 1] - self.off[first],
            self.attribute[inside], self.value[inside],
        )  # fmt: skip


class MatchedPairs(NamedTuple):
    """Matches: row int64[] of the event, subscription int64[]; in no order."""

    row: I64
    subscription: I64


def check_subscriptions(rows: SubscriptionRows) -> None:
    """Raises ValueError for subscriptions that no matcher takes."""
    _check_columns(rows.off, rows.attribute, rows.operator, rows.value)
    if len(rows.operator) and int(rows.operator.max()) >= len(OPERATORS):
        raise ValueError("operator: a number that is none")
    if rows.size and int(np.diff(rows.off).max()) > PREDICATES:
        raise ValueError(f"off: a subscription has more than {PREDICATES} predicates")


def check_events(rows: EventRows) -> None:
    """Raises ValueError for events that no matcher takes; that no attribute is there twice is left
    to the kernels."""
    _check_columns(rows.off, rows.attribute, rows.value)


def _check_columns(off: I64, attribute: U8, *columns: I64 | U8) -> None:
    if len(off) == 0 or off[0] != 0 or (np.diff(off) < 0).any():
        raise ValueError("off: expected offsets from 0 that do not fall")
    if any(len(column) != off[-1] for column in (attribute, *columns)):
        raise ValueError("off: the last offset is not the length of the columns")
    if len(attribute) and int(attribute.max()) >= ATTRIBUTES:
        raise ValueError(f"attribute: a number of {ATTRIBUTES} or more")
