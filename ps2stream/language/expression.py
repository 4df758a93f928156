"""The compiler of the query language: from expressions to what workers match with.

The names of parser.py and boolean.py are part of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from ps2stream.language import expression_kernels as kernels
from ps2stream.language.analyzer import ASCII_FOLD, TOP, Analyzer, Frequencies
from ps2stream.language.attribute_kernels import pair_term
from ps2stream.language.batch_tokenizer import check_wanted, is_always_wanted
from ps2stream.language.boolean import (
    ANY_TEXT,
    And,
    Expr,
    Or,
    Term,
    canonical,
    is_flat,
    posting_set,
    satisfies,
    terms_of,
)
from ps2stream.language.compound_kernels import TEXT_ROOM
from ps2stream.language.literal_kernels import phrase_term
from ps2stream.language.literal_texts import is_phrase, is_prefix, phrase_words, prefix_of
from ps2stream.language.literals import LiteralKind, WatchedLiterals, size_prefix
from ps2stream.language.pairs import is_pair, split_pair
from ps2stream.language.parser import ExpressionError, parse, parse_canonical
from ps2stream.language.posting import choose_posting, frequency_of
from ps2stream.language.predicate_terms import (
    hash_predicate,
    kind_of,
    mark_names,
    put_comparison,
)
from ps2stream.language.predicates import is_predicate, predicate_of
from ps2stream.protocol.frame import (
    I16,
    I64,
    U8,
    U64,
    Array,
    column_to_strings,
    concat_ragged,
    sealed,
    strings_to_column,
    take_ragged,
)
from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, PROG_OR, ExpressionForm

__all__ = [
    "And",
    "CompiledColumn",
    "CompiledExpression",
    "Expr",
    "ExpressionError",
    "Or",
    "Term",
    "canonical",
    "compile_column",
    "compile_expr",
    "frequency_of",
    "hash_literals",
    "parse",
    "posting_set",
    "satisfies",
    "terms_of",
    "watch_literals",
]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledExpression:
    """A compiled expression, as workers match with it. term uint64[k] sorted unique; bit i of
    post = term i is in P(q); prog int16[]: postfix if form is PROGRAM, then the notes on watched
    literals (rows.py)."""

    form: ExpressionForm
    term: U64
    post: int
    prog: I16


def compile_expr(
    expr: Expr, analyzer: Analyzer, frequency: Callable[[str], int]
) -> CompiledExpression:
    """Compiles the expression as it is; `frequency` of literals."""
    literals = sorted(terms_of(expr))
    hashes = dict(zip(literals, hash_literals(analyzer, literals).tolist(), strict=True))
    posted = _PostedExpression(expr, literals, posting_set(expr, frequency))
    return _compile_posted(posted, hashes, analyzer)


class _PostedExpression(NamedTuple):
    """An expression, its literals in order, and its posting set."""

    expr: Expr
    literals: list[str]
    posting: frozenset[str]

    @property
    def pairs(self) -> list[str]:
        """The pairs that are posted, which are no literals."""
        return sorted(filter(is_pair, self.posting))


def _compile_posted(
    posted: _PostedExpression, hashes: Mapping[str, int], analyzer: Analyzer
) -> CompiledExpression:
    """Compiles an expression, the terms of whose literals and pairs are among `hashes`."""
    expr, posting, form = posted.expr, posted.posting, _form_of(posted.expr)
    literals, pairs = posted.literals, posted.pairs
    if form == ExpressionForm.ALL:  # where a pair says what its two equalities do
        implied = set(chain.from_iterable(map(split_pair, pairs)))
        literals = [literal for literal in literals if literal not in implied]
    literals = [*literals, *pairs]
    terms = {hashes[x] for x in literals}
    if ANY_TEXT in posting:
        terms.add(int(TOP))
    place = {term: i for i, term in enumerate(sorted(terms))}
    index = {x: place[hashes[x]] for x in literals}
    post = 0
    for literal in posting:
        post |= 1 << (place[int(TOP)] if literal == ANY_TEXT else index[literal])
    prog = list[int]()
    if form == ExpressionForm.PROGRAM:
        _append_program(expr, index, prog)
    _append_notes(literals, index, analyzer, prog)
    return CompiledExpression(form, np.array([*place], np.uint64), post, np.array(prog, np.int16))


def hash_literals(analyzer: Analyzer, literals: Sequence[str]) -> U64:
    """Returns the terms of literals and pairs, uint64[n]."""
    if any(map(is_predicate, literals)) or any(map(is_pair, literals)):
        return _hash_mixed(analyzer, literals)
    phrases = [phrase_words(x) if is_phrase(x) else [] for x in literals]
    found = analyzer.hash_terms([*literals, *chain.from_iterable(phrases)])
    terms, words = found[: len(literals)], found[len(literals) :]
    at = 0
    for i, (literal, phrase) in enumerate(zip(literals, phrases, strict=True)):
        if phrase:
            terms[i] = phrase_term(words[at : at + len(phrase)])
            at += len(phrase)
        elif is_prefix(literal):
            terms[i] = analyzer.prefix_hash(prefix_of(literal))
    return terms


def _hash_mixed(analyzer: Analyzer, literals: Sequence[str]) -> U64:
    """Returns the terms of literals some of which are predicates or pairs."""
    terms = np.empty(len(literals), np.uint64)
    others = [i for i, x in enumerate(literals) if not is_predicate(x) and not is_pair(x)]
    terms[others] = hash_literals(analyzer, [literals[i] for i in others])
    for i, literal in enumerate(literals):
        if is_predicate(literal):
            terms[i] = hash_predicate(analyzer.keys, predicate_of(literal))
        elif is_pair(literal):
            a, b = (hash_predicate(analyzer.keys, predicate_of(x)) for x in split_pair(literal))
            terms[i] = pair_term(np.uint64(a), np.uint64(b))
    return terms


def watch_literals(analyzer: Analyzer, literals: Sequence[str]) -> WatchedLiterals:
    """Returns the phrases, prefixes, predicates and pairs among literals, as objects anywhere are
    searched for them."""
    noted = [(x, note) for x in literals if (note := _note_of(x, analyzer)) is not None]
    kinds, sizes = [note[0] for _, note in noted], [note[1] for _, note in noted]
    terms = hash_literals(analyzer, [x for x, _ in noted])
    return WatchedLiterals.everywhere_of(
        terms, np.array(kinds, np.uint8), np.array(sizes, np.uint16)
    )


def is_watched(literal: str, analyzer: Analyzer) -> bool:
    """Returns whether a literal is none of those words that each object has without a search."""
    return _note_of(literal, analyzer) is not None


def _note_of(literal: str, analyzer: Analyzer) -> tuple[LiteralKind, int] | None:
    """Returns the kind of a watched literal and its size; None for a word, which each object has
    without being searched."""
    if is_pair(literal):
        return LiteralKind.PAIR, mark_names(analyzer.keys, literal)
    if is_predicate(literal):
        return kind_of(predicate_of(literal)), 0
    if is_phrase(literal):
        return LiteralKind.PHRASE, len(phrase_words(literal))
    if is_prefix(literal):
        return LiteralKind.PREFIX, size_prefix(prefix_of(literal))
    return None


def _form_of(expr: Expr) -> ExpressionForm:
    """Returns the form of a compiled expression: any with NOT or a comparison is a program."""
    if not is_flat(expr) or any(map(_is_compared, terms_of(expr))):
        return ExpressionForm.PROGRAM
    return ExpressionForm.ANY if isinstance(expr, Or) else ExpressionForm.ALL


def _is_compared(literal: str) -> bool:
    """Returns whether a literal is a comparison, which workers make."""
    return is_predicate(literal) and kind_of(predicate_of(literal)) is LiteralKind.COMPARED


def _append_program(expr: Expr, index: dict[str, int], prog: list[int]) -> None:
    """Appends the postfix program of an expression."""
    if isinstance(expr, Term):
        if _is_compared(expr.literal):
            put_comparison(predicate_of(expr.literal), index[expr.literal], prog)
        else:
            prog.append(index[expr.literal])
        if expr.negated:
            prog.append(PROG_NOT)
        return
    for i, arg in enumerate(expr.args):
        _append_program(arg, index, prog)
        if i:
            prog.append(PROG_AND if isinstance(expr, And) else PROG_OR)


def _append_notes(
    literals: Sequence[str], index: dict[str, int], analyzer: Analyzer, prog: list[int]
) -> None:
    """Appends the notes on the watched literals (rows.PROG_NOTES), which dispatchers look for in
    objects; each term once."""
    notes: dict[int, int] = {}
    for literal in literals:
        if (note := _note_of(literal, analyzer)) is not None:
            notes[index[literal] | note[0] << 8] = note[1] - (note[1] >> 15 << 16)  # as an int16
    if notes:
        prog += (*chain.from_iterable(notes.items()), PROG_NOTES - len(notes))


# --- columns --------------------------------------------------------------

_STAR = ord("*")
_NO_WORDS = tuple(
    sealed(np.zeros(n, dtype)) for n, dtype in ((1, np.int64), (0, np.uint8), (1, np.int64))
)


@dataclass(frozen=True, slots=True, eq=False)
class CompiledColumn:
    """The columns of n compiled expressions, as in rows.QueryRows; canonical is UTF-8.

    A row of `errors` (row, error) has no terms.
    """

    form: U8
    post: U64
    term_off: I64
    term: U64
    prog_off: I64
    prog: I16
    canonical_off: I64
    canonical: U8
    errors: list[tuple[int, ExpressionError]]


def compile_column(
    off: I64,
    source: U8,
    analyzer: Analyzer,
    frequencies: Frequencies,
    is_wanted: Callable[[], bool] = is_always_wanted,
) -> CompiledColumn:
    """Applies `parse`, `compile_expr` and `canonical` to a column of expressions.

    Empty rows become the region-only query: ALL of [TOP]. ASCII rows of the usual forms go through
    kernels (expression_kernels.py), the others one by one. Raises Cancelled once `is_wanted` says
    that the caller has left.
    """
    rows = len(off) - 1
    slow = np.zeros(rows, np.uint8)
    form = np.zeros(rows, np.uint8)
    post = np.zeros(rows, np.uint64)
    size = int(off[-1] - off[0])
    term_off = np.zeros(rows + 1, np.int64)
    term = np.empty(size + rows, np.uint64)
    text_off = np.zeros(rows + 1, np.int64)
    prog_off, prog = np.zeros(rows + 1, np.int64), np.empty(TEXT_ROOM * size, np.int16)
    text = np.empty(TEXT_ROOM * size, np.uint8)
    words = frequencies.prefix_counts if _STAR in source else _NO_WORDS
    counts = frequencies.table_term, frequencies.table_count, *words
    kernels.compile_rows(
        sealed(off),
        sealed(source),
        analyzer.simple,
        (ASCII_FOLD, sealed(analyzer.keys), *counts),
        (form, post, term_off, term, prog_off, prog, text_off, text, slow),
    )
    term, text = term[: term_off[-1]].copy(), text[: text_off[-1]].copy()
    prog = prog[: prog_off[-1]].copy()
    left = np.flatnonzero(slow)
    errors: list[tuple[int, ExpressionError]] = []
    if left.size:
        sources = column_to_strings(*take_ragged(off, source, left))
        compiled, texts = _compile_slowly(sources, analyzer, frequencies, is_wanted, errors)
        errors = [(int(left[i]), error) for i, error in errors]
        form[left] = [c.form for c in compiled]
        post[left] = np.array([c.post for c in compiled], np.uint64)
        order = np.arange(rows)
        order[left] = rows + np.arange(left.size)
        term_off, term = _merge_rows(term_off, term, _join_rows([c.term for c in compiled]), order)
        prog_off, prog = _merge_rows(prog_off, prog, _join_rows([c.prog for c in compiled]), order)
        text_off, text = _merge_rows(text_off, text, strings_to_column(texts), order)
    return CompiledColumn(form, post, term_off, term, prog_off, prog, text_off, text, errors)


def _compile_slowly(
    sources: Sequence[str],
    analyzer: Analyzer,
    frequencies: Frequencies,
    is_wanted: Callable[[], bool],
    errors: list[tuple[int, ExpressionError]],
) -> tuple[list[CompiledExpression], list[str]]:
    """Returns the compiled expressions and their canonical texts, by the parser; adds to `errors`
    the number of each source that is refused."""
    parsed: list[_PostedExpression | None] = []
    texts: list[str] = []
    for i, source in enumerate(sources):
        check_wanted(is_wanted)
        try:
            expr, text = parse_canonical(source, analyzer)
        except ExpressionError as error:
            # Without its traceback, whose frames would keep the parser.
            errors.append((i, error.with_traceback(None)))
            parsed.append(None)
            texts.append("")
            continue
        posting = choose_posting(expr, frequencies)
        parsed.append(_PostedExpression(expr, sorted(terms_of(expr)), posting))
        texts.append(text)
    literals = sorted(
        set(chain.from_iterable((*each.literals, *each.pairs) for each in parsed if each))
    )
    hashes = dict(zip(literals, hash_literals(analyzer, literals).tolist(), strict=True))
    compiled = [_compile_posted(each, hashes, analyzer) if each else _NOTHING for each in parsed]
    return compiled, texts


_NOTHING = CompiledExpression(ExpressionForm.ALL, np.zeros(0, np.uint64), 0, np.zeros(0, np.int16))


def _join_rows(rows: list[Array]) -> tuple[I64, Array]:
    """Joins arrays, at least one, into a ragged column."""
    off = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(r) for r in rows], out=off[1:])
    return off, np.concatenate(rows)


def _merge_rows(off: I64, data: Array, other: tuple[I64, Array], order: I64) -> tuple[I64, Array]:
    """Returns rows of two ragged columns end to end, taken in `order`."""
    return take_ragged(*concat_ragged([(off, data), other]), order)
