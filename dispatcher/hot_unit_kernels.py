"""Kernels that list which units objects meet, as keys that hot units are counted by, and count the
queries of such units."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ps2stream.dispatcher.h2_kernels import ALL, has_unit
from ps2stream.dispatcher.kernels import NEWER, Routes, find_route
from ps2stream.protocol.frame import F64, I64, U32, U64
from ps2stream.routing.unit_kernels import LEVEL_SHIFT
from ps2stream.space.space_kernels import cell_at

EVERY = np.uint64(1 << 62)
"""The key that each object has, so that counts become shares of the stream."""
WORD_BIT = np.uint64(1 << 63)
TERM_BITS = np.uint64((1 << 63) - (1 << 16))
"""The bits of a term's hash that are in the key of a word; the low 16 are the owner."""
_NEWER_BIT = np.uint32(NEWER << LEVEL_SHIFT)


class MetColumns(NamedTuple):
    """Objects: lon, lat float64[n], term_off int64[n + 1], term uint64[]."""

    lon: F64
    lat: F64
    term_off: I64
    term: U64


@njit(cache=True, nogil=True)
def list_met_units(
    parts: I64,
    used: I64,
    lines: F64,
    routes: Routes,
    objects: tuple[F64, F64, I64, U64],
    some: tuple[int, int],
) -> U64:
    """Returns the keys of what every so many objects meet; some: the first one and the stride.

    Each object has the key EVERY; that of its cell of the base level, if a unit there has a query;
    and that of each of its terms, with the owner, where a unit has a query whose owner depends on
    the term: on coarser levels and in the cells of text leaves. parts: of H2Columns; objects: a
    plain tuple of the fields of MetColumns.
    """
    lon, lat, term_off, term = objects
    cell_leaf, text = routes[0][0], routes[0][1]
    first, stride = some
    keys = np.empty(64, np.uint64)
    n = 0
    for i in range(first, len(lon), stride):
        most = n + 2 + ALL * (term_off[i + 1] - term_off[i])
        if most > len(keys):
            grown = np.empty(2 * most, np.uint64)
            for j in range(n):
                grown[j] = keys[j]
            keys = grown
        own = n
        keys[n] = EVERY
        n += 1
        for level in range(ALL):
            if not used[level]:
                continue
            cell = cell_at(lon[i], lat[i], lines, level % NEWER)
            by_term = level % NEWER > 0 or text[cell_leaf[cell]]
            is_met = False
            tag_cell = np.uint32(cell | _NEWER_BIT if level >= NEWER else cell)
            for k in range(term_off[i], term_off[i + 1]):
                if not has_unit(parts, np.uint64(tag_cell), term[k]):
                    continue
                is_met = True
                if not by_term:
                    break
                owner = np.uint64(find_route(tag_cell, term[k], routes))
                key = WORD_BIT | (term[k] & TERM_BITS) | owner
                is_new = True
                for j in range(own, n):
                    is_new &= keys[j] != key
                if is_new:
                    keys[n] = key
                    n += 1
            if is_met and level == 0:
                keys[n] = np.uint64(cell)
                n += 1
    return keys[:n]


@njit(cache=True, nogil=True)
def count_stored(
    units: tuple[U32, U64, U32], cell: U32, word: U64, by_cell: I64, by_word: I64
) -> np.int64:
    """Adds the live queries of units to by_cell[i] under the base-level cell[i], and to by_word[i]
    under the words of which word[i] has the TERM_BITS; both are ascending, each once. Returns how
    many there are under all units. units: cell, term and count of each."""
    stored = np.int64(0)
    for i in range(len(units[0])):
        queries = np.int64(units[2][i])
        stored += queries
        place = units[0][i]
        at = np.searchsorted(cell, place)
        if at < len(cell) and cell[at] == place:
            by_cell[at] += queries
        bits = units[1][i] & TERM_BITS
        at = np.searchsorted(word, bits)
        if at < len(word) and word[at] == bits:
            by_word[at] += queries
    return stored
