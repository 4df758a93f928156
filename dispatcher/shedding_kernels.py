"""The kernel that counts what ranks workers while load is shed."""

from __future__ import annotations

import numpy as np
from numba import njit

from ps2stream.protocol.frame import I64, U32, U64
from ps2stream.routing.unit_kernels import find


@njit(cache=True, nogil=True)
def count_live(table: U64, count: U32, cells: U32, term_off: I64, term: U64, live: I64) -> None:
    """Adds to live[k] the live queries under the units that the k-th term from term_off[0] on
    meets. table, count: of H2; cells: uint32[levels, n], the tag cell of each object on each level
    in use."""
    first = term_off[0]
    for level in range(len(cells)):
        for i in range(len(term_off) - 1):
            place = np.uint64(cells[level, i])
            for k in range(term_off[i], term_off[i + 1]):
                slot = find(table, place, term[k])
                if slot >= 0:
                    live[k - first] += np.int64(count[slot])
