"""The location of an actor, as its peers on other hosts and the supervisor need it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class ActorHome(NamedTuple):
    """The location of an actor. `node`: Ray's id of the host; `host`: its IP address; `clock`:
    equal where the monotonic clock is the same; `key`: the public key of its inbox, in Z85."""

    node: str
    host: str
    clock: str
    key: bytes = b""


def here() -> ActorHome:
    """Returns the home of this process, which Ray started or which joined Ray."""
    import ray

    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return ActorHome(ray.get_runtime_context().get_node_id(), address, clock())


@functools.cache
def clock() -> str:
    """Returns the id of this boot of the system, on which the clock depends; empty if unknown."""
    return _BOOT.read_text().strip() if _BOOT.exists() else ""


def numeric(host: str) -> str:
    """Returns a host as it is written before a colon and a port: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host else host
