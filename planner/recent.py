"""Samples of several dispatchers as one, in which every row stands for as many objects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ps2stream.answers import since_of
from ps2stream.posts import SCHEMA


def together(samples: Sequence[pa.Table], seed: int = 0) -> pa.Table:
    """Objects (posts.SCHEMA) of tables of answers.SAMPLE, each dispatcher's in proportion to
    what it accepted in the period that all of them cover.

    A row comes weight / w times, a fraction by chance, where half of the objects stand in
    rows of weight w or less. So most of what there is comes once, and no more than twice as
    many rows come out.
    """
    since = max(map(since_of, samples), default=0)
    rows = pa.concat_tables([t.replace_schema_metadata(None) for t in samples])
    rows = rows.filter(pc.greater_equal(rows["accepted"], since))
    weight = rows["weight"].to_numpy()
    if not len(weight):
        return SCHEMA.empty_table()
    rising = np.sort(weight)
    held = np.cumsum(rising)
    middle = rising[np.searchsorted(2 * held, held[-1])]
    chance = np.random.default_rng(seed).random(len(weight))
    copies = np.floor(weight / middle + chance).astype(np.int64)
    return rows.take(np.repeat(np.arange(len(weight)), copies)).select(SCHEMA.names).cast(SCHEMA)
