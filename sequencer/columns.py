"""Columns of strings in the sequencer's requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.protocol.frame import I64, U8, U64, concat_ragged, sealed
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


def take_strings(column: StringColumn, rows: I64) -> StringColumn:
    """Returns rows of a column of strings, in this order; no row more than once."""
    off, data = np.empty(len(rows) + 1, np.int64), np.empty(len(column[1]), np.uint8)
    size: int = kernels.take_strings(sealed(column[0]), sealed(column[1]), rows, off, data)
    return off, data[:size]


def join_strings(parts: Sequence[StringColumn]) -> StringColumn:
    """Joins columns of strings end to end; at least one."""
    return parts[0] if len(parts) == 1 else concat_ragged(parts)
