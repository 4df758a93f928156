"""The addresses of dispatchers, as a user writes them."""

from __future__ import annotations

from ps2stream.errors import invalid
from ps2stream.limits import DISPATCHERS

ANYWHERE = ("0.0.0.0", "[::]")
"""Hosts of endpoints that listen at all addresses of their host."""


def split_target(target: str) -> tuple[str, ...]:
    """Returns the addresses of dispatchers in HOST:PORT,HOST:PORT,..., each once. Raises
    InvalidArgument if there are none, or too many."""
    if not isinstance(target, str) or not target:
        raise invalid("target", f"expected HOST:PORT or unix:PATH, got {target!r:.60}")
    found = tuple(dict.fromkeys(map(str.strip, target.split(","))))
    if "" in found:
        raise invalid("target", f"expected HOST:PORT,HOST:PORT, got {target!r:.60}")
    if len(found) > DISPATCHERS:
        raise invalid("target", f"{len(found)} addresses; {DISPATCHERS} is the limit")
    return found
