"""The disk as the logs need it: a port, so that the simulator can supply one that fails."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ps2stream.errors import DataDirectoryError
from ps2stream.store.access import explain_denial
from ps2stream.store.directory import lock_directory

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Error numbers of a call that wrote nothing and may succeed once there is room."""

_MAX_BUFFERS = os.sysconf("SC_IOV_MAX")


class DiskLock(Protocol):
    """A lock that is held until it is closed."""

    def close(self) -> None: ...


class DiskFile(Protocol):
    """An open file. All methods raise OSError; threads may share it."""

    def size(self) -> int:
        """Returns the size in bytes."""
        ...

    def pread(self, size: int, offset: int) -> bytes:
        """Returns `size` bytes, or fewer at the end of the file."""
        ...

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> None:
        """Writes all buffers, one after the other."""
        ...

    def sync(self) -> None:
        """Makes what was written, and the size, durable (fdatasync). After an error it is unknown
        what is durable, and a second call would not tell."""
        ...

    def uncache(self, end: int) -> None:
        """Tells that the bytes before `end`, which are durable, will hardly be read: memory that
        caches them may go to what is written next."""
        ...

    def truncate(self, size: int) -> None: ...

    def close(self) -> None:
        """Closes the file; idempotent. A file also closes when nothing refers to it any more."""
        ...


class Disk(Protocol):
    """Directories of files. All methods raise OSError."""

    def lock(self, directory: Path) -> DiskLock:
        """Locks the directory, made if need be, for this process alone. Raises
        DataDirectoryError that names the other process."""
        ...

    def list(self, directory: Path) -> list[str]:
        """Returns the names in the directory, in no order."""
        ...

    def has_room(self, directory: Path, size: int) -> bool:
        """Returns whether a file of so many bytes seems to fit."""
        ...

    def create(self, path: Path, size: int) -> DiskFile:
        """Makes a file of zeros, with room for all of them. Raises FileExistsError when there is
        one; without room an error of FULL, and then there is no file."""
        ...

    def open(self, path: Path) -> DiskFile:
        """Opens a file to read and write it."""
        ...

    def rename(self, path: Path, to: Path) -> None:
        """Renames a file within a directory; one of the new name is replaced, atomically."""
        ...

    def remove(self, path: Path) -> None: ...

    def is_in_place(self, path: Path, file: DiskFile) -> bool:
        """Returns whether `file`, and no other file, has this name now."""
        ...

    def sync(self, directory: Path) -> None:
        """Makes what was created, renamed and removed in the directory durable."""
        ...


class OsFile:
    """A file of the operating system."""

    def __init__(self, path: Path, flags: int) -> None:
        self._fd = -1
        self._uncached = 0  # bytes
        self._fd = os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o600)
        own = os.fstat(self._fd)
        self._identity = own.st_ino, own.st_dev  # no other file's while this one is open

    def is_at(self, path: Path) -> bool:
        """Returns whether the file has this name now."""
        found = os.stat(path)  # noqa: PTH116
        return self._fd >= 0 and (found.st_ino, found.st_dev) == self._identity

    def reserve(self, size: int) -> None:
        """Allocates the first `size` bytes."""
        os.posix_fallocate(self._fd, 0, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def pread(self, size: int, offset: int) -> bytes:
        return os.pread(self._fd, size, offset)

    def pwritev(self, buffers: Sequence[bytes], offset: int) -> None:
        if len(buffers) > _MAX_BUFFERS:
            buffers = [b"".join(buffers)]
        written = os.pwritev(self._fd, buffers, offset)
        if written < sum(map(len, buffers)):
            rest = memoryview(b"".join(buffers))
            while written < len(rest):
                written += os.pwrite(self._fd, rest[written:], offset + written)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def uncache(self, end: int) -> None:
        # In a virtual machine a page that was never used before costs some 10 us.
        start, self._uncached = self._uncached, max(self._uncached, end - end % mmap.PAGESIZE)
        if start < self._uncached:
            size = self._uncached - start
            with contextlib.suppress(OSError):  # of a file system that takes no advice
                os.posix_fadvise(self._fd, start, size, os.POSIX_FADV_DONTNEED)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class OsDisk:
    """The disk of the operating system."""

    def lock(self, directory: Path) -> DiskLock:
        directory = directory.absolute()
        try:
            made = [p for p in (directory, *directory.parents) if not p.exists()]
            held = lock_directory(directory)
            for path in made:
                self.sync(path.parent)
        except OSError as error:
            why = explain_denial(directory, error)
            raise DataDirectoryError(f"{directory} cannot be used: {why}") from error
        return held

    def list(self, directory: Path) -> list[str]:
        return os.listdir(directory)  # noqa: PTH208

    def has_room(self, directory: Path, size: int) -> bool:
        room = os.statvfs(directory)
        return room.f_bavail * room.f_frsize >= size

    def create(self, path: Path, size: int) -> DiskFile:
        if not self.has_room(path.parent, size):
            # Trying without this check would briefly take the remaining room from others.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        file = OsFile(path, os.O_CREAT | os.O_EXCL)
        try:
            file.reserve(size)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        return file

    def open(self, path: Path) -> DiskFile:
        return OsFile(path, 0)

    def rename(self, path: Path, to: Path) -> None:
        path.rename(to)

    def remove(self, path: Path) -> None:
        path.unlink()

    def is_in_place(self, path: Path, file: DiskFile) -> bool:
        try:
            return isinstance(file, OsFile) and file.is_at(path)
        except FileNotFoundError:
            return False

    def sync(self, directory: Path) -> None:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
