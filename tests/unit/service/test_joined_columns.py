"""Batches that are read together have the rows that they have alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ps2stream.language.analyzer import Analysis, Analyzer
from ps2stream.protocol.rows import ObjectRows
from ps2stream.service.objects import join_columns, read_objects
from ps2stream.v1 import object_pb2

NOW_MS = 1_000_000
PLAIN: dict[str, Any] = {"id": "a", "lon": 1.0, "lat": 2.0, "text": "flood in the city"}


def make(*rows: object_pb2.Object) -> object_pb2.ObjectBatch:
    return object_pb2.ObjectBatch(objects=rows)


def test_joined_columns_are_the_columns_end_to_end() -> None:
    rich = object_pb2.Object(**PLAIN, until_ms=NOW_MS + 5, payload=object_pb2.Payload(bytes=b"x"))
    plain = object_pb2.Object(**PLAIN)
    other = object_pb2.Object(lon=-3.0, lat=4.0, text="")
    analyzer = Analyzer(Analysis(salt=3))
    for batches in (
        [make(plain)],
        [make(plain, other), make(other)],
        [make(plain), make(rich, other), make(plain)],
    ):
        parts = [read_objects(batch, NOW_MS) for batch in batches]
        joined = join_columns(parts)
        expected = ObjectRows.concat([part.analyse(analyzer) for part in parts])
        found = joined.analyse(analyzer)
        assert joined.now_ms == NOW_MS
        for field in dataclasses.fields(ObjectRows):
            np.testing.assert_array_equal(
                getattr(found, field.name), getattr(expected, field.name), field.name
            )
