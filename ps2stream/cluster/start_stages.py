"""The stages of a service's start."""

from __future__ import annotations

import enum


class StartStage(enum.StrEnum):
    """A stage of a start; the value is what users read."""

    LOAD = "loading the program"
    KERNELS = "preparing kernels (the first start on a machine compiles them)"
    RAY = "starting Ray"
    ACTORS = "starting actors, replaying ledger and logs"
    REPLAY = "replaying ledger and logs"

    @property
    def holds_data(self) -> bool:
        """True if the ledger or a log may be open, so that a stop has to close it."""
        return self in {StartStage.ACTORS, StartStage.REPLAY}
