"""How the kernels of this room are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False, "error_model": "numpy"}
kernel: Any = njit(**_OPTIONS)
"""The decorator of all kernels. None allocates, so none needs Numba's counts of references to
arrays: those of the counters' arrays alone take ten times as long as counting a key."""
inline_kernel: Any = njit(inline="always", **_OPTIONS)
"""The decorator of the smallest ones, which become part of their callers."""
