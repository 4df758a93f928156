"""What Ray is told by the environment, which it reads when it is imported and starts.

Ray runs the code of whoever reaches its ports: so they ask for a token, which its own
processes inherit.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import stat
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

from ps2stream.errors import FailedPrecondition, Unavailable

log = logging.getLogger("ps2stream.cluster")
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
NAME = "ray-token"
CHECK_S = 10.0
NICENESS = "RAY_worker_niceness"
"""Read by the raylet, which starts the actors' processes; Ray's own default is 15, which leaves
an actor 3 % of a core that another program wants."""

SETTINGS = {
    "RAY_task_events_report_interval_ms": "0",  # task events grow the GCS without bound
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "MALLOC_ARENA_MAX": "4",  # else what many threads free stays with the process (allocator.py)
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a call between two Rays must not start a third
}


def prepare(environ: MutableMapping[str, str], joins: bool = False, *, niceness: int = 0) -> None:
    """Before `import ray`. Has Ray ask for a token, a new one of this process unless one is
    configured; a mode that is configured stays, and is warned of where it asks for nothing.
    Actors get `niceness` beside that of this process.
    Raises FailedPrecondition when Ray has been imported without; and, for one that `joins`
    other hosts, when it asks for none, or there is none, or all here can read it."""
    for name, value in SETTINGS.items():
        environ.setdefault(name, value)
    environ[NICENESS] = str(niceness)
    mode = environ.get(MODE)
    if mode is None and "ray" in sys.modules:
        raise FailedPrecondition(f"ray was imported before {MODE}=token was set")
    if mode not in (None, "token"):
        if joins:
            raise FailedPrecondition(
                f"{MODE}={mode}: whoever reaches Ray's ports could run code on all hosts; "
                f"set {MODE}=token"
            )
        log.warning("%s=%s: whoever reaches Ray's ports can run code here", MODE, mode)
        return
    environ[MODE] = "token"
    if not joins:
        if TOKEN not in environ and TOKEN_PATH not in environ:
            environ[TOKEN] = secrets.token_hex(32)
    elif TOKEN not in environ and not (path := _path(environ)).is_file():
        raise FailedPrecondition(
            f"the hosts of a Ray cluster share a token, and there is none: set {TOKEN_PATH}, or "
            f"copy the file of `ps2stream cluster start` to {path}"
        )
    elif TOKEN not in environ:
        _check_kept(path)


def _check_kept(path: Path) -> None:
    """Raises FailedPrecondition unless it holds something that not everybody here can read."""
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        raise FailedPrecondition(
            f"{path}: all users of this machine can read the hosts' token: chmod 600 it, and make "
            "another if they are not trusted"
        )
    if not path.stat().st_size:
        raise FailedPrecondition(f"{path}: holds no token")


def _path(environ: Mapping[str, str]) -> Path:
    """Where Ray looks for the token."""
    given = environ.get(TOKEN_PATH)
    return Path(given) if given else Path.home() / ".ray" / "auth_token"


def provide(environ: Mapping[str, str]) -> Path | None:
    """Make the hosts' common token, a file for its owner alone, where one is looked for and there
    is none; the file, if it was made."""
    if TOKEN in environ:
        return None
    path = _path(environ)
    if path.exists():
        return None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(path, secrets.token_hex(32))
    return path


def check_guarded(address: str) -> None:
    """Ask the Ray cluster at HOST:PORT something without a token. Raises FailedPrecondition if
    it answers, Unavailable if nothing can be told."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        ask: Any = channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")
        try:
            ask(b"", timeout=CHECK_S)
        except grpc.RpcError as error:
            refusal: Any = error
            if refusal.code() == grpc.StatusCode.UNAUTHENTICATED:
                return
            raise Unavailable(
                f"ray_address: {address} does not say whether it asks for a token: "
                f"{refusal.code().name}"
            ) from error
    raise FailedPrecondition(
        f"ray_address: the Ray at {address} asks for no token: start all its hosts with "
        f"{MODE}=token"
    )


def check_joined(environ: MutableMapping[str, str]) -> None:
    """Raises FailedPrecondition for a Ray that was there before and asks for no token."""
    if environ.get(MODE) != "token":
        raise FailedPrecondition(f"the Ray that runs here asks for no token: set {MODE}=token")


def keep(directory: Path, environ: Mapping[str, str], dashboard_port: int = 0) -> None:
    """The token as a file for its owner alone, to look at this Ray with its own tools:
    RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=.../ray-token ray status. Where Ray has a dashboard,
    the log says where both are: the dashboard's own advice leads to another token."""
    if environ.get(MODE) != "token" or TOKEN not in environ:
        return
    _write(directory / NAME, environ[TOKEN])
    if dashboard_port:
        where = dashboard_port, directory / NAME
        log.info("Ray's dashboard: http://127.0.0.1:%d; it asks for the token in %s", *where)


def _write(path: Path, token: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    fresh.replace(path)


def forget(directory: Path) -> None:
    """Remove the file."""
    (directory / NAME).unlink(missing_ok=True)
