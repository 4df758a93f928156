"""The answers to changes of the numbers of mergers and of dispatchers."""

from __future__ import annotations

from typing import NamedTuple


class MergerScale(NamedTuple):
    """The number of mergers that the sessions belong to, and since which LSN (0: it was never
    changed); `moving` says whether some sessions are still on their way."""

    mergers: int
    lsn: int
    moving: bool


class DispatcherScale(NamedTuple):
    """The number of dispatchers that count, and since which LSN (0: it was not changed since the
    service's start); `moving` says whether some producers are still on their way to new ones."""

    dispatchers: int
    lsn: int
    moving: bool
