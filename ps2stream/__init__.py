"""PS2Stream: distributed publish/subscribe over streams of geo-tagged text."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ps2stream.client.async_client import AsyncClient
    from ps2stream.client.client import Client
    from ps2stream.space.regions import Circle, Polygon, Rect, World

# gRPC reads it when it is first imported, here or in an actor: else it writes a line for each
# TLS handshake that fails, so that any stranger could fill the log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Circle", "Client", "Polygon", "Rect", "World", "__version__"]

_HOMES = {
    "AsyncClient": "ps2stream.client.async_client",
    "Client": "ps2stream.client.client",
    **dict.fromkeys(("Circle", "Polygon", "Rect", "World"), "ps2stream.space.regions"),
}


def __getattr__(name: str) -> Any:
    """Imports a client or a region when it is asked for: a worker needs no gRPC."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
