"""The Numba kernel that searches those of analysed objects again that later queries may match.

A dispatcher does this for each batch before which queries with literals came. There are few such
objects, so that steps of their own would cost more than the search.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.language.analyzer_kernels import analyse_rows
from ps2stream.language.area_kernels import find_areas, find_inside
from ps2stream.language.literal_kernels import HEADS
from ps2stream.language.search_kernels import LONG_ROOM, add_to_rows, search_rows
from ps2stream.protocol.frame import F64, I64, U8, U32, U64


@njit(cache=True, nogil=True)
def search_again(
    box: F64,
    place: tuple[F64, F64],
    text: tuple[I64, U8],
    terms: tuple[I64, U64],
    characters: tuple[U8, U8, U32, U8],
    keys: U64,
    watched: tuple[U64, U8, U8, U64, U64],
) -> tuple[I64, U64, I64]:
    """Returns the terms of all objects with those of the watched literals that objects in one of
    the boxes have, see `find_inside`, but for those of which the text is not all simple characters;
    and which these are.

    place: longitudes and latitudes; text, terms: ragged columns; the others as for
    `analyse_rows`."""
    off, data = text
    met = find_inside(place[0], place[1], box)
    rows = met.shape[0]
    here, all_areas = np.empty(rows, np.uint16), find_areas(place[0], place[1])
    size = np.int64(0)
    for i in range(rows):
        here[i] = all_areas[met[i]]
        size += off[met[i] + 1] - off[met[i]]
    found = np.zeros(rows + 1, np.int64), np.empty(size + rows, np.uint64), np.zeros(rows, np.uint8)
    has_prefixes = watched[2][HEADS] > 0
    room = size + 1 if has_prefixes else np.int64(0)
    sought = (
        np.zeros(rows, np.int64),
        np.empty(room, np.uint64),
        np.empty(room, np.int64),
        np.zeros(1 if has_prefixes else 0, np.int64),
        np.zeros(rows + 1, np.int64),
        np.empty(LONG_ROOM * room, np.uint64),
    )
    left = np.int64(0)
    if rows:  # else it would take all
        left += analyse_rows(off, data, characters, keys, watched, found, sought, met)
    slow = np.empty(left, np.int64)
    if rows == 0:
        return terms[0], terms[1], slow
    whole = rows < 0  # never; for the constant another kernel would be compiled
    own_off, own = search_rows(found[0], found[1], found[2], keys, sought, watched, here, whole)
    for i in range(rows if left else 0):
        if found[2][i]:
            left -= 1
            slow[slow.shape[0] - 1 - left] = met[i]
    if own.shape[0] == 0:  # as of nearly all
        return terms[0], terms[1], slow
    off, term = add_to_rows(terms[0], terms[1], met, own_off, own)
    return off, term, slow
