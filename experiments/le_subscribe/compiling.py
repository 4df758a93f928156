"""How the kernels of this room are compiled."""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}
kernel: Any = njit(**_OPTIONS)
"""The decorator of all kernels. None allocates, so none needs Numba's counts of references to
arrays: counting those of the thirty arrays of a matcher, with an atomic instruction each, takes
ten times as long as the look-up of a predicate that they are passed for."""
