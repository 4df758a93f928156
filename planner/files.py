"""Query updates from local files, as batches of updates.UPDATES."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ps2stream.planner.updates import of_records
from ps2stream.posts.readers import read_records

BATCH = 10_000


def read_updates(path: str) -> Iterator[Any]:
    """Yields batches of UPDATES. Raises InvalidArgument naming the file, the line (Parquet: the
    row), the column and what was expected."""
    rows = read_records(path, [("id",)])
    while some := list(islice(rows, BATCH)):
        yield of_records(some)
