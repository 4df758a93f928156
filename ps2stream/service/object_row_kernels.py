"""Kernels that check the rows of a publication in one pass."""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.frame import F64, I64, U8, Array


@njit(inline="always")
def _measure_character(text: U8, at: np.uint64, end: np.uint64) -> np.uint64:
    """Returns the bytes of the UTF-8 character at `at`, 0 if there is none before `end`."""
    c = text[at]
    if c < 0x80:
        return np.uint64(1)
    low, high = np.uint8(0x80), np.uint8(0xBF)  # of the second byte
    if 0xC2 <= c <= 0xDF:
        size = np.uint64(2)
    elif 0xE0 <= c <= 0xEF:
        size = np.uint64(3)
        if c == 0xE0:
            low = np.uint8(0xA0)  # else two bytes were enough
        elif c == 0xED:
            high = np.uint8(0x9F)  # else it were half of a surrogate pair
    elif 0xF0 <= c <= 0xF4:
        size = np.uint64(4)
        if c == 0xF0:
            low = np.uint8(0x90)  # else three bytes were enough
        elif c == 0xF4:
            high = np.uint8(0x8F)  # else it were beyond Unicode
    else:
        return np.uint64(0)
    if at + size > end or text[at + np.uint64(1)] < low or text[at + np.uint64(1)] > high:
        return np.uint64(0)
    for k in range(np.uint64(2), size):
        if text[at + k] & 0xC0 != 0x80:
            return np.uint64(0)
    return size


@njit(cache=True, nogil=True)
def find_offsets(raw: Array, text: U8) -> I64:
    """Returns the offsets of strings in text[raw[0]:], int64[n + 1] of which the first is 0; none
    at all if an offset falls or lies outside the text, or if a string is not UTF-8.

    raw int32[n + 1] or int64[n + 1]; text uint8[].
    """
    n = len(raw) - 1
    if raw[0] < 0 or raw[n] > len(text):
        return np.zeros(0, np.int64)
    out = np.empty(n + 1, np.int64)
    falls = False
    for i in range(n):
        out[i] = np.int64(raw[i]) - np.int64(raw[0])
        falls |= raw[i + 1] < raw[i]
    out[n] = np.int64(raw[n]) - np.int64(raw[0])
    if falls:
        return out[:0]
    bits = np.uint8(0)
    for k in range(np.uint64(raw[0]), np.uint64(raw[n])):
        bits |= text[k]
    if bits < 0x80:
        return out
    for i in range(n):
        at, end = np.uint64(raw[i]), np.uint64(raw[i + 1])
        while at < end:
            size = _measure_character(text, at, end)
            if size == 0:
                return out[:0]
            at += size
    return out


@njit(cache=True, nogil=True)
def are_within(
    lon: F64, lat: F64, id_off: I64, text_off: I64, limits: tuple[float, float, int, int]
) -> bool:
    """Returns whether the positions, and the sizes of ids and texts, of all rows are at most
    `limits`. lon, lat float64[n]; id_off, text_off int64[n + 1]; a NaN is not within."""
    most_lon, most_lat, most_id, most_text = limits
    good = True
    for i in range(len(lon)):
        good &= abs(lon[i]) <= most_lon
        good &= abs(lat[i]) <= most_lat
        good &= id_off[i + 1] - id_off[i] <= most_id
        good &= text_off[i + 1] - text_off[i] <= most_text
    return good
