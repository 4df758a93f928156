"""Several logs are synced at once, and one that fails keeps no other from it."""

from __future__ import annotations

from ps2stream.errors import Unavailable
from ps2stream.observability.meter import StageMeter
from ps2stream.store.group_sync import sync_logs
from ps2stream.store.memory import MemoryLog


class BadLog(MemoryLog):
    """A log on a disk that fails."""

    def sync(self) -> int:
        raise Unavailable("the disk is gone")


def test_each_log_has_its_end_or_its_error() -> None:
    good, bad, meter = MemoryLog(), BadLog(), StageMeter()
    good.append(b"x")
    found = sync_logs({"bad": (bad, StageMeter()), "good": (good, meter)})
    assert (found["good"], str(found["bad"])) == (good.end, "the disk is gone")
    assert good.synced == good.end
    assert [*meter.stages] == ["sync"]
