"""The arrays of counting beside those of its predicates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import I64, U8


class CountedArrays(NamedTuple):
    """lists int64[preds + 1, 3]: base, capacity and length of the subscriptions of a predicate;
    the last are those that are always true. size uint8[subs]: distinct predicates, 255 = not live;
    held int64[subs]: where their ids lie in the pool."""

    lists: I64
    size: U8
    held: I64


def make_counted(predicates: int) -> CountedArrays:
    """Returns the arrays without subscriptions."""
    return CountedArrays(
        np.zeros((predicates + 1, 3), np.int64),
        np.full(predicates, 255, np.uint8),
        np.zeros(predicates, np.int64),
    )
