"""The compiled kernels on disk, where all processes of a host find them.

Numba keeps a kernel's code beside its source, or in NUMBA_CACHE_DIR, and discards it when the
source, its own version or the CPU changes. A marker beside them says for which versions, leaves and
indexes a rehearsal has compiled them, and into which files. Another file says from which sources:
code that was made from others is removed before a kernel is used (`kernel_sources`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from ps2stream.cluster.kernel_sources import digest_kernels

PACKAGE = Path(__file__).resolve().parent.parent
VARIABLE = "NUMBA_CACHE_DIR"
MARKER = "ps2stream-kernels.json"
SOURCES = "ps2stream-sources.json"
_ROOMS = ("dispatcher", "merger", "planner", "sequencer", "workers")


def choose_folder(environ: MutableMapping[str, str], package: Path = PACKAGE) -> None:
    """Sets NUMBA_CACHE_DIR, before Numba is imported, where the package is read-only and no
    folder is set: to the user's cache, or, without one, to a folder of the user's own among the
    temporary ones. Numba trusts what it finds there, so others must not be able to write it."""
    if VARIABLE in environ or os.access(package, os.W_OK):
        return
    home = Path(environ.get("HOME", "/nonexistent"))
    cache = environ.get("XDG_CACHE_HOME") or home / ".cache"
    temporary = Path(tempfile.gettempdir()) / f"ps2stream-kernels-{os.getuid()}"
    for folder in (Path(cache) / "ps2stream" / "kernels", temporary):
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
            private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o022
            if private and found.st_uid == os.getuid() and os.access(folder, os.W_OK):
                environ[VARIABLE] = str(folder)
                return


def use_kernels(environ: MutableMapping[str, str]) -> None:
    """Prepares a program that compiles kernels as it comes to them, before it imports Numba: it
    keeps their code where the user may write, and takes none of another version."""
    choose_folder(environ)
    KernelCache((), environ).discard_stale()


class KernelCache:
    """The compiled code of the kernels that leaves and an index of these `kinds` use."""

    def __init__(self, kinds: Iterable[str], environ: Mapping[str, str] = os.environ) -> None:
        self._kinds = sorted(set(kinds))
        folder = environ.get(VARIABLE)
        self._folder = None if not folder else Path(folder)

    def make_folder(self) -> bool:
        """Makes the folder, and returns whether code can be kept there for other processes."""
        folder = self._folder or PACKAGE
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        return os.access(folder, os.W_OK)

    @property
    def complete(self) -> bool:
        """True when a rehearsal by this version, on this CPU, has left all its files here."""
        found = self._read_marker()
        files = found.get("files", [])
        done = self._kinds in found.get("kinds", [])
        return done and bool(files) and all(Path(path).exists() for path in files)

    def discard_stale(self) -> None:
        """Removes the code of kernels whose sources have changed since it was made, or are not
        known, and the marker. Other processes compile anew what they no longer find."""
        now, found = self._hash_versions(), _load(self._sources_path)
        if found.get("of") == now:
            return
        before, sources = found.get("sources", {}), self._digest_sources()
        stale = {
            Path(path).stem for path, digest in sources.items() if before.get(path) != digest
        }  # fmt: skip
        with contextlib.suppress(OSError):  # where nothing can be removed, nothing is kept
            if stale:
                self._marker_path.unlink(missing_ok=True)
            for path in self._list_code_files():
                if path.name.partition(".")[0] in stale:
                    path.unlink(missing_ok=True)
            _save(self._sources_path, {"of": now, "sources": sources})

    def mark(self) -> None:
        """Writes the marker after a rehearsal; does nothing where it cannot be written."""
        others = [kinds for kinds in self._read_marker().get("kinds", []) if kinds != self._kinds]
        made = {
            "of": self._hash_versions(),
            "kinds": [*others, self._kinds],
            "files": sorted(map(str, self._list_code_files())),
        }
        with contextlib.suppress(OSError):
            _save(self._marker_path, made)

    def _read_marker(self) -> dict[str, Any]:
        """Returns the marker; empty if it is of other versions, or cannot be read."""
        found = _load(self._marker_path)
        return found if found.get("of") == self._hash_versions() else {}

    def _digest_sources(self) -> dict[str, str]:
        return digest_kernels(PACKAGE, self._tops)

    @property
    def _tops(self) -> list[Path]:
        return [PACKAGE, *(PACKAGE / room for room in _ROOMS)]

    @property
    def _marker_path(self) -> Path:
        return (self._folder or PACKAGE / "__pycache__") / MARKER

    @property
    def _sources_path(self) -> Path:
        return self._marker_path.with_name(SOURCES)

    def _list_code_files(self) -> Iterator[Path]:
        if self._folder is not None:
            yield from self._folder.rglob("*.nb[ic]")
            return
        for top in self._tops:
            yield from top.resolve().rglob("__pycache__/*.nb[ic]")

    def _hash_versions(self) -> str:
        import llvmlite
        import numba
        import numpy as np
        from llvmlite import binding

        parts: list[object] = [numba.__version__, llvmlite.__version__, np.__version__]
        parts += [sys.version, binding.get_host_cpu_name()]
        parts.append(sorted(binding.get_host_cpu_features().items()))
        for top in self._tops:
            for path in sorted(top.resolve().rglob("*.py")):
                found = path.stat()
                parts.append((str(path), found.st_mtime_ns, found.st_size))
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _load(path: Path) -> dict[str, Any]:
    """Returns what a file says; empty if it cannot be read."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _save(path: Path, value: dict[str, Any]) -> None:
    """Writes a file, so that others never see a part of it. Raises OSError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    # Where Python writes no bytecode, nothing else makes this folder.
    fresh.parent.mkdir(exist_ok=True)
    fresh.write_text(json.dumps(value), "utf-8")
    fresh.replace(path)
