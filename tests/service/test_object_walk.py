"""One object moves between rooms a few times only, from publish to delivery."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MOST_MOVES = 15


def count_moves() -> int:
    command = [sys.executable, "scripts/object_walk.py", "--json"]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return int(json.loads(out)["moves"])


@pytest.mark.takes_turns
def test_an_object_moves_between_rooms_fifteen_times_at_most() -> None:
    assert 0 < count_moves() <= MOST_MOVES
