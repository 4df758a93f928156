"""The Numba kernels that compile expressions of ASCII words with phrases, prefixes, NOT and
parentheses, for which the kernel of plain keywords (expression_kernels.py) is too simple.

They take a conjunction of literals, each perhaps behind NOT or a minus, parentheses around some of
them, and one disjunction in parentheses among them: `"rising water" AND river`, `(a OR b*) NOT c`;
and a disjunction by itself. At least one literal must not be negated. What they return is exactly
what the parser does (parser.py, posting.py). Anything that is not surely one of these forms is left
to it: any other character, a word that may belong to a predicate, an error, two parts with a
literal in common.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numba import njit

from ps2stream.language.analyzer_kernels import probe_count
from ps2stream.language.area_kernels import Integer
from ps2stream.language.compound_reader_kernels import (
    ASKED,
    CHOICE,
    NEGATED,
    QUOTE,
    RowLiterals,
    order_literals,
    read_literals,
)
from ps2stream.language.hash_kernels import token_hash
from ps2stream.language.literal_kernels import (
    OF_PHRASE,
    OF_PREFIX,
    extend_phrase,
    finish_phrase,
    hash_head,
    mark_prefix,
    start_phrase,
)
from ps2stream.language.prefix_kernels import count_prefix
from ps2stream.language.word_kernels import ZERO
from ps2stream.limits import EXPRESSION_BYTES, EXPRESSION_TERMS
from ps2stream.protocol.frame import I16, I64, U8, U64
from ps2stream.protocol.rows import PROG_AND, PROG_NOT, PROG_NOTES, PROG_OR, ExpressionForm

TEXT_ROOM: Final = 4
"""Bytes of canonical text and elements of the program that a byte of source may become."""
_ALL: Final = np.uint8(ExpressionForm.ALL)
_ANY: Final = np.uint8(ExpressionForm.ANY)
_PROGRAM: Final = np.uint8(ExpressionForm.PROGRAM)
_ONE: Final = np.uint64(1)
_AND_TEXT: Final = np.frombuffer(b" AND ", np.uint8)
_OR_TEXT: Final = np.frombuffer(b" OR ", np.uint8)
_NOT_TEXT: Final = np.frombuffer(b" AND NOT ", np.uint8)
_MOST_CHOICES: Final = 16  # beside other literals: the parser gives up what takes it many steps


class KeywordTables(NamedTuple):
    """What keywords are folded, hashed and compared by, C-contiguous. lut uint8[256] folds ASCII,
    0 = separator; keys uint64[KEYS]; term uint64[2^k] and counts int64[2^k]: the table of
    frequencies; words_off int64[n + 1], words uint8[] and before int64[n + 1]: its words in order,
    and the sums of the counts before each of them and of all, or of no words where no row has a
    prefix."""

    lut: U8
    keys: U64
    term: U64
    counts: I64
    words_off: I64
    words: U8
    before: I64


class ExpressionBuffers(NamedTuple):
    """Room for n compiled expressions, C-contiguous, writable. form uint8[n], post uint64[n];
    ragged: term uint64[bytes + n], prog int16[TEXT_ROOM * bytes] and text uint8[TEXT_ROOM * bytes];
    slow uint8[n]: 0, and 1 for a row left empty."""

    form: U8
    post: U64
    term_off: I64
    term: U64
    prog_off: I64
    prog: I16
    text_off: I64
    text: U8
    slow: U8


@njit(inline="always")
def _hash_literal(
    tables: KeywordTables, text: U8, begin: Integer, size: Integer, words: Integer
) -> tuple[np.uint64, np.int64]:
    """Returns the term of a literal, and how many objects of the sample can have it at most."""
    keys, lut = tables.keys, tables.lut
    if words == 0:
        marked = mark_prefix(token_hash(keys, text, begin, begin + size - 1, lut))
        return marked, count_prefix(
            tables.words_off, tables.words, tables.before, text, begin, begin + size - 1
        )
    if words == 1:
        hashed = token_hash(keys, text, begin, begin + size, lut)
        return hashed, probe_count(tables.term, tables.counts, hashed)
    sum_, fewest = start_phrase(), np.int64(-1)
    p = begin + 1
    for i in range(p, begin + size):
        if text[i] == 32 or text[i] == QUOTE:
            word = token_hash(keys, text, p, i, lut)
            sum_ = extend_phrase(sum_, word)
            count = probe_count(tables.term, tables.counts, word)
            if fewest < 0 or count < fewest:
                fewest = count
            p = i + 1
    return finish_phrase(sum_, words), fewest


@njit(inline="always")
def _put_text(text: U8, m: Integer, piece: U8, begin: Integer, size: Integer) -> np.int64:
    """Appends a piece of text; returns the new end."""
    for x in range(begin, begin + size):
        text[m] = piece[x]
        m += 1
    return np.int64(m)


@njit(cache=True, nogil=True)
def _write_text(
    k: Integer, choices: Integer, found: tuple[U8, I64, I64, I64, I64, I64], out: U8, m: Integer
) -> np.int64:
    """Appends the canonical text: a conjunction, or one for each of the choices, which are then in
    the order of their texts, as a space is less than what a word has; returns the new end."""
    row = RowLiterals(*found)
    text, begin, size, part, order = row.text, row.begin, row.size, row.part, row.order
    given = ZERO  # choices that are written
    while given < max(choices, 1):
        if given:
            m = _put_text(out, m, _OR_TEXT, ZERO, _OR_TEXT.shape[0])
        is_first = True
        seen = ZERO
        for x in range(k):
            i = order[x]
            is_mine = part[i] == ASKED
            if part[i] == CHOICE:
                is_mine = seen == given
                seen += 1
            if is_mine:
                if not is_first:
                    m = _put_text(out, m, _AND_TEXT, ZERO, _AND_TEXT.shape[0])
                m = _put_text(out, m, text, begin[i], size[i])
                is_first = False
        for x in range(k):
            i = order[x]
            if part[i] == NEGATED:
                m = _put_text(out, m, _NOT_TEXT, ZERO, _NOT_TEXT.shape[0])
                m = _put_text(out, m, text, begin[i], size[i])
        given += 1
    return np.int64(m)


@njit(cache=True, nogil=True)
def _write_program(
    k: Integer, found: tuple[U8, I64, I64, I64, I64, I64], place: I64, out: I16, m: Integer
) -> np.int64:
    """Appends the postfix program of a conjunction with perhaps a disjunction in it, which stands
    where the first of its literals would; returns the new end."""
    row = RowLiterals(*found)
    part, order = row.part, row.order
    values = ZERO  # on the stack
    is_chosen = False
    for x in range(k):
        here = part[order[x]]
        if here == NEGATED or (here == CHOICE and is_chosen):
            continue
        out[m] = place[x]
        m += 1
        if here == CHOICE:
            is_chosen = True
            for y in range(x + 1, k):
                if part[order[y]] == CHOICE:
                    out[m] = place[y]
                    out[m + 1] = PROG_OR
                    m += 2
        if values:
            out[m] = PROG_AND
            m += 1
        values += 1
    for x in range(k):
        if part[order[x]] == NEGATED:
            out[m] = place[x]
            out[m + 1] = PROG_NOT
            out[m + 2] = PROG_AND
            m += 3
    return np.int64(m)


@njit(cache=True, nogil=True)
def _write_notes(
    k: Integer, found: tuple[U8, I64, I64, I64, I64, I64], place: I64, out: I16, m: Integer
) -> np.int64:
    """Appends the notes on phrases and prefixes (rows.PROG_NOTES); returns the new end."""
    row = RowLiterals(*found)
    text, begin, size, words, order = row.text, row.begin, row.size, row.words, row.order
    notes = ZERO
    for x in range(k):
        i = order[x]
        if words[i] == 1:
            continue
        if words[i]:
            out[m] = place[x] | OF_PHRASE << 8
            out[m + 1] = words[i]
        else:
            head = hash_head(text[begin[i]], text[begin[i] + 1])
            out[m] = place[x] | OF_PREFIX << 8
            out[m + 1] = np.int16(np.uint16(size[i] - 1 | head << 8))
        m += 2
        notes += 1
    if notes:
        out[m] = PROG_NOTES - notes
        m += 1
    return np.int64(m)


@njit(inline="always")
def _choose_posting(
    k: Integer, found: tuple[U8, I64, I64, I64, I64, I64], place: I64, count: I64
) -> np.uint64:
    """Returns the bits of P(q): of each conjunction its rarest literal, of equally rare ones the
    first by its text."""
    row = RowLiterals(*found)
    part, order = row.part, row.order
    best = np.int64(-1)
    has_choice = False
    for x in range(k):
        here = part[order[x]]
        has_choice |= here == CHOICE
        if here == ASKED and (best < 0 or count[x] < count[best]):
            best = np.int64(x)
    post = _ONE - _ONE
    for x in range(k):
        if part[order[x]] == CHOICE:
            is_rarer = best < 0 or count[x] < count[best] or (count[x] == count[best] and x < best)
            post |= _ONE << np.uint64(place[x] if is_rarer else place[best])
    return post if has_choice else _ONE << np.uint64(place[best])


@njit(cache=True, nogil=True)
def compile_compound(
    row: Integer,
    span: tuple[U8, np.int64, np.int64],
    tables: tuple[U8, U64, U64, I64, I64, U8, I64],
    compiled: tuple[U8, U64, I64, U64, I64, I16, I64, U8, U8],
    ends: tuple[np.int64, np.int64, np.int64],
) -> tuple[np.int64, np.int64, np.int64]:
    """Compiles a row if it has one of the forms; returns the new ends of terms, program and text,
    the same ones where it is left to the parser, and stays marked in `slow`.

    span: the column of sources, and where the row begins and ends in it; tables, compiled: the
    fields of KeywordTables and ExpressionBuffers; ends: of what earlier rows have.
    """
    given, out = KeywordTables(*tables), ExpressionBuffers(*compiled)
    source, first, end = span
    n, p, m = ends
    text = np.empty(end - first + 8, np.uint8)
    columns = np.empty((8, EXPRESSION_TERMS), np.int64)
    begin, size, part, words, order = columns[0], columns[1], columns[2], columns[3], columns[4]
    place, count, mine = columns[5], columns[6], columns[7].view(np.uint64)
    found = (text, begin, size, part, words, order)
    k = read_literals(source, given.lut, first, end, found)
    if k > 0:
        k = order_literals(k, found)
    if k <= 0:
        return ends
    choices = asked = negated = rest = width = ZERO
    for x in range(k):
        i = order[x]
        if part[i] == CHOICE:
            choices += 1
            width += size[i] + _OR_TEXT.shape[0]
        elif part[i] == ASKED:
            asked += 1
            rest += size[i] + _AND_TEXT.shape[0]
        else:
            negated += 1
            rest += size[i] + _NOT_TEXT.shape[0]
    others = asked + negated
    width = width - _OR_TEXT.shape[0] + choices * rest if choices else rest - _AND_TEXT.shape[0]
    if width > min(np.int64(EXPRESSION_BYTES), TEXT_ROOM * (end - first)):
        return ends
    if asked + choices == 0 or choices == 1 or (others > 0 and choices > _MOST_CHOICES):
        return ends
    for x in range(k):
        i = order[x]
        mine[x], count[x] = _hash_literal(given, text, begin[i], size[i], words[i])
    for x in range(k):
        rank = ZERO
        for y in range(k):
            rank += mine[y] < mine[x]
            if x != y and mine[y] == mine[x]:
                return ends
        place[x] = rank
        out.term[n + rank] = mine[x]
    out.post[row] = _choose_posting(k, found, place, count)
    out.form[row] = _PROGRAM if negated or (choices and asked) else _ANY if choices else _ALL
    if out.form[row] == _PROGRAM:
        p = _write_program(k, found, place, out.prog, p)
    p = _write_notes(k, found, place, out.prog, p)
    m = _write_text(k, choices, found, out.text, m)
    out.slow[row] = 0
    return n + k, p, m
