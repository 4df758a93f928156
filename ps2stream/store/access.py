"""Access to a data directory: who may read and write it, and how an error says so."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from pathlib import Path

from ps2stream.errors import DataDirectoryError

log = logging.getLogger("ps2stream.store")
_DENIED = frozenset({errno.EACCES, errno.EPERM})
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OURS = re.compile(
    r"(ledger\.db.*|mark|mark\.new|lock|tokens|tokens\.new|ray-token.*|restored|snapshots|manifest.*"
    r"|archive\.json(\.new)?|mark\.json(\.new)?|dispatcher-[0-9]+|compacted|[-0-9]+\.parquet(\.new)?"
    r"|identity|identity\.new|arrays\..*|[0-9]{12}\.segment|(objects|matches|worker)-[0-9]+|lost\+found)"
)


def explain_denial(path: Path, error: OSError) -> str:
    """Returns why a path cannot be used, in words for whoever has to change that."""
    if error.errno == errno.EROFS:
        return "the file system is read-only; mount it to read and write"
    if error.errno in _DENIED:
        existing = path.absolute()
        while (found := _stat_path(existing)) is None:
            existing = existing.parent
        is_owner = found.st_uid == os.geteuid()
        advice = "run as its owner, or chown the whole directory"
        return (
            f"{error.strerror}: user {os.geteuid()} may not read and write {existing} (owner "
            f"{found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}); "
            f"{'run chmod u+rwX on it' if is_owner else advice}"
        )
    return error.strerror or str(error)


def _stat_path(path: Path) -> os.stat_result | None:
    """Returns the status of a path; None if it is missing or cannot be read, as / always can."""
    try:
        return path.stat()
    except OSError:
        return None


def is_denied(error: OSError) -> bool:
    """Returns whether missing rights or a read-only file system caused the error, not damage."""
    return error.errno in _DENIED or error.errno == errno.EROFS


def find_obstacle(path: Path) -> OSError | None:
    """Returns the error that writing or making a file would meet, or None; does not open it."""
    if os.statvfs(path.parent).f_flag & os.ST_RDONLY:
        return OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
    for needed in (path, path.parent) if os.access(path, os.F_OK) else (path.parent,):
        if not os.access(needed, os.R_OK | os.W_OK, effective_ids=True):
            return OSError(errno.EACCES, os.strerror(errno.EACCES), str(needed))
    return None


def make_private(folder: Path) -> None:
    """Makes the folder, or closes it to other users: 0700, whatever the umask. Raises OSError, and
    DataDirectoryError if others can read it and it holds files that are not a service's."""
    try:
        folder.mkdir(mode=0o700, parents=True)
        return
    except FileExistsError:
        mode = folder.stat().st_mode
    if not stat.S_ISDIR(mode):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
    if not mode & _OTHERS:
        return
    if foreign := find_foreign(folder):
        raise DataDirectoryError(
            f"{folder} is open to other users (mode {stat.S_IMODE(mode):04o}) and contains files "
            f"of other users, such as {foreign}: use a separate directory, or run chmod 700 on "
            "this one"
        )
    folder.chmod(0o700)
    log.warning(
        "%s was open to other users (mode %04o); its mode is now 0700", folder, stat.S_IMODE(mode)
    )


def find_foreign(folder: Path) -> str:
    """Returns the first name in the folder that is not a service's; "" if there is none."""
    return min((name for name in os.listdir(folder) if not _OURS.fullmatch(name)), default="")  # noqa: PTH208


def close_files(folder: Path) -> None:
    """Closes a service's files in the folder to other users: 0600. Raises OSError."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if _OURS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                mode = stat.S_IMODE(entry.stat(follow_symlinks=False).st_mode)
                if mode & _OTHERS:
                    Path(entry.path).chmod(mode & ~_OTHERS)
