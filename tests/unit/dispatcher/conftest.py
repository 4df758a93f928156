"""What the tests of the dispatcher share."""

from __future__ import annotations

import pytest

from ps2stream.dispatcher import intake


@pytest.fixture
def two_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets two batches be under way before publications join, so that a test can look at several
    batches."""
    monkeypatch.setattr(intake, "EAGER", 2)
