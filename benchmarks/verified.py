"""Sampled objects compared with brute force over the words: the matches delivered and expected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ps2stream.benchmarks.publisher import PublishInterval
from ps2stream.benchmarks.subscriber import DeliveryReceipt
from ps2stream.benchmarks.workload import Workload
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import F64, column_to_strings


def verified(
    load: Workload,
    intervals: Sequence[PublishInterval],
    receipts: Sequence[DeliveryReceipt],
    every: int,
) -> dict[str, int]:
    """Checks the objects whose offset `every` divides. sampled: their number; wrong: those whose
    delivered handles are not the expected ones; lost, doubled: pairs that are missing or came
    again."""
    found = dict.fromkeys(("sampled", "wrong", "lost", "doubled"), 0)
    last = intervals[-1]
    texts = column_to_strings(load.posts.text_off, load.posts.text)
    analyzer = Analyzer(Analysis(salt=0))
    rect = load.interests.rect
    for interval, receipt in zip(intervals, receipts, strict=True):
        for offset, lsn, row in interval.sampled(every):
            text = analyzer.text_words(texts[row])
            lon, lat = load.posts.lon[row], load.posts.lat[row]
            live = np.flatnonzero((last.born <= lsn) & (last.born > 0) & (lsn < last.died))
            near = live[_is_inside(rect[live], lon, lat)]
            want = Counter(int(last.born[q]) for q in near.tolist() if load.holds(q, text))
            got = Counter(receipt.sample.get(offset, []))
            found["sampled"] += 1
            found["wrong"] += got != want
            found["lost"] += (want - got).total()
            found["doubled"] += got.total() - len(got)
    return found


def _is_inside(rect: F64, lon: float, lat: float) -> NDArray[np.bool_]:
    """Returns for each rectangle whether the point is inside."""
    east, west = lon >= rect[:, 0], lon <= rect[:, 2]
    beside = np.where(rect[:, 0] > rect[:, 2], east | west, east & west)
    found: NDArray[np.bool_] = beside & (lat >= rect[:, 1]) & (lat <= rect[:, 3])
    return found
