"""The table of the characters that `analyse_rows` knows: made by the definition, tokenizer.py."""

from __future__ import annotations

from functools import cache

import numpy as np
import regex

from ps2stream.language import analyzer_kernels as kernels
from ps2stream.language import tokenizer
from ps2stream.language.character_tables import character_tables
from ps2stream.protocol.frame import U8, U32, sealed, strings_to_column

_COMPLEX = regex.compile(
    rf"[\p{{M}}{tokenizer.IGNORABLE}{tokenizer.SPACELESS}\p{{Regional_Indicator}}\p{{Cs}}"
    r"\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}\p{GCB=Prepend}\p{GCB=V}\p{GCB=T}]",
    regex.VERSION1,
)
_WORD = regex.compile(f"{tokenizer.WORD}+", regex.VERSION1)
_SOME_WORD = regex.compile(tokenizer.WORD, regex.VERSION1)
_PICTURE = regex.compile(tokenizer.PICTOGRAPH, regex.VERSION1)


def _ascii_fold() -> U8:
    """Returns uint8[256]: the folded byte of a word character, 0 for what separates."""
    out = np.zeros(256, np.uint8)
    for c in map(chr, range(128)):
        out[ord(c)] = ord(c.lower()) if c.isalnum() or c == "_" else 0
    return out


ASCII_FOLD: U8 = sealed(_ascii_fold())


@cache
def simple_characters(foldings: frozenset[str]) -> tuple[U8, U8, U32, U8]:
    """Returns the fields of SimpleCharacters: those whose folding does not depend on their
    neighbours, and whose part in the bounds of words the kernel knows.

    They are ASCII, Latin, Greek, Cyrillic, Hebrew and Arabic letters, punctuation and plain
    pictographs. A character that combines, joins or prepends is COMPLEX; only such a one is the
    second of a composed pair.
    """
    size = 0x1FB00
    simple = [*range(0x2E80), *range(0xFE00, 0xFE10), *range(0x1F000, size)]
    joint = character_tables(foldings).joint
    kind = np.full(size, kernels.COMPLEX, np.uint8)
    folded = [b""] * size
    for code in simple:
        text = tokenizer.fold(chr(code), foldings)
        kind[code] = _find_kind(chr(code), text, joint)
        if kind[code] not in (kernels.COMPLEX, kernels.SEPARATOR, kernels.VARIATION):
            folded[code] = text.encode()
    off, data = strings_to_column(folded)
    lut = np.where(ord("_") == ASCII_FOLD, 0, ASCII_FOLD).astype(np.uint8)
    return sealed(lut), sealed(kind), sealed(off.astype(np.uint32)), sealed(data)


def _find_kind(c: str, text: str, joint: U8) -> int:
    """Returns the kind of a character that is folded into `text`."""
    if "\ufe00" <= c <= "\ufe0f":
        return kernels.VARIATION
    if "\U0001f3fb" <= c <= "\U0001f3ff":
        return kernels.MODIFIER
    if not text or _COMPLEX.search(c + text):
        return kernels.COMPLEX
    if _PICTURE.search(text):
        return kernels.PICTURE if text == c else kernels.COMPLEX
    first, last = int(joint[ord(text[0])]), int(joint[ord(text[-1])])
    if _WORD.fullmatch(text):
        if text == "_":
            return kernels.UNDERSCORE
        return (first or kernels.SIGN) if first == last else kernels.COMPLEX
    if _SOME_WORD.search(text):
        return kernels.COMPLEX
    if text in ("+", "#"):
        return kernels.MARK if c == text else kernels.COMPLEX
    if len(text) == 1 and first:
        return first
    return kernels.COMPLEX if regex.search('[+#"]', text) else kernels.SEPARATOR
