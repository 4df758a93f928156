"""An open-addressing table from the salted hashes of keys to row numbers (table_kernels.py)."""

from __future__ import annotations

import hashlib

import numpy as np

from ps2stream.language.hash_kernels import KEYS
from ps2stream.protocol.frame import I64, U8, U64, Array, sealed
from ps2stream.sequencer import kernels, table_kernels
from ps2stream.sequencer.table_kernels import ADDRESS, COUNT, NONE, PART_BITS, SIZE

_FIRST_SLOTS = 8  # of a part
_FEW_SLOTS = 512  # with fewer, a part doubles
_GROWTH = 1.125


class SaltedHash:
    """A hash of byte strings that nobody can foresee without the salt; `keys` are made of it, and
    the last one is the mask of the bits that count: the highest BITS."""

    BITS = 64

    def __init__(self, salt: int) -> None:
        digest = hashlib.shake_256(b"ps2stream ids %d" % salt).digest(8 * KEYS)
        mask = (1 << 64) - (1 << (64 - self.BITS))
        keys = np.append(np.frombuffer(digest, "<u8"), np.uint64(mask))
        self.keys = sealed(keys.astype(np.uint64))

    def hash(self, off: I64, data: U8) -> U64:
        """Returns the hash of each row of a ragged column."""
        found = np.empty(len(off) - 1, np.uint64)
        kernels.hash_keys(sealed(off), sealed(data), self.keys, found)
        return found


class HashTable:
    """Rows by their hashes. Several rows may have one; each row is there once. A row number is
    below 2 ** 32 - 1. Each of many parts grows on its own, so that no call moves all records."""

    def __init__(self) -> None:
        first = np.zeros((1 << PART_BITS, _FIRST_SLOTS), np.uint64)
        self._slots: list[U64] = list(first)
        self._parts = np.zeros((len(first), 3), np.int64)
        self._parts[:, ADDRESS] = [find_address(slots) for slots in self._slots]
        self._parts[:, SIZE] = _FIRST_SLOTS

    def __len__(self) -> int:
        return int(self._parts[:, COUNT].sum())

    @property
    def nbytes(self) -> int:
        """The bytes of all slots."""
        return int(8 * self._parts[:, SIZE].sum()) + self._parts.nbytes

    @property
    def parts(self) -> I64:
        """The parts, as the kernels have them."""
        return self._parts

    @property
    def slots(self) -> list[U64]:
        """The slots of each part."""
        return self._slots

    def insert(self, hashes: U64, rows: I64) -> None:
        """Adds rows."""
        done = table_kernels.insert_rows(self._parts, hashes, rows)
        while done < len(rows):
            self._grow(int(hashes[done]) >> (64 - PART_BITS))
            done += table_kernels.insert_rows(self._parts, hashes[done:], rows[done:])

    def remove(self, hashes: U64, rows: I64) -> None:
        """Removes rows. Raises KeyError for one that is not there."""
        if (bad := table_kernels.remove_rows(self._parts, hashes, rows)) != NONE:
            raise KeyError(int(rows[bad]))

    def replace(self, hashes: U64, old: I64, new: I64) -> None:
        """Gives rows other numbers. Raises KeyError for one that is not there."""
        if (bad := table_kernels.replace_rows(self._parts, hashes, old, new)) != NONE:
            raise KeyError(int(old[bad]))

    def _grow(self, part: int) -> None:
        """Gives a part more slots."""
        old = self._slots[part]
        size = 2 * len(old) if len(old) < _FEW_SLOTS else int(_GROWTH * len(old))
        slots = self._slots[part] = np.zeros(size, np.uint64)
        table_kernels.move_records(old, slots)
        self._parts[part, ADDRESS], self._parts[part, SIZE] = find_address(slots), size


def find_address(column: Array) -> int:
    """Returns where a column lies in memory."""
    address: int = column.__array_interface__["data"][0]  # several times as fast as ctypes.data
    return address
