"""Queries with predicates: what an index finds of them is what they say, and their rows are those
of the compiler."""

from __future__ import annotations

import numpy as np
import pytest

from ps2stream.benchmarks.engine import IndexEngine, run_engine
from ps2stream.benchmarks.post_batches import BATCH
from ps2stream.benchmarks.predicates import PredicateKind, QueryPredicates
from ps2stream.benchmarks.query_tags import query_rows
from ps2stream.benchmarks.variants import NO_SHARES, QueryVariants
from ps2stream.benchmarks.workload import make
from ps2stream.errors import InvalidArgument
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.predicates import predicate_text
from ps2stream.protocol.frame import strings_to_column
from ps2stream.workers.indexes import INDEXES, IndexName

ANALYZER = Analyzer(Analysis(salt=1))
LOAD = make("synthetic", "q1", 8_000, 1_000, 2 * BATCH, 1, ANALYZER)
OBJECTS = ANALYZER.analyse(LOAD.posts.text_off, LOAD.posts.text)


def predicates_of(kind: PredicateKind, values: int) -> QueryPredicates:
    return QueryPredicates(kind, values, LOAD, OBJECTS, ANALYZER, 1)


def engine_of(predicates: QueryPredicates | None, index: IndexName = "gi2-radix") -> IndexEngine:
    variants = QueryVariants(LOAD, NO_SHARES, ANALYZER, 1)
    engine = IndexEngine(variants, ANALYZER, OBJECTS, INDEXES[index], predicates)
    engine.fill()
    engine.update()
    return engine


@pytest.mark.takes_turns
@pytest.mark.parametrize("index", ["gi2-radix", "gi2-flat"])
@pytest.mark.parametrize(
    ("kind", "values", "share"),
    [("equal", 1, 1.0), ("equal", 2, 0.25), ("equal", 500, 0.0), ("range", 50, 0.25),
     ("range", 1_000_000, 0.25)],
)  # fmt: skip
def test_an_index_finds_what_the_predicates_say(
    kind: PredicateKind, values: int, share: float, index: IndexName
) -> None:
    engine = engine_of(predicates_of(kind, values), index)
    matches = engine.round()["matches_per_object"]
    plain = engine_of(None, index)
    assert matches / plain.round()["matches_per_object"] == pytest.approx(share, abs=0.05)
    assert engine.differences(ANALYZER, BATCH, 1) == 0
    plain.predicates = predicates_of(kind, 3)
    assert plain.differences(ANALYZER, BATCH, 1) > 0


@pytest.mark.parametrize(("kind", "values"), [("equal", 1), ("equal", 500), ("range", 50)])
def test_rows_with_predicates_are_those_of_the_compiler(kind: PredicateKind, values: int) -> None:
    predicates, counts = predicates_of(kind, values), dict(LOAD.counts)
    n, texts = 300, []
    for q, expression in enumerate(LOAD.expressions()[:n]):
        both = [
            predicates._make_predicate(k, predicates._wanted[q, k], predicates._order[q, k])
            for k in range(2)
        ]
        texts.append(f"({expression}) AND {' AND '.join(map(predicate_text, both))}")
    frequencies = Frequencies.of(counts, ANALYZER)
    rows = predicates.change_rows(query_rows(LOAD, ANALYZER, frequencies, 0, n), 0)
    compiled = compile_column(*strings_to_column(texts), ANALYZER, frequencies)
    assert rows.term.tolist() == compiled.term.tolist()
    assert rows.form.tolist() == compiled.form.tolist()
    sizes = np.diff(rows.prog_off), np.diff(compiled.prog_off)
    assert sizes[0].tolist() == sizes[1].tolist()
    if kind == "range":  # with no sample of equalities the compiler takes them for rare
        assert rows.post.tolist() == compiled.post.tolist()


@pytest.mark.takes_turns
def test_a_run_compares_with_the_queries_as_they_were() -> None:
    found = run_engine(queries=1_000, runs=1, predicates="range", values=9)
    assert found["verified"]["different"] == 0
    assert 0 < found["over_plain"]["median"] < 2
    assert found["matches_per_object"] < found["plain"]["matches_per_object"]
    assert found["attribute_search_us_per_object"] < 50


def test_negated_words_are_refused_beside_predicates() -> None:
    shares = NO_SHARES.__class__(negated=0.5)
    with pytest.raises(InvalidArgument, match="negated"):
        run_engine(queries=10, shares=shares, predicates="equal")
