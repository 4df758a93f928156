"""Pairs of equalities: their texts and terms, when queries are posted under them, and that nothing
is missed or found twice by it."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from ps2stream.language import attribute_kernels as kernels
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column, hash_literals, parse, watch_literals
from ps2stream.language.literals import LiteralKind, WatchedLiterals
from ps2stream.language.object_terms import find_terms, list_compared
from ps2stream.language.pairs import is_pair, pair_text, split_pair
from ps2stream.language.posting import choose_posting, list_pairs, list_units
from ps2stream.language.predicate_terms import mark_names
from ps2stream.language.predicates import is_predicate
from ps2stream.language.query_rows import build_rows
from ps2stream.limits import EXPRESSION_TERMS
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import ExpressionForm, QueryRows
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.routing.tags import QueryTagger
from ps2stream.space.grid import Grid
from ps2stream.space.regions import World
from ps2stream.workers.indexes import INDEXES, IndexName
from tests import naive
from tests.naive_predicates import Scalar
from tests.support.attributes import opaque_column, some_source

ANALYZER = Analyzer(Analysis(salt=7))
GRID = Grid(2, 2)
EQUALITIES = [f"{name} = {value}" for name in ("a", "b", "c") for value in (0, 1, 2)]
KNOWN = Frequencies.of(
    {"flood": 1000, "rare": 1}
    | {f"{name} EXISTS": 900 for name in ("a", "b", "c", "d")}
    | dict.fromkeys(EQUALITIES, 100)
    | {"a = 2": 5, "d = 1": 800, "d = 2": 700},
    ANALYZER,
)


def test_texts_of_pairs_are_told_from_literals_and_read_again() -> None:
    equalities = [
        "a = 1", 'b = "x"', 'b = "x AND c = 1"', '`d AND e` = "AND"', 'f = "(g = 1 AND h = 2)"',
        "`two words` = true", "t = 2026-11-24T10:00:00Z", 'q = " AND b = \\"x"',
    ]  # fmt: skip
    for a, b in itertools.permutations(equalities, 2):
        text = pair_text(a, b)
        assert is_pair(text)
        assert not is_predicate(text)
        assert split_pair(text) == (min(a, b), max(a, b))
        assert not is_pair(a)


@pytest.mark.parametrize(
    "text",
    ["(a = 1)", "(a = 1 AND b > 2)", "(b = 1 AND a = 1)", "(a = 1 AND b = 2 AND c = 3)", "()", "("],
)
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no pair"):
        split_pair(text)


@pytest.mark.parametrize(
    ("source", "posted"),
    [
        ("a = 0 AND b = 1", {"(a = 0 AND b = 1)"}),
        ("b = 1 AND a = 0 AND flood", {"(a = 0 AND b = 1)"}),
        ("a = 0 AND b = 1 AND c = 2", {"(a = 0 AND b = 1)"}),
        ("a = 0 AND b = 1 AND rare", {"rare"}),
        ("a = 2 AND b = 1", {"a = 2"}),  # which is rare by itself
        ("d = 1 AND d EXISTS AND a > 0", {"d = 1"}),
        ("d = 1 AND a = 0", {"a = 0"}),  # of which the pair would be four fifths
        ("a = 0 AND a = 1 AND flood", {"a = 0"}),
        ("a = 0 AND NOT b = 1", {"a = 0"}),
        ("a = 0 AND b > 1", {"a = 0"}),
        ("a = 0 AND e = 1", {"a = 0"}),  # of which nothing is known
        ("a = 0 OR b = 1", {"a = 0", "b = 1"}),
        ("(a = 0 OR rare) AND b = 1", {"(a = 0 AND b = 1)", "rare"}),
        ("a in (0, 1) AND b = 1", {"(a = 0 AND b = 1)", "(a = 1 AND b = 1)"}),
        ("a in (0, 1) AND b in (0, 1)", {"a = 0", "a = 1"}),  # of which four pairs are a fifth
        ("(a = 0 AND b = 1) OR (b = 2 AND c = 1)", {"(a = 0 AND b = 1)", "(b = 2 AND c = 1)"}),
        ("a = 0 AND b = 1 AND c > 1", {"(a = 0 AND b = 1)"}),
    ],
)
def test_a_pair_is_posted_where_it_is_much_rarer(source: str, posted: set[str]) -> None:
    expr = parse(source, ANALYZER)
    assert choose_posting(expr, KNOWN) == posted
    column = compile_column(*strings_to_column([source]), ANALYZER, KNOWN)
    terms = {t for i, t in enumerate(column.term.tolist()) if int(column.post[0]) >> i & 1}
    assert terms == set(hash_literals(ANALYZER, sorted(posted)).tolist())
    assert posted <= {*list_units(expr)}


def test_no_pair_without_statistics_or_room() -> None:
    expr = parse("a = 0 AND b = 1", ANALYZER)
    assert choose_posting(expr, Frequencies.of({"flood": 9}, ANALYZER)) == {"a = 0"}
    words = [f"w{i}" for i in range(EXPRESSION_TERMS - 2)]
    counts = dict.fromkeys(words, 1000) | {f"{name} = 1": 100 for name in "ab"}
    known = Frequencies.of(counts | {f"{name} EXISTS": 900 for name in "ab"}, ANALYZER)
    full = parse(" AND ".join(["a = 1", "b = 1", *words]), ANALYZER)
    assert choose_posting(full, known) == {"a = 1"}
    less = parse(" AND ".join(["a = 1", "b = 1", *words[1:]]), ANALYZER)
    assert choose_posting(less, known) == {"(a = 1 AND b = 1)"}


def test_a_pair_says_what_its_equalities_do() -> None:
    column = compile_column(*strings_to_column(["a = 0 AND b = 1 AND flood"]), ANALYZER, KNOWN)
    assert column.form.tolist() == [ExpressionForm.ALL]
    literals = ["(a = 0 AND b = 1)", "flood"]
    assert column.term.tolist() == sorted(hash_literals(ANALYZER, literals).tolist())
    watched = watch_literals(ANALYZER, literals)
    assert watched.kind.tolist() == [LiteralKind.PAIR]
    assert watched.size.tolist() == [mark_names(ANALYZER.keys, literals[0])]
    column = compile_column(*strings_to_column(["a = 0 AND b = 1 AND c > 1"]), ANALYZER, KNOWN)
    assert len(column.term) == 4, "a program names its literals"


@pytest.mark.parametrize("seed", range(4))
def test_objects_have_the_pairs_that_are_watched(seed: int) -> None:
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(64)]
    equalities = [f"{name} = {value}" for name in names for value in (0, 1)]
    some = rng.sample(list_pairs(sorted(equalities)), 200)
    watched = [*some, *rng.sample(equalities, 5)]
    objects: list[dict[str, Scalar]] = [
        {name: rng.randrange(2) for name in rng.sample(names, rng.choice([0, 1, 2, 9, 64]))}
        for _ in range(60)
    ]
    opaque, view = opaque_column(objects), watch_literals(ANALYZER, watched).view()
    texts = strings_to_column([""] * len(objects))
    off, term = find_terms(ANALYZER, texts, opaque, view)
    of = dict(zip(hash_literals(ANALYZER, watched).tolist(), watched, strict=True))
    for i, attributes in enumerate(objects):
        held = {of[t] for t in term[off[i] : off[i + 1]].tolist() if t in of}
        mine = {f"{name} = {value}" for name, value in attributes.items()}
        want = {x for x in watched if not is_pair(x) and x in mine}
        assert held == want | {x for x in some if mine.issuperset(split_pair(x))}


def test_the_order_of_two_terms_does_not_matter() -> None:
    a, b, c = hash_literals(ANALYZER, ["a = 1", "b = 1", "c = 1"])
    assert kernels.pair_term(a, b) == kernels.pair_term(b, a)
    assert len({int(kernels.pair_term(*two)) for two in ((a, b), (a, c), (b, c), (a, a))}) == 4


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("seed", range(3))
def test_indexes_find_what_is_defined_and_once(index: IndexName, seed: int) -> None:
    rng = random.Random(seed)
    literals = [*EQUALITIES, "d = 1", "d = 2", "a > 0", "b != 1", "flood", "river"]
    sources: list[str] = []
    while len(sources) < 80:
        parts = [" AND ".join(rng.sample(literals, rng.randint(2, 4))) for _ in range(2)]
        drawn = some_source(rng, rng.sample(literals, 5))
        source = rng.choice([parts[0], f"({parts[0]}) OR {parts[1]}", f"{parts[0]} AND {drawn}"])
        if not compile_column(*strings_to_column([source]), ANALYZER, KNOWN).errors:
            sources.append(source)
    rows = compiled(sources)
    kinds = WatchedLiterals.of(rows).kind.tolist()
    assert kinds.count(LiteralKind.PAIR) > 5
    objects = [
        naive.Obj(0.0, 0.0, rng.choice(["flood", "river", "flood river", ""]),
                  {name: rng.randrange(3) for name in "abcd" if rng.random() < 0.8})
        for _ in range(100)
    ]  # fmt: skip
    want = {
        (o, q)
        for o, thing in enumerate(objects)
        for q, source in enumerate(sources)
        if naive.satisfied(source, thing.text, thing.attributes)
    }
    assert found_by(index, rows, objects) == want


def compiled(sources: list[str]) -> QueryRows:
    column = compile_column(*strings_to_column(sources), ANALYZER, KNOWN)
    names = strings_to_column([f"q{i}" for i in range(len(sources))])
    handle = np.arange(1, len(sources) + 1)
    rows = build_rows(names, column, [World()] * len(sources))
    return rows.replace(lsn=handle, handle=handle)


def found_by(name: IndexName, rows: QueryRows, things: list[naive.Obj]) -> set[tuple[int, int]]:
    index = INDEXES[name](GRID)
    tags = QueryTagger(H1(1, np.zeros(16, np.uint32), [HashedLeaf((0,))]), GRID).expand(rows)
    index.insert(rows, tags.off, tags.cell, tags.term)
    view = WatchedLiterals.of(rows).view()
    opaque = opaque_column([thing.attributes for thing in things])
    term_off, term = find_terms(ANALYZER, strings_to_column([t.text for t in things]), opaque, view)
    value_off, value = list_compared(opaque, ANALYZER, view)
    at = np.zeros(len(things))
    found = index.match(len(rows), at, at, term_off, term, value_off=value_off, value=value)
    pairs = list(zip(found.row.tolist(), (found.handle - 1).tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)
