"""The kernel that counts what ranks workers while load is shed."""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.dispatcher.h2_kernels import count_unit
from ps2stream.protocol.frame import I64, U32, U64


@njit(cache=True, nogil=True)
def count_live(
    units: tuple[I64, U64, U32], cells: U32, term_off: I64, term: U64, live: I64
) -> None:
    """Adds to live[k] the live queries under the units that the k-th term from term_off[0] on
    meets. units: of H2Columns; cells: uint32[levels, n], the tag cell of each object on each
    level in use."""
    first = term_off[0]
    for level in range(len(cells)):
        for i in range(len(term_off) - 1):
            place = np.uint64(cells[level, i])
            for k in range(term_off[i], term_off[i + 1]):
                live[k - first] += count_unit(units, place, term[k])
