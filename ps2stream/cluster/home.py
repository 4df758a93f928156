"""Where an actor runs, as its peers on other hosts and the supervisor need it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Home(NamedTuple):
    """`node`: Ray's id of the host; `host`: its IP address; `clock`: equal where the monotonic
    clock is the same; `key`: the public one of the actor's inbox, in Z85."""

    node: str
    host: str
    clock: str
    key: bytes = b""


def here() -> Home:
    """Of this process, which Ray started, or which joined it."""
    import ray

    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return Home(ray.get_runtime_context().get_node_id(), address, clock())


@functools.cache
def clock() -> str:
    """Of this system since it was started; empty where it cannot be told."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


def numeric(host: str) -> str:
    """As it stands before a colon and a port."""
    return f"[{host}]" if ":" in host else host
