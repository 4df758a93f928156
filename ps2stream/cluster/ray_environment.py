"""What Ray is told by the environment, which it reads when it is imported and starts.

Ray runs the code of whoever reaches its ports: so they ask for a token, which its own
processes inherit.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import sys
from collections.abc import MutableMapping
from pathlib import Path

from ps2stream.errors import FailedPrecondition

log = logging.getLogger("ps2stream.cluster")
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
NAME = "ray-token"


SETTINGS = {
    "RAY_task_events_report_interval_ms": "0",  # task events grow the GCS without bound
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def prepare(environ: MutableMapping[str, str]) -> None:
    """Before `import ray`. Has Ray ask for a token, a new one of this process unless one is
    configured; a mode that is configured stays, and is warned of where it asks for nothing.
    Raises FailedPrecondition when Ray has been imported without."""
    for name, value in SETTINGS.items():
        environ.setdefault(name, value)
    mode = environ.get(MODE)
    if mode is None and "ray" in sys.modules:
        raise FailedPrecondition(f"ray was imported before {MODE}=token was set")
    if mode not in (None, "token"):
        log.warning("%s=%s: whoever reaches Ray's ports can run code here", MODE, mode)
        return
    environ[MODE] = "token"
    if TOKEN not in environ and TOKEN_PATH not in environ:
        environ[TOKEN] = secrets.token_hex(32)


def check_joined(environ: MutableMapping[str, str]) -> None:
    """Raises FailedPrecondition for a Ray that was there before and asks for no token."""
    if environ.get(MODE) != "token":
        raise FailedPrecondition(f"the Ray that runs here asks for no token: set {MODE}=token")


def keep(directory: Path, environ: MutableMapping[str, str]) -> None:
    """The token as a file for its owner alone, to look at this Ray with its own tools:
    RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=.../ray-token ray status."""
    if environ.get(MODE) != "token" or TOKEN not in environ:
        return
    fresh = directory / f"{NAME}.new"
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(environ[TOKEN])
    fresh.replace(directory / NAME)


def forget(directory: Path) -> None:
    """Remove the file."""
    (directory / NAME).unlink(missing_ok=True)
