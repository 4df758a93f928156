"""Sets of ids, and the rows of a column that are in one, found without a Python object a row."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ps2stream.protocol.frame import I64, U8, U64, strings_to_column

_WEIGHTS = np.random.default_rng(0x1D5).integers(1, 1 << 63, 512, np.uint64) | np.uint64(1)
"""Weights of the bytes of an id by their place. Whoever makes ids of one hash makes a search
slower, not wrong: bytes decide."""


class IdSet:
    """A set of stored ids, as bytes."""

    def __init__(self, ids: Iterable[bytes]) -> None:
        self.ids = frozenset(ids)
        self._hashes = np.unique(hash_ids(*strings_to_column(list(self.ids))))

    def find_rows(self, off: I64, data: U8, hashes: U64 | None = None) -> I64:
        """Returns the rows of a column whose ids are in the set, ascending. hashes: its
        hash_ids."""
        found = hash_ids(off, data) if hashes is None else hashes
        rows = np.flatnonzero(np.isin(found, self._hashes))
        raw = data
        is_in = [raw[off[row] : off[row + 1]].tobytes() in self.ids for row in rows.tolist()]
        return rows[np.array(is_in, np.bool_)]


def hash_ids(off: I64, data: U8) -> U64:
    """Returns a hash of each id of a column."""
    begin, end = off[:-1], off[1:]
    used = data[off[0] : off[-1]].astype(np.uint64)
    within = np.arange(len(used)) - np.repeat(begin - off[0], end - begin)
    weighed = used * _WEIGHTS[within % len(_WEIGHTS)]
    sums = np.zeros(len(used) + 1, np.uint64)
    np.cumsum(weighed, out=sums[1:])
    found: U64 = sums[end - off[0]] - sums[begin - off[0]] + (end - begin).astype(np.uint64)
    return found
