"""The sync of several logs of one process at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ps2stream.errors import Unavailable
from ps2stream.observability.meter import StageMeter
from ps2stream.protocol.ports import Log

K = TypeVar("K")


def sync_logs(logs: Mapping[K, tuple[Log, StageMeter]]) -> dict[K, int | Unavailable]:
    """Makes durable what was appended to these logs, and returns the end of each, or why it failed.
    A log that fails keeps no other one from being synced."""
    found: dict[K, int | Unavailable] = {}
    for key, (log, meter) in logs.items():
        try:
            with meter.time("sync"):
                found[key] = log.sync()
        except Unavailable as error:
            found[key] = error
    return found
