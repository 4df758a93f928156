"""Copies of spans between columns, for kernels.

An assignment of slices says the same. But Numba checks the shapes of both, and compiles for the
message of the error all that formats text: two seconds once a process, and a quarter of one for
each kernel that has such an assignment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ps2stream.protocol.frame import Array

Integer = Any  # a plain integer, or one of NumPy's


@njit(inline="always")
def copy_span(out: Array, at: Integer, data: Array, begin: Integer, size: Integer) -> None:
    """Copies data[begin : begin + size] to out[at : at + size], which does not lie behind it in
    the same memory."""
    to, first = np.uint64(at), np.uint64(begin)  # so that no index counts from the end
    for k in range(np.uint64(size)):
        out[to + k] = data[first + k]
