"""Folders for files that last no longer than a process: sockets, Ray's session, benchmark data.

Only its owner may enter such a folder (0700). Its name cannot be guessed, and it is locked while
the process that made it lives. So no other user reaches or replaces anything in it, whatever modes
Ray gives its own folders inside, and the next process can tell which folders were left behind.
`XDG_RUNTIME_DIR` is not used: systemd removes it when the user logs out, although the service
goes on.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

log = logging.getLogger("ps2stream.cluster")
PREFIX = "ps2s-"
OWNER = "owner"
"""Name of the file with the owner's pid; a folder without it was not made here."""
BASE_BYTES = 24
"""Longest path of the folder above: of the 107 bytes of a socket's path Ray needs 64."""
END_S = 5.0


class PrivateFolder:
    """A new folder, removed by `remove` or at the end of a `with` block.

    It lies in `base`, by default the system's folder for temporary files; with `holds_sockets`
    in /tmp where the path of the default is too long. This user's folders there whose owners were
    killed are removed first, and processes that still run in them are killed.
    """

    def __init__(self, base: Path | None = None, *, holds_sockets: bool = False) -> None:
        base = _choose_base(holds_sockets) if base is None else base
        _remove_abandoned(base)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        # On the folder itself: systemd-tmpfiles also spares folders that are locked.
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.path / OWNER).write_text(f"{os.getpid()}\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Removes the folder with everything in it; idempotent."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def end_abandoned(*, holds_sockets: bool) -> bool:
    """Removes this user's folders whose owners were killed, and kills what still runs in them, as
    the next PrivateFolder would; returns whether there were any."""
    return _remove_abandoned(_choose_base(holds_sockets))


def end_own_folders() -> None:
    """Kills what runs in the folders of this process and removes them: for a process that ends
    itself at once, without the end of its `with` blocks."""
    for base in {_choose_base(holds_sockets=False), _choose_base(holds_sockets=True)}:
        for owner in base.glob(f"{PREFIX}*/{OWNER}"):
            with contextlib.suppress(OSError):  # another user's
                if owner.read_text() == f"{os.getpid()}\n":
                    end_processes(find_children(owner.parent))
                    end_writers(owner.parent)
                    shutil.rmtree(owner.parent, ignore_errors=True)


def find_writers(folder: Path) -> set[int]:
    """Returns the other processes that have a file in `folder` open for writing.

    Ray's daemons and actors log to such files. Processes that only read them are not included.
    """
    return {pid for pid in _list_processes() if pid != os.getpid() and _writes_to(pid, folder)}


def find_children(folder: Path) -> set[int]:
    """Returns the processes that this one started with a path in `folder` among their arguments,
    which may not have opened a file there yet."""
    found = set()
    for pid in _list_processes():
        process = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):  # it has ended
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            arguments = (process / "cmdline").read_bytes()
            if parent == os.getpid() and os.fsencode(f"{folder}/") in arguments:
                found.add(pid)
    return found


def end_writers(folder: Path) -> bool:
    """Kills all processes that `find_writers` returns, and waits; returns whether all are gone."""
    deadline = time.monotonic() + END_S
    while pids := find_writers(folder):
        if time.monotonic() > deadline:
            return False
        end_processes(pids)
        time.sleep(0.02)
    return True


def end_processes(pids: Iterable[int]) -> None:
    """Kills these processes, without waiting for their end."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _choose_base(holds_sockets: bool) -> Path:
    base = Path(tempfile.gettempdir()).resolve()
    if holds_sockets and len(os.fsencode(base)) > BASE_BYTES:
        base = Path("/tmp")
    mode = base.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        log.warning("%s: other users can replace the files in it; run chmod +t on it", base)
    return base


def _remove_abandoned(base: Path) -> bool:
    return sum(map(_remove_if_abandoned, base.glob(f"{PREFIX}*"))) > 0


def _remove_if_abandoned(path: Path) -> bool:
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False  # another user's folder, or no folder
    try:
        if os.fstat(folder).st_uid == os.geteuid() and (path / OWNER).is_file():
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            end_writers(path)
            shutil.rmtree(path, ignore_errors=True)
            return True
    except OSError:
        pass  # locked: its owner lives
    finally:
        os.close(folder)
    return False


def _list_processes() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())


def _writes_to(pid: int, folder: Path) -> bool:
    process, inside = Path(f"/proc/{pid}"), f"{folder}/"
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()).startswith(inside):
                    flags = (process / "fdinfo" / link.name).read_text().split("flags:")[1]
                    if int(flags.split()[0], 8) & os.O_ACCMODE != os.O_RDONLY:
                        return True
    return False
