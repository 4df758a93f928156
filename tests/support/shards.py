"""Who holds a posting of a sharded unit, as plain Python says it."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_ALL = (1 << 64) - 1


def mix(place: int, term: int) -> int:
    h = term ^ (place * 0x9E3779B97F4A7C15 & _ALL)
    h ^= h >> 32
    h = h * 0xBF58476D1CE4E5B9 & _ALL
    return h ^ (h >> 29)


def place_of(box: Sequence[float]) -> int:
    """The place of a query with this first box."""
    place = 0
    for value in box:
        bits = struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
        place = mix(place + 1 & _ALL, bits)
    return place


def shard_of(workers: Sequence[int], term: int, place: int) -> int:
    """The worker of a group with the highest hash."""
    posting = mix(place, term) * 0xD6E8FEB86659FD93 & _ALL
    return max(workers, key=lambda w: mix(w + 1, posting) * 0xD6E8FEB86659FD93 & _ALL)
