"""Reading of a request's level and row count without parsing it.

Parsing a large request takes as long as publishing hundreds of objects. A request that is refused
anyway should not cost the others that much.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from ps2stream.limits import BATCH_BYTES
from ps2stream.protocol.wire_kernels import scan
from ps2stream.service import arrow
from ps2stream.service.calls import parse
from ps2stream.v1 import object_pb2, pubsub_pb2

Level: TypeAlias = object_pb2.PublishLevel.ValueType
Kind: TypeAlias = type[pubsub_pb2.PublishRequest] | type[pubsub_pb2.PublishStreamRequest]
_BATCH, _LEVEL, _ARROW = 1, 2, 2
_FIELDS = 8


def read_level_and_rows(kind: Kind, data: bytes, rows: int) -> tuple[Level, int]:
    """Returns the level and the number of objects of a request that has `rows` of them as messages.
    Both are read in place, without parsing the request where that is possible."""
    fields = _top_fields(data, 0, len(data))
    if fields is None or sum(number == _BATCH for number, _, _ in fields) > 1:
        request = parse(kind, data, BATCH_BYTES, "batch_bytes")
        return request.level, len(request.batch.objects) or arrow.count_rows(request.batch.arrow)
    found: Level = object_pb2.PUBLISH_LEVEL_UNSPECIFIED
    for number, start, stop in fields:
        if number == _LEVEL:
            found = start  # type: ignore[assignment]
        elif number == _BATCH and not rows:
            for inner, first, last in _top_fields(data, start, stop) or ():
                rows = arrow.count_rows(memoryview(data)[first:last]) if inner == _ARROW else rows
    return found, rows


def _top_fields(data: bytes, start: int, stop: int) -> list[tuple[int, int, int]] | None:
    """Returns the number and place of each field of the message data[start:stop], or None where
    there are more than a request has, or unknown ones."""
    number = np.zeros(_FIELDS, np.uint8)
    first, last = np.zeros(_FIELDS, np.int64), np.zeros(_FIELDS, np.int64)
    found = scan(np.frombuffer(data, np.uint8), start, stop, number, first, last)
    if not 0 <= found <= len(number):
        return None
    columns = (column[:found].tolist() for column in (number, first, last))
    return list(zip(*columns, strict=True))
