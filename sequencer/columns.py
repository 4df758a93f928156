"""Columns of strings in the sequencer's requests."""

from __future__ import annotations

import numpy as np

from ps2stream.protocol.frame import I64, U8, U64, sealed
from ps2stream.sequencer import kernels

StringColumn = tuple[I64, U8]  # offsets int64[n + 1], bytes


def split(off: I64, data: U8) -> list[bytes]:
    """Returns the rows of a string column as bytes, without a Python-level loop."""
    raw = data.tobytes()
    at = off.tolist()
    return list(map(raw.__getitem__, map(slice, at[:-1], at[1:])))


def find_first_rows(off: I64, data: U8, hashes: U64) -> tuple[I64, int]:
    """Returns (for each row the first row with the same bytes, the number of different ones)."""
    first = np.empty(len(hashes), np.int64)
    count: int = kernels.find_first_rows(sealed(off), sealed(data), hashes, first)
    return first, count
