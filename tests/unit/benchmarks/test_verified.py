"""The check of what subscribers were delivered."""

from __future__ import annotations

import numpy as np

from ps2stream.benchmarks.publisher import PublishInterval
from ps2stream.benchmarks.query_tags import query_rows, tags_of
from ps2stream.benchmarks.subscriber import DeliveryReceipt
from ps2stream.benchmarks.verified import verified
from ps2stream.benchmarks.workload import make
from ps2stream.experiments.worlds import SYNTHETIC
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.workers.gi2 import GI2


def test_what_is_lost_and_what_comes_twice_is_told() -> None:
    load = make(SYNTHETIC, "q1", 500, 1, 200, 1, Analyzer(Analysis(salt=1)))
    born = np.arange(1, 502)
    interval = PublishInterval(
        0.0, size=1, offsets=np.arange(200), lsns=np.full(200, 600), rows=np.arange(200),
        born=born, died=np.full(501, 1 << 62),
    )  # fmt: skip
    wanted = verified(load, [interval], [DeliveryReceipt()], 1)
    assert wanted["sampled"] == 200
    assert wanted["lost"] > 0
    assert wanted["doubled"] == 0
    of_none = dict.fromkeys(("wrong", "lost", "doubled"), 0)
    rows = query_rows(load, analyzer := Analyzer(Analysis(salt=1)),
                      Frequencies.of(load.counts, analyzer), 0, 501)  # fmt: skip
    index = GI2(load.grid)
    index.insert(*tags_of(rows, load.grid))
    off, term = analyzer.analyse(load.posts.text_off, load.posts.text)
    found = index.match(600, load.posts.lon, load.posts.lat, off, term)
    got: dict[int, list[int]] = {}
    for row, handle in zip(found.row.tolist(), found.handle.tolist(), strict=True):
        got.setdefault(row, []).append(handle)
    assert (
        verified(load, [interval], [DeliveryReceipt(sample=got)], 1) == {"sampled": 200} | of_none
    )
    some = next(iter(got))
    twice = {**got, some: [*got[some], got[some][0]]}
    told = verified(load, [interval], [DeliveryReceipt(sample=twice)], 1)
    assert told == {"sampled": 200} | of_none | {"wrong": 1, "doubled": 1}
