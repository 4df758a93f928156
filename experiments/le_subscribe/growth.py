"""Longer arrays, where a kernel stopped for want of room."""

from __future__ import annotations

import numpy as np

from ps2stream.experiments.le_subscribe.counting_arrays import CountedArrays
from ps2stream.experiments.le_subscribe.entry_kernels import fill_entry_slots
from ps2stream.experiments.le_subscribe.layout import (
    CLUSTERS,
    ENTRIES,
    POOL,
    PREDS,
    SHORT_OF_CLUSTERS,
    SHORT_OF_ENTRIES,
    SHORT_OF_POOL,
    SHORT_OF_PREDS,
    SHORT_OF_SUBS,
    SUBS,
    ClusterArrays,
)
from ps2stream.experiments.le_subscribe.predicate_kernels import fill_slots
from ps2stream.protocol.frame import Array

WORDS = 1 << 31
"""Words of the pool, at most: numbers of blocks are words themselves."""
GROUPS = {
    SHORT_OF_SUBS: {"sub_cluster": -1, "sub_column": 0},
    SHORT_OF_PREDS: {
        "pred_value": 0, "pred_tag": 0, "pred_refs": 0, "pred_entry": -1, "pred_nu": 0, "bits": 0,
    },
    SHORT_OF_ENTRIES: {"entry_key": -1, "entry_table": 0, "entry_head": -1, "entry_nu": 1},
    SHORT_OF_CLUSTERS: {"cluster": 0, "queue": 0, "candidates": 0},
    SHORT_OF_POOL: {"pool": 0},
}  # fmt: skip
"""What grows together, and what new elements hold."""


def grow_arrays(arrays: ClusterArrays, short: int) -> ClusterArrays:
    """Returns the arrays with twice the room for what there is a shortage of. Raises MemoryError
    if the pool is as large as it can be."""
    if short == SHORT_OF_POOL and 2 * len(arrays.pool) > WORDS:
        raise MemoryError("the pool of the clusters is full")
    longer = {name: _grow_column(getattr(arrays, name), of) for name, of in GROUPS[short].items()}
    out = arrays._replace(**longer)
    if short == SHORT_OF_PREDS:
        slots = np.zeros((2 * len(arrays.slots), 2), np.int64)
        fill_slots(slots, out.pred_value, out.pred_tag, out.pred_refs, int(out.state[PREDS]))
        out = out._replace(slots=slots)
    elif short == SHORT_OF_ENTRIES:
        slots32 = np.zeros((2 * len(arrays.entry_slots), 4), np.int32)
        fill_entry_slots(slots32, out.entry_key, out.entry_table, int(out.state[ENTRIES]))
        out = out._replace(entry_slots=slots32)
    return out


def grow_counted(counted: CountedArrays, arrays: ClusterArrays) -> CountedArrays:
    """Returns the arrays of counting as long as those of its predicates and subscriptions."""
    predicates, subs = len(arrays.pred_value), len(arrays.sub_cluster)
    lists, size, held = counted
    if len(lists) != predicates + 1:
        longer = np.zeros((predicates + 1, 3), np.int64)
        longer[: len(lists) - 1] = lists[:-1]
        longer[-1] = lists[-1]
        lists = longer
    while len(size) < subs:
        size, held = _grow_column(size, 255), _grow_column(held, 0)
    return CountedArrays(lists, size, held)


def list_used_bytes(arrays: ClusterArrays) -> int:
    """Returns the bytes of what the arrays hold, without what they have room for. The hashes and
    the arrays of constant size count whole."""
    used = {
        SHORT_OF_SUBS: int(arrays.state[SUBS]), SHORT_OF_PREDS: int(arrays.state[PREDS]),
        SHORT_OF_ENTRIES: int(arrays.state[ENTRIES]),
        SHORT_OF_CLUSTERS: int(arrays.state[CLUSTERS]), SHORT_OF_POOL: int(arrays.state[POOL]),
    }  # fmt: skip
    total = sum(column.nbytes for column in arrays)
    for short, columns in GROUPS.items():
        for name in columns:
            column = getattr(arrays, name)
            total -= column.nbytes - used[short] * (column.nbytes // len(column))
    return total


def _grow_column(column: Array, value: float) -> Array:
    """Returns a copy of twice the length."""
    out = np.full((2 * len(column), *column.shape[1:]), value, column.dtype)
    out[: len(column)] = column
    return out
