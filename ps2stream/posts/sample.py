"""Samples of recent objects as tables."""

from __future__ import annotations

import pyarrow as pa

SAMPLE = pa.schema(
    [
        ("id", pa.large_string()),
        ("time", pa.int64()),
        ("lon", pa.float64()),
        ("lat", pa.float64()),
        ("text", pa.large_string()),
        ("weight", pa.float64()),
        ("accepted", pa.int64()),
        ("attributes", pa.large_binary()),  # bytes of an `Attributes` message, empty for none
    ]
)
SINCE = b"since_ms"


def since_of(sample: pa.Table) -> int:
    """Returns the Unix ms after which all that the dispatcher accepted is in this sample, or
    stood for."""
    return int((sample.schema.metadata or {}).get(SINCE, 0))
