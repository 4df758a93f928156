"""Statistics on events: how many of them have a value, and how many have an attribute."""

# mypy: allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any

import numpy as np

from ps2stream.experiments.le_subscribe.compiling import kernel
from ps2stream.experiments.le_subscribe.layout import SelectivityColumns
from ps2stream.experiments.le_subscribe.rows import ATTRIBUTES, EventRows


def count_events(events: EventRows) -> SelectivityColumns:
    """Returns the statistics of a sample of events. A value that it lacks counts as half of one
    that it has once."""
    n = max(events.size, 1)
    attribute = events.attribute.astype(np.int64)
    order = np.lexsort((events.value, attribute))
    attribute, value = attribute[order], events.value[order]
    new = np.ones(len(value), np.bool_)
    new[1:] = (attribute[1:] != attribute[:-1]) | (value[1:] != value[:-1])
    first = np.flatnonzero(new)
    count = np.diff(np.r_[first, len(value)])
    return SelectivityColumns(
        off=np.searchsorted(attribute[first], np.arange(ATTRIBUTES + 1)).astype(np.int64),
        value=np.ascontiguousarray(value[first]),
        share=count / n,
        presence=np.bincount(attribute, minlength=ATTRIBUTES) / n,
        least=np.array([0.5 / n]),
    )


def assume_uniform(values: int, lowest: int = 1) -> SelectivityColumns:
    """Returns the statistics of events that have all attributes, each of `values` values with the
    same probability."""
    value = np.tile(np.arange(lowest, lowest + values, dtype=np.int64), ATTRIBUTES)
    return SelectivityColumns(
        off=np.arange(ATTRIBUTES + 1, dtype=np.int64) * values,
        value=value,
        share=np.full(len(value), 1 / values),
        presence=np.ones(ATTRIBUTES),
        least=np.array([0.01 / values]),
    )


@kernel
def find_share(known: Any, attribute: Any, value: Any) -> Any:
    """Returns the share of events that have this value of the attribute."""
    low, end = known.off[attribute], known.off[attribute + 1]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if known.value[middle] < value:
            low = middle + 1
        else:
            high = middle
    if low < end and known.value[low] == value:
        return known.share[low]
    return known.least[0]


@kernel
def find_shares(known: Any, attribute: Any, value: Any, share: Any) -> Any:
    """Writes the share of events that have each of these values."""
    for k in range(attribute.shape[0]):
        share[k] = find_share(known, np.int64(attribute[k]), value[k])
