"""A disk in memory that loses what a real one may lose: the `Disk` of the simulator."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path

from ps2stream.errors import DataDirectoryError
from ps2stream.store.disk import DiskFile, DiskLock

SECTOR = 512  # bytes; written whole or not at all


class PowerCut(Exception):
    """The fuse blew in the middle of an operation."""


class SimDisk:
    """Any number of directories by name. What is not synced may be lost, sector by sector and
    name by name, as `rng` decides.

    full: nothing can be allocated. fail_sync: every sync fails and, as on Linux, leaves what
    it did not write in memory alone, where it counts as written. fuse: so many further
    changes succeed, then one is left half done and raises PowerCut, as do all later ones.
    crashes: how many there have been.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.full = False
        self.fail_sync = False
        self.fuse: int | None = None
        self.crashes = 0
        self._directories: dict[Path, _Directory] = {}
        self._locks: dict[Path, object] = {}

    # --- what happens to it ----------------------------------------------------------

    def crash(self) -> None:
        """The machine goes down and comes back: files that were open are of no use."""
        self.kill()
        self.crashes += 1
        fates: dict[_Inode, _Inode] = {}
        for directory in self._directories.values():
            names = directory.durable
            for change in directory.changes:
                if self.rng.random() < 0.5:
                    names = _changed(names, change)
            names = {n: fates.setdefault(i, i.after_crash(self.rng)) for n, i in names.items()}
            directory.names, directory.durable, directory.changes = dict(names), names, []

    def kill(self) -> None:
        """Every process ends (or is forgotten, while it runs on): no lock is held."""
        self.fuse = None
        self._locks.clear()

    def contents(self, directory: Path) -> dict[str, bytes]:
        """The bytes of every file, as a process would read them."""
        return {n: bytes(i.data) for n, i in self._directory(directory).names.items()}

    def holds(self, directory: Path) -> bool:
        """Whether it is there."""
        return directory in self._directories

    def lose(self, directory: Path) -> None:
        """The directory goes, behind everyone's back, with all that is in it."""
        self._directories.pop(directory, None)

    def put(self, path: Path, data: bytes | None) -> None:
        """Make this the durable content of a file, behind everyone's back; None removes it."""
        directory = self._directory(path.parent)
        for names in (directory.names, directory.durable):
            names.pop(path.name, None)
            if data is not None:
                names[path.name] = _Inode(data)

    # --- Disk --------------------------------------------------------------------------

    def lock(self, directory: Path) -> DiskLock:
        if directory in self._locks:
            raise DataDirectoryError(f"{directory} is in use by process 1")
        self._directories.setdefault(directory, _Directory())
        token = self._locks[directory] = object()
        return _Lock(self, directory, token)

    def list(self, directory: Path) -> list[str]:
        names = list(self._directory(directory).names)
        self.rng.shuffle(names)
        return names

    def has_room(self, directory: Path, size: int) -> bool:
        self._directory(directory)
        return not self.full

    def create(self, path: Path, size: int) -> DiskFile:
        self.spend()
        directory = self._directory(path.parent)
        if path.name in directory.names:
            raise _error(errno.EEXIST, path)
        if self.full:
            raise _error(errno.ENOSPC, path)
        inode = _Inode()
        inode.resize(size)
        directory.change({path.name: inode})
        return _SimFile(self, inode)

    def open(self, path: Path) -> DiskFile:
        return _SimFile(self, self._inode(path))

    def rename(self, path: Path, to: Path) -> None:
        assert path.parent == to.parent
        self.spend()
        self._directory(path.parent).change({to.name: self._inode(path), path.name: None})

    def remove(self, path: Path) -> None:
        self.spend()
        self._inode(path)
        self._directory(path.parent).change({path.name: None})

    def is_in_place(self, path: Path, file: DiskFile) -> bool:
        assert isinstance(file, _SimFile)
        return self._directory(path.parent).names.get(path.name) is file.inode

    def sync(self, directory: Path) -> None:
        self.spend()
        if self.fail_sync:
            raise _error(errno.EIO, directory)
        found = self._directory(directory)
        found.durable, found.changes = dict(found.names), []

    # --- for its files -------------------------------------------------------------------

    def spend(self) -> None:
        """One change more; raises PowerCut when the fuse is at its end."""
        if self.fuse is not None:
            if self.fuse <= 0:
                raise PowerCut
            self.fuse -= 1

    def _directory(self, path: Path) -> _Directory:
        if path not in self._directories:
            raise _error(errno.ENOENT, path)
        return self._directories[path]

    def _inode(self, path: Path) -> _Inode:
        found = self._directory(path.parent).names.get(path.name)
        if found is None:
            raise _error(errno.ENOENT, path)
        return found


class _Lock:
    def __init__(self, disk: SimDisk, directory: Path, token: object) -> None:
        self._disk, self._directory, self._token = disk, directory, token

    def close(self) -> None:
        locks = self._disk._locks
        if locks.get(self._directory) is self._token:
            del locks[self._directory]


class _SimFile:
    def __init__(self, disk: SimDisk, inode: _Inode) -> None:
        self._disk = disk
        self.inode = inode

    def size(self) -> int:
        return len(self.inode.data)

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self.inode.data[offset : offset + size])

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> None:
        data = b"".join(buffers)
        if self._disk.full and offset + len(data) > len(self.inode.data):
            raise _error(errno.ENOSPC)
        try:
            self._disk.spend()
        except PowerCut:
            stop = self._disk.rng.randint(0, offset + len(data)) // SECTOR * SECTOR
            self.inode.write(data[: max(0, stop - offset)], offset)
            raise
        self.inode.write(data, offset)

    def sync(self) -> None:
        self._disk.spend()
        if self._disk.fail_sync:
            self.inode.forget(self._disk.rng)
            raise _error(errno.EIO)
        self.inode.sync()

    def uncache(self, end: int) -> None:
        end = max(end, 0)
        assert self.inode.durable[:end] == self.inode.data[:end], "not durable"

    def truncate(self, size: int) -> None:
        self._disk.spend()
        self.inode.resize(size)

    def close(self) -> None:
        pass


class _Directory:
    def __init__(self) -> None:
        self.names: dict[str, _Inode] = {}
        self.durable: dict[str, _Inode] = {}
        self.changes: list[dict[str, _Inode | None]] = []  # since it was synced

    def change(self, names: dict[str, _Inode | None]) -> None:
        self.names = _changed(self.names, names)
        self.changes.append(names)


class _Inode:
    """A file's bytes: as processes see them, as they are on the disk, and for each sector
    written since the last sync all that it has held."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.durable = bytes(data)
        self._dirty: dict[int, list[bytes]] = {}
        self._sizes: list[int] = []

    def write(self, data: bytes, offset: int) -> None:
        if offset > len(self.data):
            self.resize(offset)
        self.data[offset : offset + len(data)] = data
        for k in range(offset // SECTOR, -(-(offset + len(data)) // SECTOR)):
            self._dirty.setdefault(k, []).append(_sector(self.data, k))

    def resize(self, size: int) -> None:
        self._sizes.append(size)
        self._dirty = {k: v for k, v in self._dirty.items() if k * SECTOR < size}
        start = len(self.data)
        del self.data[size:]
        self.data.extend(bytes(size - len(self.data)))
        if start < min(size, len(self.durable)):  # what was cut off there before is gone
            self.write(bytes(size - start), start)

    def sync(self) -> None:
        self.durable = self._with({k: v[-1] for k, v in self._dirty.items()}, len(self.data))
        self._dirty, self._sizes = {}, []

    def forget(self, rng: random.Random) -> None:
        """A sync that fails: some is written, the rest is taken for written."""
        self.durable = self.after_crash(rng).durable
        self._dirty, self._sizes = {}, []

    def after_crash(self, rng: random.Random) -> _Inode:
        """What comes back."""
        found = {k: rng.choice([None, *v]) for k, v in self._dirty.items()}
        size = rng.choice([len(self.durable), *self._sizes])
        return _Inode(self._with({k: v for k, v in found.items() if v is not None}, size))

    def _with(self, sectors: dict[int, bytes], size: int) -> bytes:
        room = max([size, len(self.durable), *((k + 1) * SECTOR for k in sectors)])
        out = bytearray(self.durable.ljust(room, b"\0"))
        for k, sector in sectors.items():
            out[k * SECTOR : k * SECTOR + SECTOR] = sector.ljust(SECTOR, b"\0")
        return bytes(out[:size])


def _sector(data: bytearray, k: int) -> bytes:
    return bytes(data[k * SECTOR : k * SECTOR + SECTOR])


def _changed(names: dict[str, _Inode], change: dict[str, _Inode | None]) -> dict[str, _Inode]:
    both = {**names, **change}
    return {name: inode for name, inode in both.items() if inode is not None}


def _error(code: int, path: Path | None = None) -> OSError:
    return OSError(code, os.strerror(code), *(() if path is None else (str(path),)))
