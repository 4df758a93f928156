"""The demo's oracle and its bookkeeping: a wrong delivery is never called equal."""

from __future__ import annotations

import math
from itertools import islice

import numpy as np
import pyarrow as pa

from ps2stream.demo.gazetteer import (
    FLOOD_EACH,
    LONDON,
    distinctive,
    made_posts,
    make_query,
    seeds_of,
    tell_of_flood,
)
from ps2stream.demo.tally import DeliveryTally, PublishedBatch
from ps2stream.demo.verify import BruteForceOracle, Place, SampledObject
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.language.expression import parse
from ps2stream.posts.arrow_columns import SCHEMA
from ps2stream.posts.post import paced
from ps2stream.space.places import load_places
from ps2stream.space.regions import Circle, Rect

ANALYSIS = Analysis(salt=0)
HERE = Rect(0, 0, 1, 1)


def oracle() -> BruteForceOracle:
    found = BruteForceOracle(ANALYSIS)
    found.inserted("a", "flood", None, 1)
    found.inserted("b", "flood AND river", HERE, 2)
    found.inserted("c", "", HERE, 3)
    found.deleted("a", 5)
    found.inserted("a", "storm", None, 6)
    return found


def sample(lsn: int, text: str = "River flood", lon: float = 0.5) -> SampledObject:
    return SampledObject((0, 7), lsn, lon, 0.5, text)


def test_queries_match_while_they_live() -> None:
    judge = oracle()
    assert [judge.expected(sample(lsn)) for lsn in range(7)] == [
        [],
        ["a"],
        ["a", "b"],
        ["a", "b", "c"],
        ["a", "b", "c"],
        ["b", "c"],
        ["b", "c"],
    ]
    assert judge.expected(sample(6, "storm", lon=2.0)) == ["a"]


def test_missing_unexpected_and_repeated_deliveries_differ() -> None:
    judge = oracle()
    one = sample(4)
    deliveries: dict[str, list[str]] = {
        "equal": ["c", "a", "b"],
        "missing": ["a", "b"],
        "unexpected": ["a", "b", "c", "d"],
        "repeated": ["a", "b", "c", "c"],
    }
    found = {
        name: list(judge.differences([one], {one.place: ids})) for name, ids in deliveries.items()
    }
    assert found["equal"] == []
    assert found["missing"][0].missing == ("c",)
    assert found["unexpected"][0].unexpected == ("d",)
    assert found["repeated"][0].repeated == ("c",)
    assert len(list(judge.differences([one], {}))) == 1


def batch(count: int) -> pa.RecordBatch:
    rows = [{"id": "", "time": 0, "lon": 1.0, "lat": 2.0, "text": str(i)} for i in range(count)]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def test_latency_counts_from_the_intended_time_also_when_the_match_comes_first() -> None:
    tally = DeliveryTally(keep=100)
    tally.received((0, 11), "q", at=5.25)
    tally.published(PublishedBatch(0, 10, 1, due=5.0, rows=batch(4)))
    tally.published(PublishedBatch(0, 14, 1, due=math.nan, rows=batch(4)))
    tally.received((0, 13), "q", at=5.75)
    tally.received((0, 15), "q", at=9.0)
    assert tally.latency_ms() == {"p50": 500.0, "p90": 700.0, "p99": 745.0, "max": 750.0}
    assert (tally.objects, tally.matches) == (8, 3)


def test_the_sample_holds_delivered_objects_and_others_and_forgets_the_oldest() -> None:
    tally = DeliveryTally(keep=100)
    for start in range(0, 200, 20):
        tally.published(PublishedBatch(0, start, 1, 0.0, batch(20)))
        tally.received((0, start), "q", 0.0)
    found = tally.sample(50, np.random.default_rng(1))
    places: list[Place] = [one.place for one in found]
    assert len(set(places)) == 50
    assert min(places) >= (0, 100)
    assert {(0, start) for start in range(100, 200, 20)} <= set(places)
    assert all(one.text == str(one.place[1] % 20) for one in found)
    assert min(tally.delivered) >= (0, 100)


def test_batches_wait_for_their_turn() -> None:
    now = [0.0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    for part in paced([batch(10), batch(10), batch(10)], 20.0, lambda: now[0], sleep):
        now[0] += 0.1 * (len(part) > 0)
    assert np.allclose(slept, [0.4, 0.4])
    assert len(list(paced([batch(1)], None, lambda: now[0], sleep))) == 1


def test_made_posts_and_queries_are_seeded_and_valid() -> None:
    assert len(load_places()) > 20_000
    analyzer = Analyzer(ANALYSIS)
    first, again = (next(made_posts(np.random.default_rng(3), 200)) for _ in range(2))
    assert first.equals(again)
    seeds = distinctive(seeds_of(first, analyzer), 0.05)
    random = np.random.default_rng(4)
    for _ in range(2000):
        query = make_query(random, seeds)
        assert query.expression or query.region
        if query.expression:
            parse(query.expression, analyzer)


def test_a_flood_in_london_is_told_of_in_every_so_many_posts() -> None:
    posts = islice(made_posts(np.random.default_rng(3), 50), 8)
    told = list(tell_of_flood(posts, np.random.default_rng(1)))
    plain = list(islice(made_posts(np.random.default_rng(3), 50), 8))
    assert [batch.schema for batch in told] == [SCHEMA] * 8
    rows = [row for batch in told for row in batch.to_pylist()]
    others = [row for batch in plain for row in batch.to_pylist()]
    area = Circle(*LONDON, 30)
    for i, (row, other) in enumerate(zip(rows, others, strict=True)):
        if i % FLOOD_EACH:
            assert row == other
        else:
            assert "flood" in row["text"]
            assert area.contains(row["lon"], row["lat"])
