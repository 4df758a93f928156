"""An open-addressing table from the salted hashes of keys to row numbers (kernels.py)."""

from __future__ import annotations

import hashlib

import numpy as np

from ps2stream.language.hash_kernels import KEYS
from ps2stream.protocol.frame import I64, U8, U64, sealed
from ps2stream.sequencer import kernels

_FIRST_SLOTS = 64
_FULL = 0.84  # share of the slots above which a table grows
_GROWTH = 1.125
_IDENTITY = sealed(np.arange(256, dtype=np.uint8))


class SaltedHash:
    """A hash of byte strings that nobody can foresee without the salt."""

    def __init__(self, salt: int) -> None:
        digest = hashlib.shake_256(b"ps2stream ids %d" % salt).digest(8 * KEYS)
        self._keys = sealed(np.frombuffer(digest, "<u8").astype(np.uint64))

    def hash(self, off: I64, data: U8) -> U64:
        """Returns the hash of each row of a ragged column."""
        found = np.empty(len(off) - 1, np.uint64)
        kernels.hash_keys(sealed(off), sealed(data), _IDENTITY, self._keys, found)
        return found


class HashTable:
    """Rows by the upper half of their hashes. Several rows may have one; each row is there once.
    A row number is below 2 ** 32 - 1."""

    def __init__(self) -> None:
        self._slots = np.zeros(_FIRST_SLOTS, np.uint64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """The bytes of all slots."""
        return self._slots.nbytes

    @property
    def slots(self) -> U64:
        """The slots, as the kernels have them."""
        return self._slots

    def find(self, hashes: U64, slot: I64) -> tuple[I64, int]:
        """Moves each slot to the next one with that hash from there on, or from the beginning
        for NONE; returns the rows there, NONE where there is no other, and how many there are."""
        rows = np.empty(len(hashes), np.int64)
        found: int = kernels.find_slots(self._slots, hashes, slot, rows)
        return rows, found

    def insert(self, hashes: U64, rows: I64) -> None:
        """Adds rows."""
        kernels.insert_rows(self.make_room(len(rows)), hashes, rows)

    def make_room(self, more: int) -> U64:
        """Counts rows that the caller is going to add; returns the slots, with room for them."""
        self._count += more
        if self._count > _FULL * len(self._slots):
            old = self._slots
            size = max(int(_GROWTH * len(old)), int(self._count / _FULL) + 1)
            self._slots = np.zeros(size, np.uint64)
            kernels.move_records(old, self._slots)
        return self._slots

    def remove(self, hashes: U64, rows: I64) -> None:
        """Removes rows. Raises KeyError for one that is not there."""
        if (bad := kernels.remove_rows(self._slots, hashes, rows)) != kernels.NONE:
            raise KeyError(int(rows[bad]))
        self._count -= len(rows)

    def replace(self, hashes: U64, old: I64, new: I64) -> None:
        """Gives rows other numbers. Raises KeyError for one that is not there."""
        if (bad := kernels.replace_rows(self._slots, hashes, old, new)) != kernels.NONE:
            raise KeyError(int(old[bad]))
