"""Predicates in expressions, from the parser to both indexes, against brute force."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.boolean import Expr
from ps2stream.language.expression import (
    ExpressionError,
    canonical,
    compile_column,
    hash_literals,
    parse,
    satisfies,
    terms_of,
)
from ps2stream.language.literals import WatchedLiterals
from ps2stream.language.object_terms import NO_VALUES, find_terms, list_compared
from ps2stream.language.predicates import Predicate, is_predicate, predicate_of, predicate_text
from ps2stream.language.query_rows import build_rows
from ps2stream.limits import EXPRESSION_BYTES
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.h1 import H1, HashedLeaf
from ps2stream.routing.tags import QueryTagger
from ps2stream.space.grid import Grid
from ps2stream.space.regions import World
from ps2stream.workers.indexes import INDEXES, IndexName
from tests import naive
from tests.naive_predicates import Scalar
from tests.support.attributes import (
    LONGER,
    NAMES,
    TEXTS,
    opaque_column,
    some_attributes,
    some_predicate,
    some_source,
    value_of,
    values_of,
)

ANALYZER = Analyzer(Analysis(salt=7))
STEMMED = Analyzer(Analysis(salt=7, stemmer="english", stop_words="en"))
RARE = Frequencies.of({"a": 3, "b": 2}, ANALYZER)
GRID = Grid(2, 2)
WORDS = ["a", "b", '"a b"', "exists", "ab*"]


def parsed(source: str, analyzer: Analyzer = ANALYZER) -> Expr | None:
    """The expression; None if it is refused."""
    try:
        return parse(source, analyzer)
    except ExpressionError:
        return None


def is_accepted_naively(source: str) -> bool:
    try:
        naive.parsed(source)
    except (ValueError, OverflowError):
        return False
    return True


def satisfied(expr: Expr, text: str, attributes: Mapping[str, Scalar]) -> bool:
    words = dataclasses.replace(ANALYZER.text_words(text), attributes=values_of(attributes))
    return satisfies(expr, words)


def some_objects(rng: random.Random, n: int) -> list[naive.Obj]:
    texts = ["", "a", "b", "a b", "b a", "abc exists"]
    return [naive.Obj(0.0, 0.0, rng.choice(texts), some_attributes(rng)) for _ in range(n)]


@pytest.mark.parametrize("seed", range(30))
def test_expressions_mean_what_they_are_defined_to(seed: int) -> None:
    rng = random.Random(seed)
    outcomes = []
    for _ in range(60):
        literals = [some_predicate(rng) for _ in range(4)] + rng.sample(WORDS, 2)
        source = some_source(rng, literals)
        expr = parsed(source)
        assert (expr is not None) == is_accepted_naively(source), source
        if expr is None:
            continue
        text = canonical(expr)
        again = parse(text, ANALYZER)
        assert canonical(again) == text
        for thing in some_objects(rng, 12):
            truth = naive.satisfied(source, thing.text, thing.attributes)
            assert satisfied(expr, thing.text, thing.attributes) == truth, (source, thing)
            assert satisfied(again, thing.text, thing.attributes) == truth, (text, thing)
            outcomes.append(truth)
    assert 0.1 < np.mean(outcomes) < 0.9


PIECES = [
    *(
        "a",
        "B1",
        "in",
        "IN",
        "exists",
        "EXISTS",
        "existsAND",
        "AND",
        "OR",
        "NOT",
        "-",
        "(",
        ")",
        "（",
        "）",
    ),
    *("=", "!=", "<", "<=", ">", ">=", "≠", "≤", "≥", "==", "!", ",", ", ", "3", "-3", "+.5"),
    *("1e5", "5.", "1e999", "9" * 20, '"x"', '"', '"\\"', '"\\q"', "“x”", "“", "true", "TRUE"),
    *("2026-11-24", "2026-11-24T10:00:00Z", "2026-11-24T10:00", "2026-02-30", "24:00Z", "`a b`"),
    *(
        "`",
        "``",
        "`a\tb`",
        "x.y-z",
        "x-",
        ".x",
        "AND.x",
        "NOT-x",
        "é",
        "e\u0301",
        "_",
        "1a",
        "((1)",
    ),
    *("(1, 2)", '("x", true)', "(x, 1)", "()", "(1,)", "(1 2)", "(true)", '("x" "y")', "\u200f"),
]
hostile = st.lists(
    st.tuples(st.sampled_from(PIECES), st.sampled_from(["", " ", " ", "\n"])), max_size=10
).map(lambda pairs: "".join(word + gap for word, gap in pairs))


@given(hostile)
@settings(max_examples=1500, deadline=None)
def test_what_is_accepted_is_what_the_definition_accepts(source: str) -> None:
    expr = parsed(source)
    assert (expr is not None) == is_accepted_naively(source)
    if expr is None:
        return
    assert canonical(parse(canonical(expr), ANALYZER)) == canonical(expr)
    objects: list[dict[str, Scalar]] = [{}, {"a": 3, "in": "x", "exists": True}]
    objects += [{"a": "x", "B1": 5e4, "x.y-z": -3}]
    for attributes in objects:
        for text in ("", "a in exists 3 x 1 2 true"):
            truth = naive.satisfied(source, text, attributes)
            assert satisfied(expr, text, attributes) == truth


@given(st.lists(hostile, max_size=5))
@settings(max_examples=200, deadline=None)
def test_columns_are_compiled_as_the_parser_reads_them(sources: list[str]) -> None:
    column = compile_column(*strings_to_column(sources), ANALYZER, RARE)
    errors = dict(column.errors)
    for i, source in enumerate(sources):
        text = bytes(column.canonical[column.canonical_off[i] : column.canonical_off[i + 1]])
        expr = parsed(source) if source else None
        assert text.decode() == ("" if expr is None else canonical(expr))
        assert (i in errors) == (expr is None and source != "")


# --- through the indexes ----------------------------------------------------------------


def compiled(sources: Sequence[str], analyzer: Analyzer) -> QueryRows:
    column = compile_column(*strings_to_column(sources), analyzer, RARE)
    assert not column.errors
    names = strings_to_column([f"q{i}" for i in range(len(sources))])
    rows = build_rows(names, column, [World()] * len(sources))
    handle = np.arange(1, len(rows) + 1)
    return rows.replace(lsn=handle, handle=handle)


def found_by(
    name: IndexName, rows: QueryRows, things: Sequence[naive.Obj], analyzer: Analyzer = ANALYZER
) -> set[tuple[int, int]]:
    """The pairs (object, query) that a worker finds which has all queries."""
    index = INDEXES[name](GRID)
    tags = QueryTagger(H1(1, np.zeros(16, np.uint32), [HashedLeaf((0,))]), GRID).expand(rows)
    index.insert(rows, tags.off, tags.cell, tags.term)
    view = WatchedLiterals.of(rows).view()
    opaque = opaque_column([thing.attributes for thing in things], b"\x0a\x03 \xff ")
    texts = strings_to_column([thing.text for thing in things])
    term_off, term = find_terms(analyzer, texts, opaque, view)
    value_off, value = list_compared(opaque, analyzer, view)
    at = np.zeros(len(things))
    found = index.match(len(rows), at, at, term_off, term, value_off=value_off, value=value)
    pairs = list(zip(found.row.tolist(), (found.handle - 1).tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    return set(pairs)


def expected(sources: Sequence[str], things: Sequence[naive.Obj]) -> set[tuple[int, int]]:
    return {
        (o, q)
        for o, thing in enumerate(things)
        for q, source in enumerate(sources)
        if naive.satisfied(source, thing.text, thing.attributes)
    }


@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("seed", range(12))
def test_indexes_find_what_brute_force_finds(seed: int, index: IndexName) -> None:
    rng = random.Random(seed)
    sources: list[str] = []
    while len(sources) < 60:
        literals = [some_predicate(rng, NAMES[:5]) for _ in range(3)] + rng.sample(WORDS, 2)
        source = some_source(rng, literals, rng.choice([0, 1, 3]))
        sources += [source] * (parsed(source) is not None) * rng.choice([1, 1, 2])
    things = [
        naive.Obj(0.0, 0.0, rng.choice(["", "a", "a b", "abc"]), some_attributes(rng, NAMES[:5]))
        for _ in range(50)
    ]
    want = expected(sources, things)
    assert 100 < len(want) < len(sources) * len(things) - 100
    assert found_by(index, compiled(sources, ANALYZER), things) == want


@pytest.mark.parametrize("index", INDEXES)
def test_every_pair_of_values_is_compared_by_every_operator(index: IndexName) -> None:
    """64 comparisons in an expression, of long texts that share their beginnings."""
    values: list[Scalar] = [
        *(t for t in TEXTS if len(t.encode()) <= 256),
        0,
        2**53,
        2**53 + 1,
        -(2**63),
        0.5,
    ]
    quoted = [predicate_text(Predicate("a", "=", value_of(v))).partition("= ")[2] for v in values]
    sources = [f"a {op} {v}" for op in ("=", "!=", "<", "<=", ">", ">=") for v in quoted]
    short = [s for s in sources if len(s) < 100][:63]
    sources += [" OR ".join(short), f"b NOT ({' OR '.join(short)})", "NOT a EXISTS", "a EXISTS"]
    objects: list[Scalar] = [
        *TEXTS,
        *LONGER,
        0,
        -0.0,
        2.0**53,
        2**53 + 1,
        float("inf"),
        -(2.0**63),
        True,
    ]
    things = [naive.Obj(0.0, 0.0, "b", {"a": v, "b": "x"}) for v in objects]
    things.append(naive.Obj(0.0, 0.0, "b", {"b": 1}))
    rows = compiled(sources, ANALYZER)
    assert found_by(index, rows, things) == expected(sources, things)


@pytest.mark.parametrize("index", INDEXES)
def test_programs_of_many_long_texts_are_run_whole(index: IndexName) -> None:
    texts = ["w" * n + end for n in (100, 120) for end in map(chr, range(97, 123))]
    sources = [" ".join(f'a != "{t}"' for t in texts)]
    sources += [" OR ".join(f'(a > "{t}" NOT b{i})' for i, t in enumerate(texts[:31]))]
    things = [naive.Obj(0.0, 0.0, f"b{i}", {"a": t}) for i, t in enumerate([*texts, "w", "x"])]
    assert found_by(index, compiled(sources, ANALYZER), things) == expected(sources, things)


@pytest.mark.parametrize("index", INDEXES)
def test_predicates_stand_beside_stems(index: IndexName) -> None:
    sources = ['flooding AND NOT `the` = "the"', 'floods source in ("USGS", 3)']
    things = [
        naive.Obj(0.0, 0.0, "flooded", attributes)
        for attributes in ({}, {"the": "the"}, {"source": 3.0}, {"source": "usgs"})
    ]
    found = found_by(index, compiled(sources, STEMMED), things, STEMMED)
    assert found == {(0, 0), (2, 0), (3, 0), (2, 1)}


def test_objects_without_attributes_are_not_searched() -> None:
    rows = compiled(["a > 1", "a = 1"], ANALYZER)
    view = WatchedLiterals.of(rows).view()
    texts = strings_to_column(["a", "b"])
    for opaque in (opaque_column([{}, {}]), opaque_column([{}, {}], b"\x0a\x01x")):
        _, term = find_terms(ANALYZER, texts, opaque, view)
        assert len(term) == 4
        assert len(list_compared(opaque, ANALYZER, view).word) == 0
    only_equal = WatchedLiterals.of(rows.take(np.array([1]))).view()
    assert list_compared(opaque_column([{"a": 1}]), ANALYZER, only_equal) is NO_VALUES


# --- texts of literals ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_each_predicate_has_one_text_and_one_term(seed: int) -> None:
    rng = random.Random(seed)
    seen: dict[Predicate, str] = {}
    for _ in range(300):
        expr = parse(some_predicate(rng), ANALYZER)
        for literal in terms_of(expr):
            assert is_predicate(literal)
            found = predicate_of(literal)
            assert seen.setdefault(found, literal) == literal
            assert predicate_text(found) == literal
    literals = [x for p, x in seen.items() if p.op in ("=", "EXISTS")]
    terms = hash_literals(ANALYZER, [*literals, "a", "a*", '"a b"']).tolist()
    assert len(set(terms)) == len(terms)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("`OR-x`=3.0", "OR-x = 3"),
        ("`NOT.a` EXISTS", "NOT.a EXISTS"),
        ("`AND`=3", "`AND` = 3"),
        ("`exists` exists", "`exists` EXISTS"),
        ("x IN(1,1.0,-0,0)", "x = 0 OR x = 1"),
        ("-x in (1, 2)", "NOT x = 1 AND NOT x = 2"),
        ("x ≠ 1e19 y≤“é”", 'x != 1e+19 AND y <= "é"'),
        ('x = "e\u0301\0\t"', 'x = "é\\u0000\\t"'),
        ("t > 2026-11-24T01:30:00.25+01:30", "t > 2026-11-24T00:00:00.250Z"),
        ("t = 2026-11-24", "t = 2026-11-24T00:00:00Z"),
        ("x = " + "0" * 5000 + "7", "x = 7"),
        ("life existsAND b", "b AND existsand AND life"),
    ],
)
def test_canonical_texts(source: str, text: str) -> None:
    assert canonical(parse(source, ANALYZER)) == text
    assert canonical(parse(text, ANALYZER)) == text


def test_a_list_may_say_a_value_more_often_than_an_expression_has_terms() -> None:
    assert canonical(parse(f"a IN ({', '.join(['1'] * 100)})", ANALYZER)) == "a = 1"


def test_texts_are_whole_where_the_canonical_form_leaves_out_and() -> None:
    """AND is left out where the canonical form would be too long: not that of a text."""
    names = [f"n{i:02}{'x' * 50}" for i in range(60)]
    parts = [f'{name} = "{"v" * 70} AND "' for name in names]
    source = " ".join(parts)
    assert len(source) <= EXPRESSION_BYTES < len(" AND ".join(parts))
    text = canonical(parse(source, ANALYZER))
    assert text.count(' AND "') == len(names)
    assert canonical(parse(text, ANALYZER)) == text
    words = [f"d{i:02}" + "w" * 125 for i in range(63)]
    source = "exists " + " ".join(words)
    text = canonical(parse(source, ANALYZER))
    assert len(" AND ".join(words)) > EXPRESSION_BYTES
    assert parse(text, ANALYZER) == parse(source, ANALYZER)


# --- errors -----------------------------------------------------------------------------

NO_NAME = "needs an attribute, perhaps in backquotes, before it and a value after it"
MISSING = "a value is missing: a number, a text in quotes, true or false"


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        ("x = b", 5, 'b is no value; a text stands in quotes: "b"'),
        ("y x = 'b'", 7, "'b' is no value; a text stands in quotes: \"b\""),
        ("x = 9223372036854775808", 5, "9223372036854775808 is beyond 64-bit integers"),
        ("x = " + "9" * 5000, 5, "9" * 40 + " is beyond 64-bit integers"),
        ("x = -1e309", 5, "-1e309 is beyond the numbers of 64 bits"),
        ("x > 2026-02-30", 5, "2026-02-30 is no date or time"),
        ("x > 2026-11-24T", 5, "2026-11-24T is no date or time"),
        (
            "x > 2026-11-24T10:00",
            5,
            "2026-11-24T10:00 has no time zone; write 2026-11-24T10:00Z for UTC",
        ),
        (
            "x > 0001-01-01T00:00+01:00",
            5,
            "0001-01-01T00:00+01:00 is beyond the years 1 to 9999 in UTC",
        ),
        (
            "x < 9999-12-31T23:59-01:00",
            5,
            "9999-12-31T23:59-01:00 is beyond the years 1 to 9999 in UTC",
        ),
        ('x = "a\\q"', 5, r'in a text, \ stands before " or another \ (or as in JSON)'),
        ('x IN (1, "\\ud800")', 10, "a text contains half a surrogate pair"),
        ("x IN ()", 7, MISSING),
        ("x IN (1, )", 9, MISSING),
        ("x IN (1 2)", 9, "a comma stands between two values"),
        ("x IN (1, b)", 10, 'b is no value; a text stands in quotes: "b"'),
        ("x in (1, nan)", 10, 'nan is no value; a text stands in quotes: "nan"'),
        ('x in ("a",, 1)', 11, MISSING),
        ("x in (1,)", 9, MISSING),
        (f"x IN ({','.join(map(str, range(65)))})", 0, "more than 64 distinct terms"),
        (f'x = "{"y" * 1025}"', 5, "a text has 1025 bytes, over the limit attribute_text_bytes"),
        (f'x < "{"é" * 129}"', 5, "a text of 258 bytes is compared by <, over the limit compared"),
        (f"x≠“{'y' * 257}”", 3, "a text of 257 bytes is compared by !=, over the limit compared"),
        (f"b `{'y' * 65}` EXISTS", 3, "the name of an attribute has 65 bytes, over the limit"),
        ("`` = 1", 1, "an attribute has a name"),
        ("`a\tb` = 1", 1, "the name of an attribute contains a control character or a backquote"),
        ("x =", 4, MISSING),
        ("severity=", 10, MISSING),
        ("severity=(3)", 10, MISSING),
        ("x <= AND y", 6, "AND is no value"),
        ('x = "y', 5, MISSING),
        (">= 3", 1, f">= {NO_NAME}"),
        ("1 < x", 3, f"< {NO_NAME}"),
        ("x ! = 3", 3, "the keyword '!' has nothing to search for"),
        ("x == 3", 4, "write = for equal, >= or <= for the rest"),
        ("x <> 3", 4, "write != for not equal"),
        ("x => 3", 4, "write >= for at least"),
        ("x =< 3", 4, "write <= for at most"),
        ("x >> 3", 4, "write one of =, !=, <, <=, > and >="),
        ("x !== 3", 5, "write = for equal"),
        ("x > > 3", 5, "write one of"),
        ("x = 3,5", 5, '3,5 is no value; a text stands in quotes: "3,5"'),
        ("x NOT IN (1, 2)", 3, "NOT stands before the attribute: NOT x ..."),
        ("x NOT EXISTS", 3, "NOT stands before the attribute: NOT x ..."),
        ("x > 2026-11-24 10:00", 5, "2026-11-24 10:00 has no time zone"),
        ("x > 2026-11-24T10:00:00.0005Z", 5, "2026-11-24T10:00:00.0005Z is finer than"),
    ],
)
def test_errors_point_at_the_column(source: str, column: int, message: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse(source, ANALYZER)
    assert error.value.message.startswith(message)
    assert error.value.column == column or not column
    assert not is_accepted_naively(source)
