"""Settings of the C allocator for a process that receives and frees large messages.

glibc raises its threshold for separate mappings when one is freed, up to 32 MiB; from then on
the largest messages lie in heaps of many threads, and what is freed there between smaller pieces
stays with the process. A fixed threshold keeps them in mappings of their own. It is above the
columns of a full batch, since the pages of a mapping are cleared each time.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable

from ps2stream.observability.process import resident_bytes

LARGE_BYTES = 4 << 20
"""Pieces of at least this size go back to the system when they are freed."""
FREE_BYTES = 256 << 20
"""How much may be free at the end of a heap before it shrinks by itself."""
SPARE_BYTES = 64 << 20
"""How much more than it needs an idle process may keep."""
REST_BYTES = 4 << 20
"""Bytes logged between two checks below which a process counts as idle."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def bound_heaps() -> None:
    """Fixes the thresholds. The environment limits the number of heaps, since Ray has created
    many by then. Does nothing where the C library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, FREE_BYTES)


def return_free_memory() -> None:
    """Returns the free memory of the heaps to the system, and of Arrow where it is in use."""
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class MemoryReturn:
    """Returns free memory to the system once a process is idle after a flood."""

    def __init__(
        self,
        measure: Callable[[], int] = resident_bytes,
        give_back: Callable[[], None] = return_free_memory,
    ) -> None:
        self._measure = measure
        self._give_back = give_back
        self._needed_bytes = 0
        self._logged_bytes = 0

    def look(self, logged_bytes: int) -> None:
        """Checks whether to return memory; called now and then. logged_bytes: since the start."""
        is_idle = logged_bytes - self._logged_bytes < REST_BYTES
        self._logged_bytes = logged_bytes
        if is_idle and self._measure() > self._needed_bytes + SPARE_BYTES:
            self._give_back()
            self._needed_bytes = self._measure()
