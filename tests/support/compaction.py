"""Compaction of small logs, while they are followed."""

from __future__ import annotations

import pytest

from ps2stream.sequencer import log_compaction


def compact_often(patch: pytest.MonkeyPatch) -> None:
    """Has sequencers compact logs of a few rows, up to the watermark of some ticks ago."""
    for name, value in (("STEP_ROWS", 4), ("STEP_BATCHES", 3), ("WORTH", 2), ("KEPT_ROWS", 0)):
        patch.setattr(log_compaction, name, value)
    patch.setattr(log_compaction, "KEPT_TICKS", 1)
