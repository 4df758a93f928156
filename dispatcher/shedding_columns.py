"""What load is shed of a batch: which objects may be, and what became of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.multicast.bitsets import make_sets
from ps2stream.multicast.capping_kernels import SAMPLED, SHED, WHOLE
from ps2stream.protocol.frame import F64, I64, U8, U64, Array

MOST_FAN = 64


class SheddingColumns(NamedTuple):
    """The arguments of `shed_copies` (multicast/capping_kernels.py), but for those that routing
    makes. targets, by_queries, state, draw: what may be shed; fan, copies, shed int64[1], cut,
    lost: what was. Without rows in `state` nothing is shed."""

    targets: float
    by_queries: bool
    state: U8
    draw: F64
    fan: I64
    copies: I64
    shed: I64
    cut: U64
    lost: U8


NOTHING_SHED = SheddingColumns(
    np.inf, False, np.zeros(0, np.uint8), np.zeros(0), np.zeros(0, np.int64),
    np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 1), np.uint64),
    np.zeros(0, np.uint8),
)  # fmt: skip


def prepare_columns(
    targets: float, by_queries: bool, may_shed: Array, sampled: Array, draw: F64,
    terms: int, workers: int, fan: I64,
) -> SheddingColumns:  # fmt: skip
    """Returns the columns of a batch of n objects with so many terms in all, of which nothing is
    shed yet. may_shed, sampled bool[n]; draw float64[n] in [0, 1); fan int64[64] is added to."""
    state = np.where(
        may_shed, np.where(sampled, np.uint8(SAMPLED), np.uint8(SHED)), np.uint8(WHOLE)
    )
    return SheddingColumns(
        targets, by_queries, state, draw, fan, np.zeros(workers, np.int64), np.zeros(1, np.int64),
        make_sets(len(state), workers), np.zeros(terms, np.uint8),
    )  # fmt: skip
