"""A kernel that checks JSON texts (RFC 8259) in place."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U8

JSON_DEPTH: Final = 512
"""Nested arrays and objects: what the JSON parsers of most languages read."""
GOOD: Final = -1
DEEP: Final = -2

_OBJECT, _ARRAY = 1, 2
_TAB, _NEWLINE, _RETURN, _SPACE = 0x09, 0x0A, 0x0D, 0x20
_QUOTE, _BACKSLASH, _SLASH, _COMMA, _COLON = 0x22, 0x5C, 0x2F, 0x2C, 0x3A
_PLUS, _MINUS, _POINT, _ZERO, _NINE = 0x2B, 0x2D, 0x2E, 0x30, 0x39
_OPEN_BRACKET, _CLOSE_BRACKET, _OPEN_BRACE, _CLOSE_BRACE = 0x5B, 0x5D, 0x7B, 0x7D
_LOWER_A, _LOWER_B, _LOWER_E, _LOWER_F = 0x61, 0x62, 0x65, 0x66
_LOWER_N, _LOWER_R, _LOWER_T, _LOWER_U = 0x6E, 0x72, 0x74, 0x75
_LOWER_BIT = 0x20
_ESCAPED = (
    _QUOTE, _BACKSLASH, _SLASH, _LOWER_B, _LOWER_F, _LOWER_N, _LOWER_R, _LOWER_T
)  # fmt: skip
_WORDS = np.frombuffer(b"truefalsenull", np.uint8)


@njit(cache=True, nogil=True)
def find_json_errors(off: I64, text: U8) -> I64:
    """Returns for each UTF-8 text of a ragged column GOOD if it is JSON, DEEP if it has more than
    JSON_DEPTH nested arrays and objects, or else the byte at which it is no JSON, int64[n]."""
    out = np.empty(off.shape[0] - 1, np.int64)
    nested = np.empty(JSON_DEPTH, np.uint8)
    for i in range(out.shape[0]):
        found = _check_value(text, off[i], off[i + 1], nested)
        out[i] = found - off[i] if found >= 0 else found
    return out


@njit(cache=True, nogil=True)
def _check_value(text: U8, at: int, end: int, nested: U8) -> int:
    """Returns GOOD, DEEP or the index of the byte that is wrong, of the JSON text[at:end]."""
    depth = 0
    at = _skip_space(text, at, end)
    while True:
        if at >= end:
            return at
        first = text[at]
        if first in (_OPEN_BRACE, _OPEN_BRACKET):
            if depth == JSON_DEPTH:
                return DEEP
            is_object = first == _OPEN_BRACE
            nested[depth] = _OBJECT if is_object else _ARRAY
            depth += 1
            at = _skip_space(text, at + 1, end)
            if at >= end or text[at] != (_CLOSE_BRACE if is_object else _CLOSE_BRACKET):
                if is_object:
                    at = _pass_key(text, at, end)
                    if at < 0:
                        return ~at
                continue
        else:
            if first == _QUOTE:
                at = _pass_string(text, at + 1, end)
            elif first == _MINUS or _is_digit(first):
                at = _pass_number(text, at, end)
            else:
                at = _pass_word(text, at, end)
            if at < 0:
                return ~at
        # A value has ended, or its closing bracket follows.
        while True:
            at = _skip_space(text, at, end)
            if depth == 0:
                return at if at < end else GOOD
            if at >= end:
                return at
            is_object = nested[depth - 1] == _OBJECT
            if text[at] == (_CLOSE_BRACE if is_object else _CLOSE_BRACKET):
                depth -= 1
                at += 1
            elif text[at] == _COMMA:
                at = _skip_space(text, at + 1, end)
                if is_object:
                    at = _pass_key(text, at, end)
                    if at < 0:
                        return ~at
                break
            else:
                return at


@njit(inline="always")
def _is_digit(byte: int) -> bool:
    return _ZERO <= byte <= _NINE


@njit(cache=True, nogil=True)
def _skip_space(text: U8, at: int, end: int) -> int:
    while at < end and (
        text[at] == _SPACE or text[at] == _TAB or text[at] == _NEWLINE or text[at] == _RETURN
    ):
        at += 1
    return at


@njit(cache=True, nogil=True)
def _pass_key(text: U8, at: int, end: int) -> int:
    """Returns where the value behind the key at `at` begins, or ~index of the byte that is
    wrong."""
    if at >= end or text[at] != _QUOTE:
        return ~at
    at = _pass_string(text, at + 1, end)
    if at < 0:
        return at
    at = _skip_space(text, at, end)
    if at >= end or text[at] != _COLON:
        return ~at
    return _skip_space(text, at + 1, end)


@njit(cache=True, nogil=True)
def _pass_string(text: U8, at: int, end: int) -> int:
    """Returns the end of the string whose first quote is before `at`, or ~index of the byte that
    is wrong."""
    while at < end:
        byte = text[at]
        if byte == _QUOTE:
            return at + 1
        if byte < _SPACE:
            return ~at
        at += 1
        if byte != _BACKSLASH:
            continue
        if at >= end:
            return ~at
        byte = text[at]
        if byte == _LOWER_U:
            for _ in range(4):
                at += 1
                if at >= end:
                    return ~at
                lower = text[at] | _LOWER_BIT
                if not (_is_digit(text[at]) or _LOWER_A <= lower <= _LOWER_F):
                    return ~at
        elif byte not in _ESCAPED:
            return ~at
        at += 1
    return ~at


@njit(cache=True, nogil=True)
def _pass_digits(text: U8, at: int, end: int) -> int:
    """Returns the end of at least one digit, or ~index of the byte that is none."""
    begin = at
    while at < end and _is_digit(text[at]):
        at += 1
    return at if at > begin else ~at


@njit(cache=True, nogil=True)
def _pass_number(text: U8, at: int, end: int) -> int:
    """Returns the end of a number, or ~index of the byte that is wrong."""
    if text[at] == _MINUS:
        at += 1
    if at < end and text[at] == _ZERO:
        at += 1
    else:
        at = _pass_digits(text, at, end)
    if at >= 0 and at < end and text[at] == _POINT:
        at = _pass_digits(text, at + 1, end)
    if at >= 0 and at < end and text[at] | _LOWER_BIT == _LOWER_E:
        at += 1
        if at < end and (text[at] == _PLUS or text[at] == _MINUS):
            at += 1
        at = _pass_digits(text, at, end)
    return at


@njit(cache=True, nogil=True)
def _pass_word(text: U8, at: int, end: int) -> int:
    """Returns the end of `true`, `false` or `null`, or ~index of the byte that is wrong."""
    if text[at] == _LOWER_T:
        first, last = 0, 4
    elif text[at] == _LOWER_F:
        first, last = 4, 9
    elif text[at] == _LOWER_N:
        first, last = 9, 13
    else:
        return ~at
    for k in range(first, last):
        if at >= end or text[at] != _WORDS[k]:
            return ~at
        at += 1
    return at
