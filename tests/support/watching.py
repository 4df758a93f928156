"""What those who watch the service are told, as tests read it."""

from __future__ import annotations

from typing import Any

from ps2stream.protocol.addresses import Send
from ps2stream.protocol.frame import column_to_strings
from ps2stream.protocol.messages.watch import (
    SeenMatches,
)


def seen_of(out: list[Send]) -> list[tuple[int, SeenMatches]]:
    return [(s.to.index, s.frame) for s in out if isinstance(s.frame, SeenMatches)]


def strings(seen: Any, name: str) -> list[str]:
    return column_to_strings(getattr(seen, f"{name}_off"), getattr(seen, name))
