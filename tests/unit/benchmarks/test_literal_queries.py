"""Queries with phrases, prefixes and NOT, and their twins of plain words."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from ps2stream.benchmarks.engine import IndexEngine, run_engine
from ps2stream.benchmarks.literal_queries import LiteralTwins, make_twins
from ps2stream.benchmarks.post_batches import BATCH
from ps2stream.benchmarks.variants import NO_SHARES, QueryVariants
from ps2stream.benchmarks.workload import Workload, make
from ps2stream.errors import InvalidArgument
from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.frame import column_to_strings
from ps2stream.workers.indexes import INDEXES

ANALYZER = Analyzer(Analysis(salt=1))


@functools.cache
def make_load() -> Workload:
    return make("synthetic", "q1", 8_000, 1_000, 4 * BATCH, 1, ANALYZER)


@functools.cache
def make_both() -> LiteralTwins:
    return make_twins(make_load(), 0.5, ANALYZER, 1)


def engine_of(load: Workload) -> IndexEngine:
    posts = make_load().posts
    objects = ANALYZER.analyse(posts.text_off, posts.text)
    variants = QueryVariants(load, NO_SHARES, ANALYZER, 1)
    engine = IndexEngine(variants, ANALYZER, objects, INDEXES["gi2-radix"])
    engine.fill()
    engine.update()
    return engine


def test_a_third_of_the_share_each_has_a_phrase_a_prefix_and_not() -> None:
    literal, plain = make_both().literal.expressions(), make_both().plain.expressions()
    of_kind = {
        kind: sum(kind in text for text in literal) / len(literal) for kind in ('"', "*", "NOT")
    }
    assert all(0.14 < share < 0.19 for share in of_kind.values())
    assert not any(kind in text for kind in of_kind for text in plain)
    assert 0.45 < np.mean([a != b for a, b in zip(literal, plain, strict=True)]) < 0.52
    assert (make_both().plain.interests.rect == make_load().interests.rect).all()


@pytest.mark.takes_turns
def test_a_twin_holds_for_about_as_many_texts() -> None:
    texts = [
        ANALYZER.text_words(t)
        for t in column_to_strings(make_load().posts.text_off, make_load().posts.text)
    ]
    changed = [
        i
        for i, (a, b) in enumerate(
            zip(make_both().literal.expressions(), make_both().plain.expressions(), strict=True)
        )
        if a != b
    ][:200]
    held = np.array(
        [[sum(load.holds(i, text) for text in texts) for load in make_both()] for i in changed]
    )
    assert 0.9 < held[:, 0].sum() / held[:, 1].sum() < 1.1


def test_an_index_finds_what_the_literals_say() -> None:
    engine, plain = engine_of(make_both().literal), engine_of(make_both().plain)
    found, without = (each.round(ANALYZER) for each in (engine, plain))
    assert 0.9 < found["matches_per_object"] / without["matches_per_object"] < 1.1
    assert found["tuples_per_cpu_second_with_texts"] < found["tuples_per_cpu_second"]
    assert engine.differences(ANALYZER, BATCH, 1) == 0
    plain.load = engine.load
    assert plain.differences(ANALYZER, BATCH, 1) > 0


def test_a_seed_makes_the_same_queries() -> None:
    again = make_twins(make_load(), 0.5, Analyzer(Analysis(salt=1)), 1)
    for one, other in zip(again, make_both(), strict=True):
        assert one.expressions() == other.expressions()


def test_only_one_thing_is_measured_at_a_time() -> None:
    with pytest.raises(InvalidArgument, match="literals"):
        run_engine(queries=10, predicates="equal", literals=0.1)
