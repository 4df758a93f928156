"""Libraries that only a connector needs, and what to do where they are not installed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ps2stream.errors import FailedPrecondition


def library(name: str, extra: str) -> Any:
    """Imports an optional dependency. Raises FailedPrecondition, saying how to install it."""
    try:
        return import_module(name)
    except ImportError as error:
        raise FailedPrecondition(
            f"this needs {name}: pip install 'ps2stream[{extra}]' ({error})"
        ) from None
