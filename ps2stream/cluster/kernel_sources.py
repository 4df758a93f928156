"""What the code of kernels was compiled from.

Numba discards the code of a kernel when the kernel's own module changes. It does not see a change
of another module, from which the kernel has inlined a function or taken a constant. So a kernel's
module is known by what it says and by all that it imports of the package, in turn.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

_IMPORTED = re.compile(r"^\s*from ps2stream\.([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
_KERNEL = re.compile(r"^\s*@(?:njit|vectorize|intrinsic|overload|kernel)\b", re.MULTILINE)
"""A decorator of Numba, or that of ps2stream/keyed/compiling.py."""


def digest_kernels(package: Path, tops: Iterable[Path]) -> dict[str, str]:
    """Returns a digest of what each module with kernels below `tops` was made from, by its path.
    `package` is the folder that the modules import from each other."""
    texts: dict[Path, str] = {}
    found: dict[str, str] = {}
    for top in tops:
        for path in sorted(top.resolve().rglob("*.py")):
            if _KERNEL.search(_read_text(path, texts)):
                found[str(path)] = _digest_imported(path, package, texts)
    return found


def _digest_imported(path: Path, package: Path, texts: dict[Path, str]) -> str:
    """Returns a digest of a module and of all that it imports, in turn."""
    reached: set[Path] = set()
    ahead = [path]
    while ahead:
        module = ahead.pop()
        if module in reached:
            continue
        reached.add(module)
        for name, members in _IMPORTED.findall(_read_text(module, texts)):
            found = package.joinpath(*name.split("."))
            # A module, or modules of a folder.
            named = [found, *(found / member for member in re.findall(r"\w+", members))]
            sources = [each.with_suffix(".py") for each in named]
            ahead += [each.resolve() for each in sources if each.exists()]
    digest = hashlib.sha256()
    for module in sorted(reached):
        digest.update(_read_text(module, texts).encode())
    return digest.hexdigest()


def _read_text(path: Path, texts: dict[Path, str]) -> str:
    if path not in texts:
        texts[path] = path.read_text("utf-8")
    return texts[path]
