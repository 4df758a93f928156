"""The statistics of hot cells from what several dispatchers report."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from ps2stream.language.analyzer import TOP
from ps2stream.language.expression import watch_literals
from ps2stream.planner.adjust import cell_sample
from ps2stream.planner.adjust.cell_sample import statistics
from ps2stream.routing.plan import text_plan
from ps2stream.routing.tags import QueryTags
from tests.naive_predicates import Scalar
from tests.support.attributes import opaque_column
from tests.support.sampled_dispatchers import (
    ANALYZER,
    GRID,
    HOT,
    WORDS,
    SampledDispatcher,
    ask,
    objects,
    posted,
)


def test_what_several_tell_is_joined() -> None:
    """The same words, known by name: objects of both, queries of one."""
    both = [SampledDispatcher(i, posted() | {(20, "w1"): 2}) for i in range(2)]
    rng = np.random.default_rng(5)
    seen: Counter[tuple[int, str]] = Counter()
    for dispatcher in both:
        texts = [" ".join(rng.choice(WORDS, 2, replace=False)) for _ in range(100)]
        cells = [HOT if i % 2 else 20 for i in range(100)]
        seen.update((c, w) for c, t in zip(cells, texts, strict=True) for w in t.split())
        dispatcher.reservoir.add(objects(texts, cells), 5)
    found = statistics([d.told(ask(HOT, 20)) for d in both], GRID, ANALYZER)
    assert found is not None
    units = {
        (int(found.cell[c]), found.terms[t]): (o, q)
        for c, t, o, q in zip(found.unit_cell(), found.term, found.o, found.q, strict=True)
    }
    queries = posted() | {(20, "w1"): 2}
    assert units == {key: (seen[key], n) for key, n in queries.items()}
    assert found.objects.tolist() == [100.0, 100.0]


def test_an_infinite_value_gives_no_unit_its_name() -> None:
    """Its text is no equality: as the name of a unit, no plan could be made with it."""
    dispatcher = SampledDispatcher(0, {(HOT, "mag COMPARED"): 2})
    held: list[dict[str, Scalar]] = [{"mag": float("inf")}, {"mag": float("-inf")}] * 2
    literals = watch_literals(ANALYZER, ["mag COMPARED"]).view()
    dispatcher.reservoir.add(objects(["w1"] * 4, [HOT] * 4, opaque_column(held), literals), 5)
    found = statistics([dispatcher.told(ask(HOT))], GRID, ANALYZER)
    assert found is not None
    units = {found.terms[t]: (o, q) for t, o, q in zip(found.term, found.o, found.q, strict=True)}
    assert units == {"mag COMPARED": (4, 2)}
    text_plan(ANALYZER.analysis, GRID, 1, dict.fromkeys(units, 0)).compile(ANALYZER)


def test_units_of_all_kinds_are_known_by_name() -> None:
    names = ['kind = "quake"', "mag = 3", "mag EXISTS", "mag COMPARED"]
    names += ['(kind = "quake" AND mag = 3)', '"w1 w2"', '"w2 w1 w1"', "w1x*", '"w8 w9"']
    queries = {(HOT, name): 2 + i for i, name in enumerate(names)} | {(HOT, "w1"): 11}
    both = [SampledDispatcher(i, queries) for i in range(2)]
    held: list[dict[str, Scalar]] = [{"kind": "quake", "mag": 3}, {"mag": 4}, {}, {"kind": "fire"}]
    literals = watch_literals(ANALYZER, names).view()
    texts = ["w1", "w1 w2 w1 w1", "w1xy w1", "w2, w1"]
    both[0].reservoir.add(objects(texts, [HOT] * 4, opaque_column(held), literals), 5)
    both[1].reservoir.add(objects(["w2"] * 3, [HOT] * 3), 5)  # without attributes
    found = statistics([d.told(ask(HOT)) for d in both], GRID, ANALYZER)
    assert found is not None
    units = {found.terms[t]: (o, q) for t, o, q in zip(found.term, found.o, found.q, strict=True)}
    assert units == {
        'kind = "quake"': (1, 2), "mag = 3": (1, 3), "mag EXISTS": (2, 4), "mag COMPARED": (2, 5),
        '(kind = "quake" AND mag = 3)': (1, 6), '"w1 w2"': (1, 7), '"w2 w1 w1"': (1, 8),
        "w1x*": (1, 9), "w1": (4, 11),
    }  # fmt: skip
    text_plan(ANALYZER.analysis, GRID, 1, dict.fromkeys(units, 0)).compile(ANALYZER)


def test_of_many_literals_those_with_most_queries_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cell_sample, "NAMED", 2)
    names = [f'"w{i} w{i + 1}"' for i in range(5)]
    dispatcher = SampledDispatcher(0, {(HOT, name): 2 + i for i, name in enumerate(names)})
    literals = watch_literals(ANALYZER, names).view()
    dispatcher.reservoir.add(objects(["w0 w1 w2 w3 w4 w5"], [HOT], None, literals), 5)
    told = dispatcher.told(ask(HOT))
    found = statistics([told, told], GRID, ANALYZER)
    assert found is not None
    assert found.terms == ('"w3 w4"', '"w4 w5"')


def test_the_time_that_all_cover_counts() -> None:
    quiet, busy = SampledDispatcher(0, posted()), SampledDispatcher(1, posted())
    quiet.reservoir.add(objects(["w0"] * 50, [HOT] * 50), 10)  # long ago
    quiet.reservoir.add(objects(["w1"] * 5, [HOT] * 5), 900)
    for ms in range(800, 1000):
        busy.reservoir.add(objects(["w2"] * 10, [HOT] * 10), ms)
    told = [d.told(ask(HOT)) for d in (quiet, busy)]
    found = statistics(told, GRID, ANALYZER)
    assert found is not None
    assert set(found.terms) == {"w1", "w2"}
    top = dataclasses.replace(told[1], since=2000)
    assert statistics([told[0], top], GRID, ANALYZER) is None


def test_queries_without_words_are_terms_like_others() -> None:
    dispatcher = SampledDispatcher(0, posted())
    none = np.zeros(1, np.uint32)
    dispatcher.gridt.insert(
        QueryTags(
            np.arange(2),
            none,
            np.array([TOP], np.uint64),
            none.astype(np.uint16),
            none.astype(np.uint64),
        )
    )
    dispatcher.reservoir.add(objects(["w1 w2"] * 9, [HOT] * 9), 5)
    found = statistics([dispatcher.told(ask(HOT))], GRID, ANALYZER)
    assert found is not None
    assert found.terms == ("", "w1", "w2")
    assert found.o.tolist() == [9.0] * 3
