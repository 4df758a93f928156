"""The query language: errors, canonical form, and the kernel against the parser."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language import boolean
from ps2stream.language.analyzer import TOP, Analysis, Analyzer, Frequencies
from ps2stream.language.expression import (
    ExpressionError,
    canonical,
    compile_column,
    compile_expr,
    parse,
    satisfies,
    terms_of,
)
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import PROG_AND, PROG_OR, ExpressionForm
from tests import naive

ANALYZER = Analyzer(Analysis(salt=7))
STEMMED = Analyzer(Analysis(salt=7, stemmer="english", stop_words="en"))
FREQUENCIES = Frequencies.of({"a": 3, "b": 2, "c": 2, "d": 1}, ANALYZER)

WORDS = [
    *("a", "b", "c", "d", "A", "don't", "x-y", "é", "漢字", "👍", "1️⃣", "*️⃣", "FooBar", "a\x00b"),
    *("AND", "OR", "AND", "OR", "(", ")", "NOT", "-a", "'a", "a'", "a*", "a~", '"a', "!", "and"),
    "x" * 130,
]
sources = st.lists(
    st.tuples(st.sampled_from(WORDS), st.sampled_from([" ", "  ", "\t", "\x1f", ""])), max_size=12
).map(lambda pairs: "".join(word + gap for word, gap in pairs))


def source_of(words: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Correct expressions."""
    return st.recursive(
        words,
        lambda part: st.tuples(
            st.lists(part, min_size=1, max_size=4), st.sampled_from([" ", " AND ", " OR "])
        ).map(lambda p: "(" + p[1].join(p[0]) + ")"),
        max_leaves=12,
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("flood AND (river OR creek)", "creek AND flood OR flood AND river"),
        ("b a", "a AND b"),
        ("Storm", "storm"),
        ("a b OR a", "a"),
        ("a (a OR b)", "a"),
        ("a OR b c OR a", "a OR b AND c"),
        ("don't", "don AND t"),
        ("and or", "and AND or"),
        ("((((((((a))))))))", "a"),
    ],
)
def test_canonical_form(source: str, text: str) -> None:
    assert canonical(parse(source, ANALYZER.tokens)) == text


@pytest.mark.parametrize(
    ("source", "column", "message"),
    [
        ("", 1, "expected a keyword"),
        ("  ", 3, "expected a keyword"),
        ("a AND", 6, "expected a keyword"),
        ("OR a", 1, "expected a keyword, not OR"),
        ("a OR OR b", 6, "expected a keyword, not OR"),
        ("é AND )", 7, "expected a keyword, not )"),
        ("()", 2, "expected a keyword, not )"),
        ("(a", 1, "this ( is not closed"),
        ("a) b", 2, "unmatched )"),
        ("a NOT b", 3, "NOT is reserved"),
        ("a -b", 3, "- is reserved"),
        ("ab*", 3, "* is reserved"),
        ("a b~2", 4, "~ is reserved"),
        ('"a b"', 1, '" is reserved'),
        ("'a b'", 1, "' is reserved"),
        ("a !!", 3, "the keyword '!!' has nothing to search for"),
        ("(((((((((a)))))))))", 9, "nested more than 8 levels deep (limit expression_depth)"),
        (
            " ".join(f"t{i}" for i in range(65)),
            247,
            "more than 64 distinct terms (limit expression_terms)",
        ),
        ("a" * 8193, 1, "the expression is over 8192 bytes (limit expression_bytes)"),
        ("é" * 4097, 1, "the expression is over 8192 bytes (limit expression_bytes)"),
    ],
)
def test_errors_point_at_the_column(source: str, column: int, message: str) -> None:
    with pytest.raises(ExpressionError) as error:
        parse(source, ANALYZER.tokens)
    assert (error.value.column, error.value.message) == (column, message)
    assert str(error.value) == f"column {column}: {message}"


def test_a_stop_word_alone_is_refused() -> None:
    with pytest.raises(ExpressionError, match="column 7"):
        parse("a1 OR the", STEMMED.tokens)


@given(sources)
@settings(max_examples=400, deadline=None)
def test_accepts_what_the_semantics_accept(source: str) -> None:
    try:
        naive.parsed(source)
    except ValueError:
        with pytest.raises(ExpressionError):
            parse(source, ANALYZER.tokens)
    else:
        parse(source, ANALYZER.tokens)


@given(source_of(st.sampled_from(["a", "B", "c", "d", "e", "x-y", "é", "👍"])))
@settings(max_examples=300, deadline=None)
def test_satisfies_and_canonical_are_the_semantics(source: str) -> None:
    try:
        expr = parse(source, ANALYZER.tokens)
    except ExpressionError:  # nested too deeply
        return
    text = canonical(expr)
    again = parse(text, ANALYZER.tokens)
    assert canonical(again) == text
    names = ["a", "b", "c", "d", "e", "x", "y", "é", "👍"]
    for bits in range(1 << len(names)):
        terms = frozenset(n for i, n in enumerate(names) if bits >> i & 1)
        truth = naive.satisfied(source, terms)
        assert satisfies(expr, terms) == truth
        assert satisfies(again, terms) == truth


LETTERS = [f"t{i}" for i in range(64)]
LONG = [
    " ".join(f"({LETTERS[2 * i]} OR {LETTERS[2 * i + 1]})" for i in range(32)),
    " OR ".join(f"({LETTERS[i % 64]} {LETTERS[i * 7 % 64]})" for i in range(500)),
    " ".join(f"({LETTERS[i % 64]} OR {LETTERS[(i * 3 + 1) % 64]})" for i in range(500)),
    " ".join("(" + " OR ".join(LETTERS[i * 16 : i * 16 + 16]) + ")" for i in range(4)),
    " OR ".join(
        f"({LETTERS[i % 26]} OR t{i % 38}) (t{i * 3 % 26} OR t{i * 5 % 38})" for i in range(190)
    ),
    "(t1)" * 2000,
    "(" * 8000,
    "OR " * 2700,
    " ".join("ﷺ" for _ in range(2000)),
    "t1 ("
    + " OR ".join(f"{'w' * 100}{i}" for i in range(60))
    + ") ("
    + " OR ".join(LETTERS[:3])
    + ")",
]


@pytest.mark.parametrize("source", LONG, ids=range(len(LONG)))
def test_hostile_expressions_are_handled_or_refused(source: str) -> None:
    try:
        expr = parse(source, ANALYZER.tokens)
    except ExpressionError:
        return
    compile_expr(expr, ANALYZER.hash_terms, FREQUENCIES.get)
    text = canonical(expr)
    assert len(text.encode()) <= 8192
    assert canonical(parse(text, ANALYZER.tokens)) == text


@pytest.mark.parametrize("source", LONG, ids=range(len(LONG)))
def test_an_expansion_stops_at_its_budget(source: str) -> None:
    try:
        expr = parse(source, ANALYZER.tokens)
    except ExpressionError:
        return
    bits = {t: 1 << i for i, t in enumerate(sorted(terms_of(expr)))}
    expansion = boolean._ConjunctExpansion(bits)
    over = expansion.of(expr) is None
    assert expansion.left > -(64**2)  # the step that broke it
    assert over or expansion.left >= 0


def test_what_is_over_the_budget_is_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    expr = parse("(a OR b) (c OR d) (e OR f) (g OR h)", ANALYZER.tokens)
    assert len(boolean.conjuncts.__wrapped__(expr) or ()) == 16
    monkeypatch.setattr(boolean, "_WORK", 50)
    assert boolean.conjuncts.__wrapped__(expr) is None


def test_many_conjuncts_are_not_expanded() -> None:
    pairs = [f"({LETTERS[i]} {LETTERS[j]})" for i in range(13) for j in range(i)]
    for n, expanded in ((64, True), (65, False)):
        found = boolean.conjuncts(parse(" OR ".join(pairs[:n]), ANALYZER.tokens))
        assert (found is not None) == expanded
        assert not expanded or len(found or ()) == n


def test_a_canonical_form_over_the_limit() -> None:
    """AND is left out where that makes it fit; what does not fit even so is refused."""
    words = " ".join(f"{i:02}{'w' * 124}" for i in range(64))
    assert len(words) == 64 * 127 - 1
    assert canonical(parse(words, ANALYZER.tokens)) == words
    check_column([words, words.replace(" ", " OR ")[:8192]], ANALYZER)
    many = " OR ".join(f"ﷺ {a} {b}" for a in "abcdefghijklmnopq" for b in "0123456789rstuv")
    assert len(many.encode()) <= 8192
    with pytest.raises(ExpressionError, match="column 1: the canonical form is over 8192 bytes"):
        parse(many, ANALYZER.tokens)


def test_terms_of_one_hash_are_one_term() -> None:
    """Without a key all hashes are equal: the kernel must leave such rows to the parser."""
    keyless = Analyzer(Analysis(salt=7))
    keyless.keys = np.zeros_like(keyless.keys)
    check_column(["a b", "a OR b", "a", "b a c", "(a b) OR c"], keyless)


def run(form: ExpressionForm, term: list[int], prog: list[int], has: set[int]) -> bool:
    """The naive twin of a worker's verification."""
    if form == ExpressionForm.ALL:
        return all(t in has for t in term)
    if form == ExpressionForm.ANY:
        return any(t in has for t in term)
    stack: list[bool] = []
    for op in prog:
        if op in (PROG_AND, PROG_OR):
            b, a = stack.pop(), stack.pop()
            stack.append(a and b if op == PROG_AND else a or b)
        else:
            stack.append(term[op] in has)
    (truth,) = stack
    return truth


@given(source_of(st.sampled_from(["a", "b", "c", "d", "e"])))
@settings(max_examples=200, deadline=None)
def test_the_compiled_form_is_the_expression(source: str) -> None:
    try:
        expr = parse(source, ANALYZER.tokens)
    except ExpressionError:
        return
    c = compile_expr(expr, ANALYZER.hash_terms, FREQUENCIES.get)
    names = ["a", "b", "c", "d", "e"]
    hashes = dict(zip(names, ANALYZER.hash_terms(names).tolist(), strict=True))
    assert c.term.tolist() == sorted(set(c.term.tolist()))
    assert 0 < c.post < 1 << len(c.term)
    for bits in range(32):
        terms = {n for i, n in enumerate(names) if bits >> i & 1}
        has = {hashes[n] for n in terms}
        assert run(c.form, c.term.tolist(), c.prog.tolist(), has) == satisfies(expr, terms)


def check_column(rows: list[str], analyzer: Analyzer) -> None:
    column = compile_column(*strings_to_column(rows), analyzer, FREQUENCIES)
    errors = dict(column.errors)
    for i, source in enumerate(rows):
        term = column.term[column.term_off[i] : column.term_off[i + 1]].tolist()
        prog = column.prog[column.prog_off[i] : column.prog_off[i + 1]].tolist()
        text = bytes(column.canonical[column.canonical_off[i] : column.canonical_off[i + 1]])
        row = (ExpressionForm(column.form[i]), int(column.post[i]), term, prog, text.decode())
        if source == "":
            assert row == (ExpressionForm.ALL, 1, [int(TOP)], [], "")
            continue
        try:
            expr = parse(source, analyzer.tokens)
        except ExpressionError as error:
            refused = str(error)
            assert str(errors.pop(i)) == refused
            assert row == (ExpressionForm.ALL, 0, [], [], "")
            continue
        c = compile_expr(expr, analyzer.hash_terms, FREQUENCIES.get)
        assert row == (c.form, c.post, c.term.tolist(), c.prog.tolist(), canonical(expr)), source
    assert not errors


@given(st.lists(st.one_of(sources, source_of(st.sampled_from(WORDS[:8]))), max_size=6))
@settings(max_examples=400, deadline=None)
def test_the_kernel_compiles_as_the_parser(rows: list[str]) -> None:
    check_column(rows, ANALYZER)
    check_column(rows, STEMMED)


def test_columns_of_hostile_and_of_plain_rows() -> None:
    plain = [
        "a",
        "b a",
        "a AND b AND c",
        "c OR b OR a OR a",
        "A b-c",
        "a\x1cb",
        "d OR D",
        "b AND c",
    ]
    many = [" OR ".join(LETTERS), " ".join(LETTERS), " ".join(LETTERS) + " t64", "a " * 65]
    check_column([*plain, "", *many, *LONG, "\x00", " ", "x" * 128, "x" * 129], ANALYZER)
    empty = compile_column(np.zeros(1, np.int64), np.zeros(0, np.uint8), ANALYZER, FREQUENCIES)
    assert len(empty.form) == 0
    assert not empty.errors
