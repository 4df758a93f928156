"""Ray's settings in the environment, which it reads when it is imported and when it starts.

Ray runs the code of anybody who reaches its ports. So they demand a token, which Ray's own
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
"""Read by the raylet, which starts the actors' processes. Ray's own default is 15, with which an
actor gets 3 % of a core that another program wants."""

DEATH = "Raylet is terminated"
SETTINGS = {
    "RAY_task_events_report_interval_ms": "0",  # task events grow the GCS without bound
    # When a raylet dies, each of its agents sends its last 20 lines here. What dies is logged by
    # the service; all other lines are printed as they come, and none is held back.
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": f"^{DEATH}",
    "RAY_DEDUP_LOGS_ALLOW_REGEX": f"^(?!{DEATH})",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "MALLOC_ARENA_MAX": "4",  # otherwise memory that many threads free is kept (allocator.py)
    "RAY_ENABLE_AUTO_CONNECT": "0",  # a call between two Rays must not start a third
}


def prepare(environ: MutableMapping[str, str], joins: bool = False, *, niceness: int = 0) -> None:
    """Sets the environment before `import ray`, so that Ray demands a token.

    The token is a new one of this process unless one is configured. A configured mode stays, with
    a warning if it demands no token. Actors run with `niceness` in addition to that of this
    process. Raises FailedPrecondition when Ray was imported without a mode; and, when this host
    `joins` others, if the mode demands no token, there is none, or all users can read it.
    """
    for name, value in SETTINGS.items():
        environ.setdefault(name, value)
    environ[NICENESS] = str(niceness)
    mode = environ.get(MODE)
    if mode is None and "ray" in sys.modules:
        raise FailedPrecondition(f"ray was imported before {MODE}=token was set")
    if mode not in (None, "token"):
        if joins:
            raise FailedPrecondition(
                f"{MODE}={mode}: anyone who reaches Ray's ports could run code on all hosts; set "
                f"{MODE}=token"
            )
        log.warning("%s=%s: anyone who reaches Ray's ports can run code on this host", MODE, mode)
        return
    environ[MODE] = "token"
    if not joins:
        if TOKEN not in environ and TOKEN_PATH not in environ:
            environ[TOKEN] = secrets.token_hex(32)
    elif TOKEN not in environ and not (path := _token_path(environ)).is_file():
        raise FailedPrecondition(
            f"the hosts of a Ray cluster share a token, but none was found: set {TOKEN_PATH}, or "
            f"copy the token file of `ps2stream cluster start` to {path}"
        )
    elif TOKEN not in environ:
        _check_token_file(path)


def _check_token_file(path: Path) -> None:
    """Raises FailedPrecondition if all users can read the token file, or it is empty."""
    if path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        raise FailedPrecondition(
            f"{path}: all users of this machine can read the hosts' token; run chmod 600 on it, "
            "and replace the token if these users are not trusted"
        )
    if not path.stat().st_size:
        raise FailedPrecondition(f"{path}: contains no token")


def _token_path(environ: Mapping[str, str]) -> Path:
    """Returns the path where Ray looks for the token."""
    path = environ.get(TOKEN_PATH)
    return Path(path) if path else Path.home() / ".ray" / "auth_token"


def provide(environ: Mapping[str, str]) -> Path | None:
    """Makes the hosts' common token, a file that only its owner can read, where Ray needs one and
    there is none. Returns the path if it was made."""
    if TOKEN in environ:
        return None
    path = _token_path(environ)
    if path.exists():
        return None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_token(path, secrets.token_hex(32))
    return path


def check_guarded(address: str) -> None:
    """Calls the Ray cluster at HOST:PORT without a token. Raises FailedPrecondition if it answers,
    Unavailable if it is unknown whether it demands one."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        check_alive: Any = channel.unary_unary("/ray.rpc.NodeInfoGcsService/CheckAlive")
        try:
            check_alive(b"", timeout=CHECK_S)
        except grpc.RpcError as error:
            refusal: Any = error
            if refusal.code() == grpc.StatusCode.UNAUTHENTICATED:
                return
            raise Unavailable(
                f"ray_address: cannot find out whether {address} requires a token: "
                f"{refusal.code().name}"
            ) from error
    raise FailedPrecondition(
        f"ray_address: the Ray cluster at {address} requires no token; start all its hosts with "
        f"{MODE}=token"
    )


def check_joined(environ: MutableMapping[str, str]) -> None:
    """Raises FailedPrecondition if the Ray that already runs here demands no token."""
    if environ.get(MODE) != "token":
        raise FailedPrecondition(
            f"the Ray instance on this host requires no token; set {MODE}=token"
        )


def write_token_file(directory: Path, environ: Mapping[str, str], dashboard_port: int = 0) -> None:
    """Writes the token to a file that only its owner can read, for Ray's own tools:
    RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=.../ray-token ray status. Where Ray has a dashboard,
    the log says where both are: the dashboard's own advice leads to another token."""
    if environ.get(MODE) != "token" or TOKEN not in environ:
        return
    _write_token(directory / NAME, environ[TOKEN])
    if dashboard_port:
        where = dashboard_port, directory / NAME
        log.info("Ray's dashboard: http://127.0.0.1:%d; it requires the token in %s", *where)


def _write_token(path: Path, token: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    fresh.replace(path)


def remove_token_file(directory: Path) -> None:
    """Removes the token file that `write_token_file` wrote."""
    (directory / NAME).unlink(missing_ok=True)
