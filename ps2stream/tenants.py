"""Tenants: the names of each tenant are stored with the prefix `tenant NUL`, so that the names
of two tenants never clash.

The default tenant has no name and no prefix: its names look as in data directories from before
there were tenants. No client's name contains a NUL.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ps2stream.protocol.frame import I64, U8

SEPARATOR = "\0"
Column = tuple[I64, U8]


def key(tenant: str) -> bytes:
    """Returns the prefix `tenant NUL`, which identifies a tenant where there is no name."""
    return f"{tenant}{SEPARATOR}".encode()


def key_of(name: bytes) -> bytes:
    """Returns the key of the tenant that owns a stored name."""
    tenant, found, _ = name.partition(b"\0")
    return tenant + b"\0" if found else b"\0"


def under(tenant: str, name: str) -> str:
    """Returns a client's name as it is stored; an empty one, which names nothing, stays empty."""
    return f"{tenant}{SEPARATOR}{name}" if tenant and name else name


def column_under(tenant: str, column: Column) -> Column:
    """Returns the ids of one tenant's clients as they are stored."""
    if not tenant:
        return column
    off, data = column
    prefix = np.frombuffer(key(tenant), np.uint8)
    rows, size = len(off) - 1, len(prefix)
    stored = np.insert(data, np.repeat(off[:-1], size), np.tile(prefix, rows))
    return off + size * np.arange(rows + 1), stored


def own(names: Sequence[str]) -> list[str]:
    """Returns the clients' own names for stored names."""
    return [name.rpartition(SEPARATOR)[2] for name in names]


def own_start(off: I64, data: U8) -> I64:
    """Returns where the client's own name begins in each stored row; it ends with the row."""
    start = off[:-1].copy()
    at = np.flatnonzero(data[off[0] : off[-1]] == 0) + off[0]
    if len(at):
        start[np.searchsorted(off, at, "right") - 1] = at + 1
    return start
