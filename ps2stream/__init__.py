"""PS2Stream: distributed publish/subscribe over streams of geo-tagged text."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ps2stream.aio import AsyncClient
    from ps2stream.client import Client

# gRPC reads it when it is first imported, here or in an actor: else it writes a line for each
# TLS handshake that fails, so that any stranger could fill the log.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "__version__"]

_HOMES = {"Client": "ps2stream.client", "AsyncClient": "ps2stream.aio"}


def __getattr__(name: str) -> Any:
    """The clients are imported when asked for: the kernel does not need gRPC."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
