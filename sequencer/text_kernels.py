"""Kernels that pack the texts of a source (language/query_rows.py): the canonical expression and,
behind a NUL, what was typed, which has mostly the same words.

AND and OR between words are one byte each, and a word of what was typed that is among the first
WORDS canonical ones is its number. The bytes 2 to 31 mean these, so a text that has one of them is
not packed. Byte 1 is that of validity (protocol/validity.py).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8
from ps2stream.sequencer.kernels import is_same
from ps2stream.sequencer.table_kernels import NONE

_AND, _OR, _WORD, _SPACE = 2, 3, 4, 32
WORDS: Final = _SPACE - _WORD
_AND_TEXT = np.frombuffer(b" AND ", np.uint8)
_OR_TEXT = np.frombuffer(b" OR ", np.uint8)


@njit(inline="always")
def _find_word_end(text: U8, at: int, end: int) -> int:
    """Returns where a word ends: at a space, a NUL or a byte that means something."""
    while at < end and (text[np.uint64(at)] > _SPACE or text[np.uint64(at)] == 1):
        at += 1
    return at


@njit(cache=True, nogil=True)
def pack_text(text: U8, begin: int, end: int, out: U8, at: int, words: I64) -> int:
    """Packs text[begin:end] into `out`, which has room for as many bytes; returns where it ends, or
    NONE for a text that cannot be packed. words int64[2 * WORDS]: room."""
    known, is_typed, i = 0, False, begin
    while i < end:
        byte = text[np.uint64(i)]
        if 1 < byte < _SPACE:
            return NONE
        if byte == _SPACE and end - i >= 5 and is_same(text, i, _AND_TEXT, 0, 5):
            out[np.uint64(at)] = _AND
            i += 5
        elif byte == _SPACE and end - i >= 4 and is_same(text, i, _OR_TEXT, 0, 4):
            out[np.uint64(at)] = _OR
            i += 4
        elif byte == _SPACE or byte == 0:
            out[np.uint64(at)] = byte
            is_typed |= byte == 0
            i += 1
        else:
            stop = _find_word_end(text, i, end)
            size, k = stop - i, 0
            if is_typed:
                while k < known and not (
                    words[2 * k + 1] == size and is_same(text, i, text, words[2 * k], size)
                ):
                    k += 1
            elif known < WORDS:
                words[2 * known], words[2 * known + 1] = i, size
                known += 1
            if is_typed and k < known:
                out[np.uint64(at)] = _WORD + k
                i = stop
            else:
                while i < stop:
                    out[np.uint64(at)] = text[np.uint64(i)]
                    at += 1
                    i += 1
                continue
        at += 1
    return at


@njit(inline="always")
def _copy(out: U8, to: int, data: U8, begin: int, size: int) -> int:
    """Copies bytes; returns where they end."""
    for k in range(size):
        out[np.uint64(to + k)] = data[np.uint64(begin + k)]
    return to + size


@njit(cache=True, nogil=True)
def unpack_text(data: U8, begin: int, end: int, out: U8, to: int, words: I64) -> int:
    """Writes the text that is packed in data[begin:end]; returns where it ends in `out`."""
    known, is_typed, i = 0, False, begin
    while i < end:
        byte = np.int64(data[np.uint64(i)])
        if byte == _AND:
            to = _copy(out, to, _AND_TEXT, 0, 5)
        elif byte == _OR:
            to = _copy(out, to, _OR_TEXT, 0, 4)
        elif _WORD <= byte < _SPACE:
            at = words[2 * (byte - _WORD)]
            to = _copy(out, to, out, at, words[2 * (byte - _WORD) + 1])
        elif byte == _SPACE or byte == 0:
            out[np.uint64(to)] = np.uint8(byte)
            is_typed |= byte == 0
            to += 1
        else:
            stop = _find_word_end(data, i, end)
            if not is_typed and known < WORDS:
                words[2 * known], words[2 * known + 1] = to, stop - i
                known += 1
            to = _copy(out, to, data, i, stop - i)
            i = stop
            continue
        i += 1
    return to
