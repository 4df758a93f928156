"""The records of a match log: which numbers count as pairs, and what the log gives back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ps2stream.merger.records import (
    LEAP,
    CheckpointRecord,
    CursorsRecord,
    DeadNamesRecord,
    MatchedRecord,
    MissingRecord,
    PlacesRecord,
    count_pairs,
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


def test_pairs_are_counted_by_their_numbers() -> None:
    assert count_pairs(1, 1) == 1
    assert count_pairs(3, 12) == 10
    assert count_pairs(4, 3) == 0


def test_a_leap_among_the_numbers_counts_as_no_pairs() -> None:
    assert count_pairs(1, LEAP) == 0
    assert count_pairs(1, 10 + LEAP) == 10
    assert count_pairs(1, 10 + 3 * LEAP) == 10


def test_the_rest_of_a_leap_counts_as_no_pairs() -> None:
    assert count_pairs(1_000, LEAP) == 0
    assert count_pairs(LEAP // 4, LEAP) == 0
