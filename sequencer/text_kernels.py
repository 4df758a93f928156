"""Kernels that pack the texts of a source (language/query_rows.py): the canonical expression and,
behind a NUL, what was typed, which has mostly the same words.

AND and OR between words are one byte each, and a word of what was typed that is among the first
WORDS canonical ones is its number. The bytes 2 to 31 mean these, so a text that has one of them is
not packed. Byte 1 is that of validity (protocol/validity.py).
"""

# Numba takes any integer for any other one.
# mypy: disable-error-code="arg-type, assignment"
from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8
from ps2stream.protocol.pointers import (
    count_low_zeros,
    find_address,
    is_same,
    load_word,
    put_bytes,
    store_word,
)
from ps2stream.sequencer.table_kernels import NONE

_AND, _OR, _WORD, _SPACE = 2, 3, 4, 32
WORDS: Final = _SPACE - _WORD
_AND_TEXT = np.frombuffer(b" AND ", np.uint8)
_OR_TEXT = np.frombuffer(b" OR ", np.uint8)
_AND_WORD, _AND_BITS = np.uint64(int.from_bytes(b" AND ", "little")), np.uint64((1 << 40) - 1)
_OR_WORD, _OR_BITS = np.uint64(int.from_bytes(b" OR ", "little")), np.uint64((1 << 32) - 1)
_ABOVE_SPACE = np.uint64(0x2121212121212121)
_TOP_BITS = np.uint64(0x8080808080808080)
_BYTE = np.uint64(0xFF)


@njit(inline="always")
def _load_bytes(text: U8, at: int, end: int) -> np.uint64:
    """Returns text[at:end], of which eight bytes at most, as a number."""
    size = min(end - at, 8)
    if at + 8 <= len(text):
        word = load_word(find_address(text) + at)
        return word & (~np.uint64(0) >> np.uint64(64 - 8 * size)) if size else np.uint64(0)
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(text[np.uint64(at + k)]) << np.uint64(8 * k)
    return word


@njit(inline="always")
def _find_word_end(text: U8, at: int, end: int) -> int:
    """Returns where a word ends: at a space, a NUL or a byte that means something."""
    while at < end:
        word = _load_bytes(text, at, end)
        # The lowest byte up to that of a space has the lowest bit.
        small = (word - _ABOVE_SPACE) & ~word & _TOP_BITS
        if not small:
            at += 8
            continue
        at += np.int64(count_low_zeros(small) >> np.uint64(3))
        if at >= end or text[np.uint64(at)] != 1:
            break
        at += 1
    return min(at, end)


@njit(cache=True, nogil=True)
def pack_text(text: U8, begin: int, end: int, out: U8, at: int, words: I64) -> int:
    """Packs text[begin:end] into `out`, which has room for as many bytes and eight more; returns
    where it ends, or NONE for a text that cannot be packed. words int64[3 * WORDS]: room."""
    known, is_typed, i = 0, False, begin
    while i < end:
        word = _load_bytes(text, i, end)
        byte = np.int64(word & _BYTE)
        if byte > _SPACE or byte == 1:
            stop = _find_word_end(text, i, end)
            size, k = stop - i, 0
            if size < 8:
                word &= (np.uint64(1) << np.uint64(8 * size)) - np.uint64(1)
            start = np.int64(word)
            if is_typed:
                while k < known and not (
                    words[3 * k + 1] == size
                    and words[3 * k + 2] == start
                    and (size <= 8 or is_same(text, i, text, words[3 * k], size))
                ):
                    k += 1
            elif known < WORDS:
                words[3 * known], words[3 * known + 1], words[3 * known + 2] = i, size, start
                known += 1
            if is_typed and k < known:
                out[np.uint64(at)] = _WORD + k
                at += 1
            elif size <= 8:
                store_word(find_address(out) + at, word)
                at += size
            else:
                at = put_bytes(out, at, text, i, stop)
            i = stop
            continue
        if word & _AND_BITS == _AND_WORD:
            byte = _AND
            i += 5
        elif word & _OR_BITS == _OR_WORD:
            byte = _OR
            i += 4
        elif byte == _SPACE or byte == 0:
            is_typed |= byte == 0
            i += 1
        else:
            return NONE
        out[np.uint64(at)] = byte
        at += 1
    return at


@njit(cache=True, nogil=True)
def unpack_text(data: U8, begin: int, end: int, out: U8, to: int, words: I64) -> int:
    """Writes the text that is packed in data[begin:end]; returns where it ends in `out`."""
    known, is_typed, i = 0, False, begin
    while i < end:
        byte = np.int64(data[np.uint64(i)])
        if byte == _AND:
            to = put_bytes(out, to, _AND_TEXT, 0, 5)
        elif byte == _OR:
            to = put_bytes(out, to, _OR_TEXT, 0, 4)
        elif _WORD <= byte < _SPACE:
            at = words[3 * (byte - _WORD)]
            to = put_bytes(out, to, out, at, at + words[3 * (byte - _WORD) + 1])
        elif byte == _SPACE or byte == 0:
            out[np.uint64(to)] = np.uint8(byte)
            is_typed |= byte == 0
            to += 1
        else:
            stop = _find_word_end(data, i, end)
            if not is_typed and known < WORDS:
                words[3 * known], words[3 * known + 1] = to, stop - i
                known += 1
            to = put_bytes(out, to, data, i, stop)
            i = stop
            continue
        i += 1
    return to
