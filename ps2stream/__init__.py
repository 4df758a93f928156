"""PS2Stream: distributed publish/subscribe over streams of geo-tagged text."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ps2stream.client.async_client import AsyncClient
    from ps2stream.client.client import Client
    from ps2stream.inprocess.matcher import Matcher
    from ps2stream.inprocess.matching import match, match_batches
    from ps2stream.space.regions import Circle, Polygon, Rect, World

# gRPC reads this variable when it is first imported, here or in an actor. By default it logs a
# line for each TLS handshake that fails, so any stranger could fill the log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

__version__ = "0.1.0"
__all__ = [
    "AsyncClient", "Circle", "Client", "Matcher", "Polygon", "Rect", "World", "__version__",
    "match", "match_batches",
]  # fmt: skip

_MODULES = {
    "AsyncClient": "ps2stream.client.async_client",
    "Client": "ps2stream.client.client",
    "Matcher": "ps2stream.inprocess.matcher",
    **dict.fromkeys(("Circle", "Polygon", "Rect", "World"), "ps2stream.space.regions"),
    **dict.fromkeys(("match", "match_batches"), "ps2stream.inprocess.matching"),
}


def __getattr__(name: str) -> Any:
    """Imports what is named when it is first used, since a worker needs no gRPC."""
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
