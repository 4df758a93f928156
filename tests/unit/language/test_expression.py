"""Compiled expressions: their programs, postings and notes, and the kernel against the parser."""

from __future__ import annotations

import random
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ps2stream.language.analyzer import TOP, Analysis, Analyzer, Frequencies
from ps2stream.language.boolean import ANY_TEXT, posting_set
from ps2stream.language.expression import (
    ExpressionError,
    canonical,
    compile_column,
    compile_expr,
    frequency_of,
    hash_literals,
    parse,
    satisfies,
    terms_of,
)
from ps2stream.language.literals import size_prefix
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, PROG_OR, ExpressionForm
from tests.support.expressions import LETTERS, LITERALS, LONG, VOCABULARY, source_of, sources

ANALYZER = Analyzer(Analysis(salt=7))
STEMMED = Analyzer(Analysis(salt=7, stemmer="english", stop_words="en"))
COUNTS = {"a": 3, "b": 2, "c": 2, "d": 1, "ab": 5, "abc": 1, "東": 4, "京": 2}
FREQUENCIES = Frequencies.of(COUNTS, ANALYZER)


def frequency(literal: str) -> int:
    return frequency_of(literal, FREQUENCIES)


def test_terms_of_one_hash_are_one_term() -> None:
    """Without a key all hashes are equal: the kernel must leave such rows to the parser."""
    keyless = Analyzer(Analysis(salt=7))
    keyless.keys = np.zeros_like(keyless.keys)
    check_column(["a b", "a OR b", "a", "b a c", "(a b) OR c", "a -b"], keyless)


def split_program(prog: list[int]) -> tuple[list[int], dict[int, tuple[int, int]]]:
    """The program, and the kind and size of each watched literal by the number of its term."""
    if not prog or prog[-1] > PROG_NOTES:
        return prog, {}
    n = PROG_NOTES - prog[-1]
    assert n > 0
    notes = prog[-1 - 2 * n : -1]
    found = {
        at & 0xFF: (at >> 8, size & 0xFFFF)
        for at, size in zip(notes[::2], notes[1::2], strict=True)
    }
    assert len(found) == n
    return prog[: -1 - 2 * n], found


def run(form: ExpressionForm, term: list[int], prog: list[int], has: set[int]) -> bool:
    """The naive twin of a worker's verification."""
    prog, _ = split_program(prog)
    if form != ExpressionForm.PROGRAM:
        assert not prog
        return (all if form == ExpressionForm.ALL else any)(t in has for t in term)
    stack: list[bool] = []
    for op in prog:
        if op in (PROG_AND, PROG_OR):
            b, a = stack.pop(), stack.pop()
            stack.append(a and b if op == PROG_AND else a or b)
        elif op == PROG_NOT:
            stack.append(not stack.pop())
        else:
            stack.append(term[op] in has)
    (truth,) = stack
    return truth


@given(
    source_of(st.sampled_from(LITERALS)),
    st.lists(st.lists(st.sampled_from(VOCABULARY), max_size=6).map(" ".join), max_size=8),
)
@settings(max_examples=500, deadline=None)
def test_the_compiled_form_is_the_expression(source: str, texts: list[str]) -> None:
    try:
        expr = parse(source, ANALYZER)
    except ExpressionError:
        return
    c = compile_expr(expr, ANALYZER, frequency)
    literals = sorted(terms_of(expr))
    hashes = dict(zip(literals, hash_literals(ANALYZER, literals).tolist(), strict=True))
    assert c.term.tolist() == sorted(set(c.term.tolist()))
    assert 0 < c.post < 1 << len(c.term)
    posted = {t for i, t in enumerate(c.term.tolist()) if c.post >> i & 1}
    for text in texts:
        words = ANALYZER.text_words(text)
        has = {int(TOP), *(h for x, h in hashes.items() if words.has(x))}
        truth = satisfies(expr, words)
        assert run(c.form, c.term.tolist(), c.prog.tolist(), has) == truth
        assert not truth or posted & has
    _, notes = split_program(c.prog.tolist())
    assert notes == {
        c.term.tolist().index(hashes[x]): (
            (1, len(x.split(" "))) if x[0] == '"' else (2, size_prefix(x[:-1]))
        )
        for x in literals
        if x[0] == '"' or x[-1] == "*"
    }


@pytest.mark.parametrize(
    ("source", "form", "posted"),
    [
        ("a", "ALL", {"a"}),
        ('"a b"', "ALL", {'"a b"'}),
        ('"a b" ab*', "ALL", {'"a b"'}),
        ('"a b" OR ab* OR c', "ANY", {'"a b"', "ab*", "c"}),
        ("a (b OR ab*)", "PROGRAM", {"b", "a"}),
        ("NOT a", "PROGRAM", {ANY_TEXT}),
        ("a OR NOT d", "PROGRAM", {ANY_TEXT}),
        ("a NOT d", "PROGRAM", {"a"}),
        ("(a OR b) NOT (c d)", "PROGRAM", {"a", "b"}),
        ("(a OR NOT b) d", "PROGRAM", {"d"}),
        ("ab* ab", "ALL", {"ab"}),  # 6 and 5
        ("abc ab*", "ALL", {"abc"}),
        ('a "b a"', "ALL", {'"b a"'}),
        ('b "b a"', "ALL", {'"b a"'}),  # as often at most
        ('d "b a"', "ALL", {"d"}),
        ("unknown* d", "ALL", {"unknown*"}),
    ],
)
def test_forms_and_postings(source: str, form: str, posted: set[str]) -> None:
    expr = parse(source, ANALYZER)
    assert posting_set(expr, frequency) == posted
    c = compile_expr(expr, ANALYZER, frequency)
    assert c.form.name == form
    names = sorted(posted - {ANY_TEXT})
    want = set(hash_literals(ANALYZER, names).tolist()) | (
        {int(TOP)} if ANY_TEXT in posted else set()
    )
    assert {t for i, t in enumerate(c.term.tolist()) if c.post >> i & 1} == want


KNOWN = Frequencies.of(
    {
        "a": 5,
        "b": 900,
        "kind EXISTS": 800,
        'kind = "quake"': 40,
        'kind = "flood"': 700,
        "mag EXISTS": 300,
        "mag = 3": 2,
    },
    ANALYZER,
)


@pytest.mark.parametrize(
    ("source", "posted"),
    [
        ('a kind = "quake"', {"a"}),
        ('b kind = "quake"', {'kind = "quake"'}),
        ('b kind = "flood"', {'kind = "flood"'}),
        ('kind = "quake" mag > 6', {'kind = "quake"'}),
        ('kind = "flood" mag > 6', {"mag > 6"}),
        ("b mag <= 6", {"mag <= 6"}),
        ("a mag = 3", {"mag = 3"}),
        ("a mag = 4", {"mag = 4"}),
        ('kind = "flood" mag EXISTS', {"mag EXISTS"}),
        ('b (kind = "quake" OR mag = 3)', {'kind = "quake"', "mag = 3"}),
        ("b depth = 3", {"b"}),
        ("b depth EXISTS", {"b"}),
        ('kind = "flood" depth = 3', {'kind = "flood"'}),
        ("depth = 3 mag > 6", {"mag > 6"}),
        ("depth = 3 depth > 2", {"depth = 3"}),
        (f'b kind = "{"x" * 300}"', {"b"}),
        ("b NOT mag = 3", {"b"}),
    ],
)
def test_the_rarest_word_or_equality_is_posted(source: str, posted: set[str]) -> None:
    known = partial(frequency_of, frequencies=KNOWN)
    assert posting_set(parse(source, ANALYZER), known) == posted
    column = compile_column(*strings_to_column([source]), ANALYZER, KNOWN)
    terms = {t for i, t in enumerate(column.term.tolist()) if int(column.post[0]) >> i & 1}
    assert terms == set(hash_literals(ANALYZER, sorted(posted)).tolist())


def test_predicates_are_no_words_of_a_sample() -> None:
    assert KNOWN.count_prefix("ki") == KNOWN.get("kind EXISTS") == 0
    assert KNOWN.lookup(ANALYZER.hash_terms(["b", "mag = 3"])).tolist() == [900, 0]


def test_each_literal_has_a_term_of_its_own() -> None:
    literals = ["ab", "ab*", "abc*", '"a b"', '"b a"', '"a b a"', "a", "b"]
    terms = hash_literals(ANALYZER, literals).tolist()
    assert len(set(terms)) == len(literals)
    assert terms[0] == ANALYZER.hash_terms(["ab"])[0]
    assert terms[1] == ANALYZER.prefix_hash("ab")
    assert terms[3] == ANALYZER.phrase_hash(["a", "b"])


def test_the_frequency_of_a_prefix_is_that_of_its_words() -> None:
    rng = random.Random(4)
    words = ["".join(w) for n in (1, 2, 3) for w in product("ab\U0010ffff漢", repeat=n)]
    counts = {w: rng.randrange(9) for w in rng.sample(words, 60)}
    found = Frequencies.of(counts, ANALYZER)
    for prefix in words:
        if not prefix.endswith("\U0010ffff"):
            want = sum(n for w, n in counts.items() if w.startswith(prefix))
            assert frequency_of(prefix + "*", found) >= want - sum(
                n for w, n in counts.items() if w.startswith(prefix + "\U0010ffff")
            )
            assert frequency_of(prefix + "*", found) <= want
    assert frequency_of('"a b"', Frequencies.of({"a": 3, "b": 2}, ANALYZER)) == 2
    assert frequency_of('"a c"', Frequencies.of({"a": 3, "b": 2}, ANALYZER)) == 0


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
            expr = parse(source, analyzer)
        except ExpressionError as error:
            refused = str(error)
            assert str(errors.pop(i)) == refused
            assert row == (ExpressionForm.ALL, 0, [], [], "")
            continue
        c = compile_expr(expr, analyzer, frequency)
        assert row == (c.form, c.post, c.term.tolist(), c.prog.tolist(), canonical(expr)), source
    assert not errors


words = st.sampled_from(
    ["a", "b", "c", "d", "A", "B_1", "#a", "@c", "##b", "#", "_", "a#", "#AND", "@NOT", "NOT", "3"]
)
plain_rows = st.tuples(
    st.lists(words, min_size=1, max_size=6), st.sampled_from([" ", " AND ", " OR ", "\t "])
).map(lambda p: p[1].join(p[0]))


@pytest.mark.takes_turns
@given(st.lists(st.one_of(sources, source_of(st.sampled_from(LITERALS)), plain_rows), max_size=6))
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
