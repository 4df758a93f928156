"""Streams of the shared data and of the papers: sizes, shares, seeds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ps2stream.experiments.keyed.streams import (
    CONTENT,
    FILES,
    LIKE,
    PATHS,
    ROUTES,
    WIKIPEDIA,
    WORDS,
    draw_flipping,
    draw_keys,
    draw_lognormal,
    draw_zipf,
    fit_exponent,
    read_stream,
    real_streams,
    zipf_shares,
)
from ps2stream.experiments.plans import ExperimentSettings


def test_keys_are_drawn_by_their_shares() -> None:
    share = np.array([0.5, 0.0, 0.125, 0.375])
    keys = draw_keys(share, 100_000, np.random.default_rng(1))
    assert np.bincount(keys.astype(int), minlength=4) / 1e5 == pytest.approx(share, abs=0.01)
    assert 1 not in keys


def test_zipf_shares_are_the_papers_formula() -> None:
    assert zipf_shares(4, 1.0) == pytest.approx(np.array([12, 6, 4, 3]) / 25)
    stream = draw_zipf("x", 50, 1.2, 100_000, 3)
    assert stream.counts() / 1e5 == pytest.approx(zipf_shares(50, 1.2), abs=0.01)
    again = draw_zipf("x", 50, 1.2, 100_000, 3)
    assert (again.keys == stream.keys).all()
    assert (draw_zipf("x", 50, 1.2, 100_000, 4).keys != stream.keys).any()


def test_an_exponent_is_fitted_to_the_top_share() -> None:
    assert zipf_shares(1000, fit_exponent(1000, 0.1))[0] == pytest.approx(0.1, rel=1e-6)
    keys, top = LIKE[WIKIPEDIA]
    assert (keys, top) == (2_900_000, 0.0932)
    assert zipf_shares(keys, fit_exponent(keys, top))[0] == pytest.approx(top, rel=1e-9)
    assert fit_exponent(keys, zipf_shares(keys, 1.0)[0]) == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize(("name", "top", "keys"), [("LN1", 0.1471, 3_000), ("LN2", 0.0701, 480)])
def test_the_lognormal_streams_have_the_papers_top_share(name: str, top: float, keys: int) -> None:
    """p1 14.71% and 7.01%; with the paper's 10M tuples they also have its 16k and 1.1k keys."""
    stream = draw_lognormal(name, 300_000, 1)
    assert stream.top_share == pytest.approx(top, abs=0.002)
    assert stream.size > keys
    assert stream.size == len(stream.known()[0])


def test_the_last_fifth_of_a_segment_has_the_ranking_reversed() -> None:
    stream = draw_flipping(100, 1.5, 30_000, 10_000, 1)
    assert len(stream.keys) == 30_000
    for i in range(3):
        part = stream.keys[10_000 * i : 10_000 * (i + 1)].astype(int)
        assert np.bincount(part[:8000]).argmax() == 0
        assert np.bincount(part[8000:]).argmax() == 99
    parts = stream.keys.reshape(3, 10_000)
    assert (parts[0] != parts[1]).any()


def write(folder: Path, name: str, **columns: list[str]) -> None:
    encoded = {key: pa.array(column).dictionary_encode() for key, column in columns.items()}
    pq.write_table(pa.table(encoded), folder / FILES[name])


def test_shared_streams_are_read_as_numbers(tmp_path: Path) -> None:
    write(tmp_path, WORDS, key=["the", "snow", "the", "rain", "snow"])
    write(tmp_path, ROUTES, key=["SEA", "LAX", "SEA"], destination=["LAX", "SEA", "JFK"])
    words = read_stream(WORDS, tmp_path, 4)
    assert (words.keys.tolist(), words.size, words.first) == ([0, 1, 0, 2], 3, None)
    assert words.top_share == 0.5
    assert read_stream(CONTENT, tmp_path, 10).keys.tolist() == [1, 2, 1]
    flights = read_stream(ROUTES, tmp_path, 10)
    assert flights.first is not None
    assert (flights.keys.tolist(), flights.first.tolist()) == ([0, 1, 2], [0, 1, 0])


def test_only_shared_streams_that_there_are_are_read(tmp_path: Path) -> None:
    write(tmp_path, PATHS, key=["a", "b"])
    settings = ExperimentSettings(streams=str(tmp_path), tuples=1)
    assert [len(s.keys) for s in real_streams(settings, WORDS, PATHS)] == [1]
    assert list(real_streams(ExperimentSettings(), PATHS)) == []
