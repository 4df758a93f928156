"""What a run does before it starts anything."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from tests.kubernetes.cluster import is_ready, running


def test_two_runs_do_not_share_a_cache(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError), running(tmp_path):
            pass
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("status", "metadata", "ready"),
    [
        ("True", {}, True),
        ("False", {}, False),
        ("Unknown", {}, False),  # of a lost node
        ("True", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, False),
    ],
)
def test_what_is_about_to_go_is_not_ready(
    status: str, metadata: dict[str, str], ready: bool
) -> None:
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": status}]
    assert is_ready({"metadata": metadata, "status": {"conditions": conditions}}) is ready


def test_what_has_no_status_yet_is_not_ready() -> None:
    assert not is_ready({"metadata": {}})
