"""The ids that a source has published lately, so that only their deletions are withdrawn."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from ps2stream.errors import invalid

MOST_IDS = 1_000_000
"""Ids that are remembered, at least; twice as many at most."""
_SIZE = 16


class PublishedIds:
    """Hashes of ids, in a file that is appended to. Without a path they are kept in memory. Raises
    InvalidArgument for a file that cannot be read."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[bytes, None] = {}
        self._unsaved: list[bytes] = []
        if path is not None:
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                return
            except OSError as error:
                raise invalid("state", f"cannot read {path}: {error.strerror}") from None
            whole = len(data) - len(data) % _SIZE  # a kill may have cut the last one off
            for at in range(0, whole, _SIZE):
                self._known[data[at : at + _SIZE]] = None
            self._shrink()
            self._rewrite()

    def __contains__(self, id: str) -> bool:
        return _hash_id(id) in self._known

    def add(self, ids: Iterable[str]) -> None:
        """Adds ids that are about to be published."""
        for id in ids:
            found = _hash_id(id)
            if found not in self._known:
                self._known[found] = None
                self._unsaved.append(found)

    def save(self) -> None:
        """Makes the ids durable. Raises OSError."""
        if self._path is None or not self._unsaved:
            self._shrink()
            return
        if self._shrink():
            self._rewrite()
            return
        with self._path.open("ab") as file:
            file.write(b"".join(self._unsaved))
            file.flush()
            os.fsync(file.fileno())
        self._unsaved = []

    def _shrink(self) -> bool:
        """Forgets the oldest ids, if there are twice as many as are remembered."""
        if len(self._known) < 2 * MOST_IDS:
            return False
        for found in list(self._known)[:-MOST_IDS]:
            del self._known[found]
        return True

    def _rewrite(self) -> None:
        if self._path is None:
            return
        fresh = self._path.with_name(self._path.name + ".new")
        with fresh.open("wb") as file:
            file.write(b"".join(self._known))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._unsaved = []


def _hash_id(id: str) -> bytes:
    return hashlib.blake2b(id.encode("utf-8", "surrogatepass"), digest_size=_SIZE).digest()
