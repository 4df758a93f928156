"""The tables of characters for the kernels of folding, made from the installed versions.

Normalization and case folding are those of Python's `unicodedata` and `str.casefold`; classes of
characters are those of `regex`, by the very patterns of tokenizer.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import chain, product
from threading import Lock
from typing import Final, NamedTuple
from unicodedata import combining, decomposition, is_normalized, normalize

import numpy as np
import regex

from ps2stream.language import tokenizer
from ps2stream.protocol.frame import I64, U8, U32, sealed

SIZE: Final = 0x110000
_PLANES: Final = ((0, 0x40000), (0xE0000, 0xF0000))
"""Where Unicode assigns characters with properties; the rest, most, is reserved or private."""
BY_NFKD, BY_CASE, BY_CHOICE = range(3)
"""The ways of expanding a character: NFKD with the special forms of tokenizer.py, case folding,
and the chosen foldings."""

# The properties of a character, as bits; the canonical combining class is above them.
(
    DECOMPOSES,  # by NFKD, otherwise than Hangul syllables, which have a rule
    FOLDS,  # by case
    COMPOSES,  # with a character before it
    IGNORABLE,
    PICTURE,
    REGIONAL,
    EXTEND,
    JOINER,
    SPACING,
    CONTROL,
    PREPEND,
    PICTOGRAPHIC,
    CONSONANT,
    LINKER,
    LINKING,
    ALONE,  # a token by itself
    WORD,  # of a run that is a token; digits are, unless they begin a keycap
    DIGIT,
    KEYCAP,  # 0-9, # and *
    MARK,  # orders within long runs, see tokenizer.py
    HANGUL,  # syllable
    VARIATION,  # selector
    OPTIONAL,  # folded by the chosen foldings
) = (1 << i for i in range(23))
CLASS_SHIFT: Final = 24
CLASS: Final = 0xFF << CLASS_SHIFT

# What a character is to the bounds of words; joints join two letters, two numbers, or either.
NO_JOINT, MARKING, LETTER, HEBREW, NUMBER, MID_LETTER, MID_NUMBER, MID_EITHER, QUOTE = range(9)

_PATTERNS: Final = (
    (IGNORABLE, tokenizer.IGNORABLE),
    (VARIATION, tokenizer.VARIATION),
    (PICTURE, tokenizer.PICTOGRAPH),
    (REGIONAL, r"\p{RI}"),
    (EXTEND, r"\p{GCB=Extend}"),
    (JOINER, r"\p{GCB=ZWJ}"),
    (SPACING, r"\p{GCB=SpacingMark}"),
    (CONTROL, r"[\p{GCB=Control}\p{GCB=CR}\p{GCB=LF}]"),
    (PREPEND, r"\p{GCB=Prepend}"),
    (PICTOGRAPHIC, r"\p{Extended_Pictographic}"),
    (CONSONANT, r"\p{InCB=Consonant}"),
    (LINKER, r"\p{InCB=Linker}"),
    (LINKING, r"\p{InCB=Extend}"),
    (ALONE, rf"[{tokenizer.SPACELESS}&&{tokenizer.WORD}]"),
    (WORD, rf"[{tokenizer.WORD}--{tokenizer.SPACELESS}--[0-9]]"),
    (DIGIT, "[0-9]"),
    (KEYCAP, "[0-9#*]"),
    (MARK, tokenizer.MARK),
    (HANGUL, r"[\uAC00-\uD7A3]"),
    (COMPOSES, r"[\u1161-\u1175\u11A8-\u11C2]"),  # jamo; the other ones are pairs
)
_JOINTS: Final = (
    (MARKING, rf"[\p{{M}}--{tokenizer.SPACELESS}]"),
    (LETTER, tokenizer.LETTER),
    (HEBREW, tokenizer.HEBREW),
    (NUMBER, tokenizer.NUMBER),
    (MID_LETTER, tokenizer.MID_LETTER),
    (MID_NUMBER, tokenizer.MID_NUMBER),
    (MID_EITHER, rf"[{tokenizer.MID_LETTER}&&{tokenizer.MID_NUMBER}]"),
    (QUOTE, '"'),
)


_BUILDING = Lock()  # many threads may meet their first such text at once


class CharacterTables(NamedTuple):
    """The tables of characters that folding needs.

    bits uint32[SIZE]: the bits above, and the combining class; joint uint8[SIZE]: one of the
    constants above. The others are hash tables of open addressing, -1 = free: `expansion_key`
    int64[2^k], four times the code point and BY_NFKD, BY_CASE or BY_CHOICE, with the span of its
    characters in `expansion`; `pair_key` int64[2^k], the first character times 2^32 and the
    second, with what they compose to.
    """

    bits: U32
    joint: U8
    expansion_key: I64
    expansion_begin: I64
    expansion_end: I64
    expansion: U32
    pair_key: I64
    pair: I64


def character_tables(foldings: frozenset[str] = frozenset()) -> CharacterTables:
    """Returns the tables of the installed versions, with the chosen foldings; takes some tenths
    of a second when first called."""
    with _BUILDING:
        return _build_tables(foldings)


@cache
def _build_tables(foldings: frozenset[str]) -> CharacterTables:
    every = np.arange(SIZE, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    bits = np.zeros(SIZE, np.uint32)
    for low, high in _PLANES:
        classes = np.fromiter(map(combining, every[low:high]), np.uint32, high - low)
        bits[low:high] = classes << np.uint32(CLASS_SHIFT)
    for (low, high), (bit, pattern) in product(_PLANES, _PATTERNS):
        for run in _find_runs(pattern, every, low, high):
            bits[run] |= np.uint32(bit)
    joint = np.zeros(SIZE, np.uint8)
    for (low, high), (kind, pattern) in product(_PLANES, _JOINTS):
        for run in _find_runs(pattern, every, low, high):
            joint[run] = kind
    expansions: dict[int, str] = {}
    pairs: dict[int, int] = {}
    for begin in chain(*(range(*plane, 256) for plane in _PLANES)):
        block = every[begin : begin + 256]
        if block.casefold() != block:
            for c in block:
                if (folded := c.casefold()) != c:
                    bits[ord(c)] |= np.uint32(FOLDS)
                    expansions[4 * ord(c) + BY_CASE] = folded
        if is_normalized("NFKD", "\0".join(block)):
            continue
        for c in block:
            if not (parts := decomposition(c)):
                continue
            bits[ord(c)] |= np.uint32(DECOMPOSES)
            expansions[4 * ord(c) + BY_NFKD] = normalize("NFKD", c)
            first, _, second = parts.partition(" ")
            if second and not parts.startswith("<") and normalize("NFC", c) == c:
                pairs[int(first, 16) << 32 | int(second, 16)] = ord(c)
                bits[int(second, 16)] |= np.uint32(COMPOSES)
    for code, form in tokenizer.special_forms().items():
        bits[code] |= np.uint32(DECOMPOSES)
        expansions[4 * code + BY_NFKD] = normalize("NFKD", form)
    for code, form in tokenizer.optional_forms(foldings).items():
        bits[code] |= np.uint32(OPTIONAL)
        expansions[4 * code + BY_CHOICE] = form
    key, place = _hash_table(list(expansions))
    size = np.fromiter(map(len, expansions.values()), np.int64, len(expansions))
    end = np.append(0, np.cumsum(size))
    data = np.fromiter(map(ord, "".join(expansions.values())), np.uint32, int(end[-1]))
    pair_key, pair_place = _hash_table(list(pairs))
    composed = np.append(np.fromiter(pairs.values(), np.int64, len(pairs)), 0)
    columns = (key, end[:-1][place], end[1:][place], data, pair_key, composed[pair_place])
    return CharacterTables(sealed(bits), sealed(joint), *map(sealed, columns))


def _find_runs(pattern: str, every: str, low: int, high: int) -> Iterator[slice]:
    """Yields the ranges of code points from low to high that are of a class."""
    for found in regex.compile(f"(?:{pattern})+", regex.VERSION1).finditer(every, low, high):
        yield slice(*found.span())


def _hash_table(keys: list[int]) -> tuple[I64, I64]:
    """Returns (key, place in `keys`) int64[2^k] of open addressing; -1 is free, its place 0."""
    size = 1 << (2 * len(keys)).bit_length()
    table, place = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    for i, key in enumerate(keys):
        at = first_slot(key, size)
        while table[at] >= 0:
            at = (at + 1) % size
        table[at], place[at] = key, i
    return table, place


def first_slot(key: int, size: int) -> int:
    """Returns the slot where the search for a key begins in a table of `size` = 2^k slots."""
    return (key ^ key >> 15 ^ key >> 29) * 0x9E3779B1 >> 7 & (size - 1)
