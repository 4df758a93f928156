"""Objects of a log and of an archive as plain tuples, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from ps2stream.archive.layout import read_snapshot
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.opaque import OpaqueColumns, pack_opaque
from ps2stream.protocol.rows import ObjectRows, no_offsets
from ps2stream.v1 import object_pb2


class Post(NamedTuple):
    """An object as its publisher gave it; `attributes` and `payload` are encoded messages."""

    id: str
    time: int
    until: int | None
    lon: float
    lat: float
    text: str
    attributes: bytes | None = None
    payload: bytes | None = None


Key = tuple[int, int, int]
"""Partition, series and offset."""


def rows_of(posts: Sequence[Post]) -> ObjectRows:
    """The posts as a log has them: without terms, and without what none of them has."""
    opaque = pack_opaque(
        OpaqueColumns(
            *strings_to_column([p.attributes or b"" for p in posts]),
            *strings_to_column([p.payload or b"" for p in posts]),
        )
    )
    ends = [p.until or 0 for p in posts]
    return ObjectRows(
        *strings_to_column([p.id for p in posts]),
        np.array([p.time for p in posts], np.int64),
        np.array([p.lon for p in posts], np.float64),
        np.array([p.lat for p in posts], np.float64),
        *strings_to_column([p.text for p in posts]),
        no_offsets(),
        np.zeros(0, np.uint64),
        *opaque,
        until=np.array(ends if any(ends) else [], np.int64),
    )


def archived(path: Path) -> dict[Key, tuple[int, Post]]:
    """The LSN and the post of each object that a reader of the archive finds now; fails if one is
    there twice."""
    found: dict[Key, tuple[int, Post]] = {}
    for file in read_snapshot(path).files:
        for row in pq.read_table(file).to_pylist():
            key = row["partition"], row["series"], row["offset"]
            assert key not in found, (key, file)
            found[key] = row["lsn"], Post(*(row[name] for name in Post._fields))
    return found


def some_posts(rng: Any, count: int) -> list[Post]:
    """Posts, some with ends, attributes and payloads. rng: random.Random."""
    attributes = object_pb2.Attributes()
    attributes.values["mag"].number = rng.random()
    words = ["", "rain", "hagel", "雨 in 東京", "a\nb", "x" * 300]
    return [
        Post(
            rng.choice([f"id-{rng.randrange(99)}", "é" * 9]),
            rng.randrange(-(10**12), 10**13),
            rng.choice([None, None, 1 + rng.randrange(10**13)]),
            rng.uniform(-180, 180),
            rng.uniform(-90, 90),
            rng.choice(words),
            rng.choice([None, None, attributes.SerializeToString()]),
            rng.choice([None, None, rng.randbytes(90)]),
        )
        for _ in range(count)
    ]
