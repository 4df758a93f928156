"""The state of a source between its runs: one small file, replaced whole and synced."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from ps2stream.errors import DataDirectoryError, FailedPrecondition, invalid
from ps2stream.store.directory import replace_file

FORMAT = 1
MOST_BYTES = 256 << 20


class SourceState:
    """State of the source `name`, a JSON object under `values`. At most one process has it: the
    file beside it, with `.lock` behind its name, is locked until `close`. Without a path nothing is
    kept. Raises InvalidArgument for a file of another source, FailedPrecondition for one that
    another process has."""

    def __init__(self, path: Path | None, name: str) -> None:
        self._path = path
        self._name = name
        self._lock: BinaryIO | None = None
        self.values: dict[str, Any] = {}
        if path is not None:
            self._lock = _lock_file(path)
            try:
                self.values = _read_state(path, name)
            except BaseException:
                self._lock.close()
                raise

    def save(self) -> None:
        """Replaces the file, synced. Raises FailedPrecondition."""
        if self._path is None:
            return
        whole = {"format": FORMAT, "source": self._name, "values": self.values}
        try:
            replace_file(self._path, json.dumps(whole, ensure_ascii=True).encode())
        except (OSError, DataDirectoryError) as error:
            raise FailedPrecondition(f"cannot write the state {self._path}: {error}") from None

    def close(self) -> None:
        """Lets another process have the state."""
        if self._lock is not None:
            self._lock.close()


def _lock_file(path: Path) -> BinaryIO:
    try:
        file = path.with_name(path.name + ".lock").open("ab")
    except OSError as error:
        raise invalid("state", f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        problem = f"another process uses the state {path}; each source needs its own"
        raise FailedPrecondition(problem) from None
    return file


def _read_state(path: Path, name: str) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise invalid("state", f"{path} has more than {MOST_BYTES} bytes")
        whole = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise invalid("state", f"cannot read {path}: {os.strerror(error.errno or 0)}") from None
    except (ValueError, RecursionError):
        raise invalid("state", f"{path} is not a state of a source; give another file") from None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise invalid("state", f"{path} is not a state of this version; give another file")
    if whole.get("source") != name:
        raise invalid("state", f"{path} belongs to {whole.get('source')!r}, not to {name!r}")
    values = whole.get("values")
    return values if isinstance(values, dict) else {}
