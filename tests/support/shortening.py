"""What CI leaves out, for the sake of time: tests, and parts of them, that repeat what others play.

`@pytest.mark.repeats("tests/...", ...)` names the tests, files or tests of a file, that play the
same path in CI. Without CI=true all is played; where CI is set, `CI= pytest FILE` does that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")
IS_SHORT = os.environ.get("CI", "").lower() == "true"
"""Whether this is CI."""


def choose_first(values: Sequence[T], count: int) -> Sequence[T]:
    """Returns the first so many of these in CI, else all."""
    return values[:count] if IS_SHORT else values


def leave_repeats(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Takes the tests that repeat others from `items`, if this is CI."""
    left = [item for item in items if IS_SHORT and item.get_closest_marker("repeats")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
