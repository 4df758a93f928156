"""The C allocator of a process that takes large messages in and lets go of them.

glibc raises its threshold for separate mappings when one is freed, up to 32 MiB; from then on
the largest messages lie in heaps of many threads, and what is freed there between smaller pieces
stays with the process. A fixed threshold keeps them in mappings of their own. It is above the
columns of a full batch, since the pages of a mapping are cleared each time.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa

LARGE_BYTES = 4 << 20
"""Pieces from this size on go back to the system when they are freed."""
FREE_BYTES = 256 << 20
"""What may be free at the end of a heap before it shrinks by itself."""
HEAPS = 4
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def bound_heaps() -> None:
    """Fixes the thresholds and the number of heaps. Does nothing where the C library is not
    glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(_M_TRIM_THRESHOLD, FREE_BYTES)
        mallopt(_M_ARENA_MAX, HEAPS)


def return_free_memory() -> None:
    """Gives what is free in the heaps back to the system."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
