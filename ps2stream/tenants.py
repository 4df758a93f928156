"""Tenants: the names of each stand under `tenant NUL`, so that no two of them ever meet.

The default tenant has no name and no prefix: its names are those of data directories that
know no tenants. No client's name holds a NUL.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.protocol.frame import I64, U8

SEPARATOR = "\0"
Column = tuple[I64, U8]


def key(tenant: str) -> bytes:
    """What tells tenants apart where there is no name: `tenant NUL`."""
    return f"{tenant}{SEPARATOR}".encode()


def key_of(name: bytes) -> bytes:
    """The key of the tenant whose name this is."""
    tenant, found, _ = name.partition(b"\0")
    return tenant + b"\0" if found else b"\0"


def under(tenant: str, name: str) -> str:
    """A client's name as it is kept; an empty one, which names nothing, stays empty."""
    return f"{tenant}{SEPARATOR}{name}" if tenant and name else name


def column_under(tenant: str, column: Column) -> Column:
    """Ids of one tenant's clients as they are kept."""
    if not tenant:
        return column
    off, data = column
    prefix = np.frombuffer(key(tenant), np.uint8)
    rows, size = len(off) - 1, len(prefix)
    kept = np.insert(data, np.repeat(off[:-1], size), np.tile(prefix, rows))
    return off + size * np.arange(rows + 1), kept


def own(names: Sequence[str]) -> list[str]:
    """The clients' names, of names as they are kept."""
    return [name.rpartition(SEPARATOR)[2] for name in names]


def own_start(off: I64, data: U8) -> I64:
    """Where the client's name begins in each row of kept names; it ends with the row."""
    start = off[:-1].copy()
    at = np.flatnonzero(data[off[0] : off[-1]] == 0) + off[0]
    if len(at):
        start[np.searchsorted(off, at, "right") - 1] = at + 1
    return start
