"""Halts a pipeline at a chosen step, so that kill -9 comes at that step exactly.

The folder in the environment variable has a file of the step's name while a halt there is wanted;
a file `halted` tells that it has come to that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

FOLDER = "PS2STREAM_DOOM"
AMID = "amid"
"""The step amid publishing: the service has answered a chunk of a partition, others are under
way."""
BEFORE_COMMIT = "before-commit"
"""The step between publishing and commit: all is answered, and the driver knows it."""
HALTED = "halted"
CHUNK_ROWS = 20


def halt_at(step: str) -> None:
    """Halts here for as long as that is wanted."""
    folder = Path(os.environ[FOLDER])
    while (folder / step).exists():
        (folder / HALTED).touch()
        time.sleep(0.05)


def halt_after(work: Callable[..., Any], step: str) -> Callable[..., Any]:
    """The same work, which halts after it."""

    @wraps(work)
    def done(*given: Any) -> Any:
        found = work(*given)
        halt_at(step)
        return found

    return done
