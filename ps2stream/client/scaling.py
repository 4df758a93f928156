"""The answer to a change of the number of mergers."""

from __future__ import annotations

from typing import NamedTuple


class MergerScale(NamedTuple):
    """The number of mergers that the sessions belong to, and since which LSN (0: it was never
    changed); `moving` says whether some sessions are still on their way."""

    mergers: int
    lsn: int
    moving: bool
