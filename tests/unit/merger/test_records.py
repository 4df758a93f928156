"""The records of a match log: which numbers count as pairs, and what the log gives back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.merger.records import (
    CheckpointRecord,
    CursorsRecord,
    DeadNamesRecord,
    MatchedRecord,
    MissingRecord,
    PlacesRecord,
)
from ps2stream.protocol.frame import Frame, decode

KINDS: list[type[Frame]] = [
    MatchedRecord, CursorsRecord, CheckpointRecord, DeadNamesRecord, PlacesRecord, MissingRecord,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_record_is_decoded_as_it_was_encoded(kind: type[Frame]) -> None:
    dtypes = {"U32": np.uint32, "U8": np.uint8, "I64": np.int64, "F64": np.float64}
    values = [
        i if field.type == "int" else np.arange(i, dtype=dtypes[str(field.type)])
        for i, field in enumerate(dataclasses.fields(kind))  # type: ignore[arg-type]
    ]
    found = decode(kind(*values).encode())
    assert type(found) is kind
    for value, field in zip(values, dataclasses.fields(kind), strict=True):  # type: ignore[arg-type]
        assert np.array_equal(getattr(found, field.name), value)
