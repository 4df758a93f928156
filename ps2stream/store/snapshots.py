"""Snapshots: arrays by name, as they were when they held all updates up to an LSN.

A cache in a directory of its own, which the ledger can replace at any time: whatever is
missing, damaged or of another key counts as nothing, and is removed. `arrays.<stamp>` holds
the arrays one after the other; `manifest`, renamed into its place at the end, says what they
are, with a CRC-32 of each and one of itself.
"""

from __future__ import annotations

import contextlib
import json
import logging
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ps2stream.errors import DataDirectoryError
from ps2stream.protocol.frame import Array
from ps2stream.store.disk import Disk, DiskFile, OsDisk

log = logging.getLogger("ps2stream.store")
FORMAT = 1
MANIFEST = "manifest"
SLICE = 4 << 20  # bytes written, and synced, at a time: no other sync waits long for them
_LINE = 64  # bytes to which arrays are aligned


class SnapshotKey(NamedTuple):
    """Values that must be the same for a snapshot to count: the ledger's identity, the worker's
    number, the layout of its index, and `route`, of the plan under which the service started.
    That may also be the plan of the snapshot's `serving`: what changed it is in the ledger."""

    identity: int
    route: int
    worker: int
    layout: int
    serving: int = 0

    def serves(self, asked: SnapshotKey) -> bool:
        """Returns whether a snapshot of this key is one that is asked for."""
        same = self._replace(route=asked.route, serving=asked.serving) == asked
        return same and asked.route in (self.route, self.serving)


class SnapshotStore:
    """The last snapshot in a directory, which is this object's alone. Raises DataDirectoryError
    or OSError when the directory cannot be locked."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self._disk: Disk = disk or OsDisk()
        self._folder = folder
        self._lock = self._disk.lock(folder)

    def close(self) -> None:
        """Releases the directory; idempotent."""
        self._lock.close()

    def read(self, key: SnapshotKey) -> tuple[int, dict[str, Array]] | None:
        """Returns the LSN and the arrays, whose memory is the caller's; None without a snapshot."""
        try:
            if MANIFEST not in self._disk.list(self._folder):
                self._remove_others()
                return None
            body = _read_manifest(self._disk.open(self._folder / MANIFEST))
            if body["format"] != FORMAT or not SnapshotKey(*body["key"]).serves(key):
                raise ValueError("it belongs to another service, plan or version")
            file = self._disk.open(self._folder / body["file"])
            arrays = {name: _read_array(file, *what) for name, *what in body["arrays"]}
            file.close()
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("the snapshot in %s is not used: %s", self._folder, error)
            with contextlib.suppress(OSError):
                self._remove_others()
            return None
        with contextlib.suppress(OSError):
            self._remove_others(MANIFEST, body["file"])
        return int(body["lsn"]), arrays

    def write(
        self,
        key: SnapshotKey,
        lsn: int,
        arrays: Mapping[str, Array],
        stamp: str,
        still: Callable[[], bool],
    ) -> int:
        """Replaces the snapshot; returns the bytes of the arrays. `stamp` was never used before;
        unless `still` holds at the end, nothing changes and 0 is returned. Raises OSError."""
        name = f"arrays.{stamp}"
        new = self._folder / f"{MANIFEST}.{stamp}"
        good = False
        try:
            size = self._write_files(key, lsn, arrays, name, new)
            good = still()
        finally:
            if not good:
                for path in (new, self._folder / name):
                    with contextlib.suppress(OSError):
                        self._disk.remove(path)
        if not good:
            return 0
        self._disk.rename(new, self._folder / MANIFEST)
        self._disk.sync(self._folder)
        self._remove_others(MANIFEST, name)
        return size

    def _write_files(
        self, key: SnapshotKey, lsn: int, arrays: Mapping[str, Array], name: str, manifest: Path
    ) -> int:
        """Writes the two files; returns the bytes of the arrays."""
        size = sum(_pad_size(a.nbytes) for a in arrays.values())
        file = self._disk.create(self._folder / name, size)
        rows: list[tuple[Any, ...]] = []
        at = 0
        for label, array in arrays.items():
            crc = _write_array(file, at, array)
            rows.append((label, array.dtype.str, array.shape, at, crc))
            at += _pad_size(array.nbytes)
        file.close()
        body = {"format": FORMAT, "key": key, "lsn": lsn, "file": name, "arrays": rows}
        text = json.dumps(body).encode()
        text = b"%08x %s" % (zlib.crc32(text), text)
        file = self._disk.create(manifest, len(text))
        file.pwritev([text], 0)
        file.sync()
        file.close()
        return size

    def _remove_others(self, *kept: str) -> None:
        """Removes all files but these; the manifest before what it names."""
        names = set(self._disk.list(self._folder)) - {"lock", *kept}
        for name in sorted(names, key=lambda name: name != MANIFEST):
            self._disk.remove(self._folder / name)
        if names:
            self._disk.sync(self._folder)


def forget_beyond(folder: Path, lsn: int) -> None:
    """Removes the snapshots below `folder` that hold more than a ledger which ends at `lsn`: it is
    an older copy, and will go on in another way than they did. Raises DataDirectoryError."""
    disk = OsDisk()
    if not folder.is_dir():
        return
    try:
        for where in sorted(folder.iterdir()):
            if not (where / MANIFEST).exists():
                continue
            try:
                good = _read_manifest(disk.open(where / MANIFEST))["lsn"] <= lsn
            except (ValueError, KeyError, TypeError):
                good = False
            if not good:
                disk.remove(where / MANIFEST)
                disk.sync(where)
    except OSError as error:
        raise DataDirectoryError(f"{folder} cannot be used: {error.strerror}") from error


def _read_manifest(file: DiskFile) -> dict[str, Any]:
    """Reads a manifest. Raises OSError, and ValueError when it is damaged."""
    raw = file.pread(file.size(), 0)
    file.close()
    if raw[:9] != b"%08x " % zlib.crc32(raw[9:]):
        raise ValueError("the manifest is damaged")
    found: dict[str, Any] = json.loads(raw[9:])
    return found


def _write_array(file: DiskFile, at: int, array: Array) -> int:
    """Writes and syncs an array; returns its CRC-32."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    crc = 0
    for start in range(0, len(raw), SLICE):
        part = raw[start : start + SLICE].tobytes()
        crc = zlib.crc32(part, crc)
        file.pwritev([part], at + start)
        file.sync()
        file.uncache(at + start)
    return crc


def _read_array(file: DiskFile, dtype: str, shape: list[int], at: int, crc: int) -> Array:
    """Reads an array. Raises OSError, and ValueError when it is damaged."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    raw = np.empty(size + _LINE, np.uint8)
    raw = raw[-raw.ctypes.data % _LINE :][:size]
    found = 0
    for start in range(0, size, SLICE):
        part = file.pread(min(SLICE, size - start), at + start)
        found = zlib.crc32(part, found)
        raw[start : start + len(part)] = np.frombuffer(part, np.uint8)
        if len(part) < min(SLICE, size - start):
            raise ValueError("the arrays are truncated")
    if found != crc:
        raise ValueError("an array is damaged")
    return raw.view(kind).reshape(shape)


def _pad_size(size: int) -> int:
    return -(-size // _LINE) * _LINE
