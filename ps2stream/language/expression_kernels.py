"""The Numba kernel that compiles plain expressions: ASCII keywords, one kind of operator.

A plain keyword consists of letters, digits and underscores, after a # or @ or without it.
A row with parentheses, NOT, phrases or prefixes goes to `compile_compound`. Anything else -
punctuation in a keyword, both operators, an error - marks it for the parser (parser.py), which
returns for a plain row exactly what this returns.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.language.analyzer_kernels import probe_count
from ps2stream.language.compound_kernels import ExpressionBuffers, KeywordTables, compile_compound
from ps2stream.language.compound_reader_kernels import is_space
from ps2stream.language.hash_kernels import TOP, token_hash
from ps2stream.language.word_kernels import ZERO
from ps2stream.limits import EXPRESSION_BYTES, EXPRESSION_TERMS, TOKEN_BYTES
from ps2stream.protocol.frame import I16, I64, U8, U64
from ps2stream.protocol.rows import ExpressionForm
from ps2stream.space.prefetch import prefetch

_ALL = np.uint8(ExpressionForm.ALL)
_ANY = np.uint8(ExpressionForm.ANY)
_ONE = np.uint64(1)
_POSTED = np.uint64(0)  # in the place of the first term by its text: the row is posted already
_AND_TEXT = np.frombuffer(b" AND ", np.uint8)
_EXISTS = np.frombuffer(b"exists", np.uint8)
_OR_TEXT = np.frombuffer(b" OR ", np.uint8)


@njit(inline="always")
def _is_exists(data: U8, at: int) -> bool:
    """Returns whether EXISTS or exists stands here, which may belong to an attribute."""
    differs = False
    for i in range(_EXISTS.shape[0]):
        differs |= data[at + i] | 32 != _EXISTS[i]
    return not differs


@njit(cache=True, nogil=True)
def _compare_keywords(data: U8, lut: U8, a: int, a_size: int, b: int, b_size: int) -> np.int64:
    """Returns the order of two folded keywords: negative, 0, positive."""
    for i in range(min(a_size, b_size)):
        d = np.int64(lut[data[a + i]]) - np.int64(lut[data[b + i]])
        if d:
            return d
    return np.int64(a_size - b_size)


@njit(cache=True, nogil=True)
def _scan_tokens(data: U8, lut: U8, i: int, end: int, begin: I64, size: I64) -> tuple[int, bool]:
    """Fills the spans of the tokens of one row; returns their number or -1, and whether they are
    joined by OR."""
    n = 0
    kind = 0  # 1 conjunction, 2 disjunction
    after_keyword = False
    while True:
        while i < end and is_space(data[i]):
            i += 1
        if i == end:
            return (n if n and after_keyword else -1), kind == 2
        marked = data[i] == 35 or data[i] == 64  # # and @
        i += marked
        p = i
        letters = False
        while i < end and lut[data[i]]:
            letters |= data[i] != 95
            i += 1
        width = i - p
        if not letters or width > TOKEN_BYTES or (i < end and not is_space(data[i])):
            return -1, False
        is_and = width == 3 and data[p] == 65 and data[p + 1] == 78 and data[p + 2] == 68
        is_or = width == 2 and data[p] == 79 and data[p + 1] == 82
        if (is_and or is_or) and not marked:
            if not after_keyword or kind == (2 if is_and else 1):
                return -1, False
            kind = 1 if is_and else 2
            after_keyword = False
            continue
        if width == _EXISTS.shape[0] and after_keyword and _is_exists(data, p):
            return -1, False
        is_not = width == 3 and data[p] == 78 and data[p + 1] == 79 and data[p + 2] == 84
        if (is_not and not marked) or n == EXPRESSION_TERMS:
            return -1, False
        if after_keyword:
            if kind == 2:
                return -1, False
            kind = 1
        begin[n] = p
        size[n] = width
        n += 1
        after_keyword = True


@njit(cache=True, nogil=True)
def _choose_postings(
    form: U8, post: U64, term_off: I64, term: U64, by_text: U64, table_term: U64, table_count: I64
) -> None:
    """Posts each plain conjunction of several terms under the rarest one, of equally rare ones
    under the first by its text."""
    for row in range(form.shape[0]):
        first, end = term_off[row], term_off[row + 1]
        if form[row] != _ALL or end - first < 2 or by_text[first] == _POSTED:
            continue
        least, fewest = by_text[first], np.int64(-1)
        for i in range(first, end):
            count = probe_count(table_term, table_count, by_text[i])
            if fewest < 0 or count < fewest:
                least, fewest = by_text[i], count
        for i in range(first, end):
            if term[i] == least:
                post[row] = _ONE << np.uint64(i - first)


@njit(cache=True, nogil=True)
def compile_rows(
    off: I64,
    source: U8,
    simple: bool,
    tables: tuple[U8, U64, U64, I64, I64, U8, I64],
    compiled: tuple[U8, U64, I64, U64, I64, I16, I64, U8, U8],
) -> None:
    """Compiles the rows of off, source into form, post, term, program and canonical text. Those of
    which these kernels do not know the form (all but the empty ones unless `simple`) are left empty
    and marked in `slow`.

    tables, compiled: plain tuples of the fields of KeywordTables and ExpressionBuffers, which a
    kernel takes faster from Python than the classes themselves.
    """
    given, out = KeywordTables(*tables), ExpressionBuffers(*compiled)
    lut, keys, table_term, table_count = given.lut, given.keys, given.term, given.counts
    form, post, slow = out.form, out.post, out.slow
    term_off, term, text_off, text = out.term_off, out.term, out.text_off, out.text
    prog_off = out.prog_off
    begin = np.empty(EXPRESSION_TERMS, np.int64)
    size = np.empty(EXPRESSION_TERMS, np.int64)
    mine = np.empty(EXPRESSION_TERMS, np.uint64)
    by_text = np.empty(term.shape[0], np.uint64)  # the terms of a row in the order of their texts
    n = ZERO  # terms
    p = ZERO  # elements of programs
    m = ZERO  # bytes of text
    for row in range(off.shape[0] - 1):
        term_off[row] = n
        prog_off[row] = p
        text_off[row] = m
        if off[row] == off[row + 1]:
            form[row] = _ALL
            post[row] = _ONE
            term[n] = TOP
            n += 1
            continue
        slow[row] = 1
        if not simple or off[row + 1] - off[row] > EXPRESSION_BYTES:
            continue
        found, either = _scan_tokens(source, lut, off[row], off[row + 1], begin, size)
        if found < 0:
            span, first = (source, off[row], off[row + 1]), n
            n, p, m = compile_compound(row, span, tables, compiled, (n, p, m))
            if n > first:
                by_text[first] = _POSTED
            continue
        # Sort the tokens by their text, each once.
        k = 0
        for i in range(found):
            b = begin[i]
            s = size[i]
            j = k
            d = np.int64(1)
            while j > 0:
                d = _compare_keywords(source, lut, b, s, begin[j - 1], size[j - 1])
                if d >= 0:
                    break
                j -= 1
            if j > 0 and d == 0:
                continue
            for x in range(k, j, -1):
                begin[x] = begin[x - 1]
                size[x] = size[x - 1]
            begin[j] = b
            size[j] = s
            k += 1
        glue = _OR_TEXT if either else _AND_TEXT
        width = 0
        for i in range(k):
            mine[i] = token_hash(keys, source, begin[i], begin[i] + size[i], lut)
            width += size[i] + (glue.shape[0] if i else 0)
        if width > EXPRESSION_BYTES:
            continue
        # Sort the hashes; two tokens with one hash are left to the slow path.
        clash = False
        for i in range(k):
            h = mine[i]
            j = n + i
            while j > n and term[j - 1] > h:
                term[j] = term[j - 1]
                j -= 1
            clash |= j > n and term[j - 1] == h
            term[j] = h
        if clash:
            continue
        form[row] = _ANY if either and k > 1 else _ALL
        post[row] = ~(_ONE - _ONE) >> np.uint64(64 - k)
        if form[row] == _ALL and k > 1:
            # One term is posted, which `_choose_postings` chooses once the counts are at hand.
            for i in range(k):
                by_text[n + i] = mine[i]
                at = np.int64(mine[i] & np.uint64(table_term.shape[0] - 1))
                prefetch(table_term, at)  # type: ignore[call-arg]
                prefetch(table_count, at)
        n += k
        for i in range(k):
            if i:
                for c in glue:
                    text[m] = c
                    m += 1
            for x in range(begin[i], begin[i] + size[i]):
                text[m] = lut[source[x]]
                m += 1
        slow[row] = 0
    term_off[off.shape[0] - 1] = n
    prog_off[off.shape[0] - 1] = p
    text_off[off.shape[0] - 1] = m
    _choose_postings(form, post, term_off, term, by_text, table_term, table_count)
