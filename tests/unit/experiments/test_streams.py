"""The choice of the default: which streams, how much of them, and the verdict."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.experiments import streams
from ps2stream.experiments.plans import TIMED
from ps2stream.experiments.worlds import FULL, SYNTHETIC, StreamSize
from tests.support.small_experiments import SMALL


def test_the_streams_are_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "jodel_ch.parquet").touch()
    assert [*streams.list_streams(SMALL)] == [(SYNTHETIC, SYNTHETIC, False)]
    given = dataclasses.replace(SMALL, posts="p.parquet", streams=str(tmp_path))
    assert [*streams.list_streams(given)] == [
        ("tweets", "p.parquet", False), (TIMED, "p.parquet", True),
        (SYNTHETIC, SYNTHETIC, False), ("jodel", str(tmp_path / "jodel_ch.parquet"), False),
    ]  # fmt: skip


def test_a_short_file_is_planned_from_in_its_first_third(tmp_path: Path) -> None:
    path = str(tmp_path / "p.parquet")
    pq.write_table(pa.table({"text": ["a"] * 1000}), path)
    assert streams.shorten_stream(path, FULL)[:3] == (streams.MOST, 330, 670)
    assert streams.shorten_stream(path, StreamSize(9, 300, 600))[:3] == (9, 300, 600)
    assert streams.shorten_stream(SYNTHETIC, FULL)[:3] == (streams.MOST, 40_000, 100_000)


def test_the_verdict_is_the_geometric_mean_over_hybrid() -> None:
    rows = [
        {"stream": s, "queries": "Q1", "workers": 4, "algorithm": name, "throughput": value}
        for s, plus in (("one", 40.0), ("two", 10.0))
        for name, value in zip(streams.NAMES, (10.0, plus, 5.0, 10.0, 10.0), strict=True)
    ]
    plus, paper, even, _ = streams.make_verdicts(rows)
    assert (plus.verdict, paper.verdict, even.verdict) == ("holds", "reversed", "equal")
    assert plus.measured == (
        "mean 2.00x, least 1.00x (two Q1, 4 workers), most 4.00x (one Q1, 4 workers)"
    )
