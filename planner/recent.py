"""Samples of several dispatchers as one, in which every row stands for equally many objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ps2stream.planner.objects import OBJECTS
from ps2stream.posts.sample import since_of
from ps2stream.protocol.frame import F64, I64


def together(samples: Sequence[pa.Table], seed: int = 0) -> pa.Table:
    """Returns the objects (OBJECTS) of tables of posts.sample.SAMPLE, each dispatcher's in
    proportion to what it accepted in the period that all of them cover."""
    import pyarrow.compute as pc  # not for the actors that only import `copies`

    since = max(map(since_of, samples), default=0)
    rows = pa.concat_tables([t.replace_schema_metadata(None) for t in samples])
    rows = rows.filter(pc.greater_equal(rows["accepted"], since))
    if not len(rows):
        return OBJECTS.empty_table()
    times = copies(rows["weight"].to_numpy(), seed)
    return rows.take(np.repeat(np.arange(len(rows)), times)).select(OBJECTS.names).cast(OBJECTS)


def copies(weight: F64, seed: int = 0) -> I64:
    """Returns how often to repeat each row, int64[n]: weight / w times, where half of the objects
    are in rows of weight w or less; a fraction is decided at random. Most rows thus come once,
    and at most twice as many rows result."""
    if not len(weight):
        return np.zeros(0, np.int64)
    rising = np.sort(weight)
    held = np.cumsum(rising)
    middle = rising[np.searchsorted(2 * held, held[-1])]
    chance = np.random.default_rng(seed).random(len(weight))
    times: I64 = np.floor(weight / middle + chance).astype(np.int64)
    return times
