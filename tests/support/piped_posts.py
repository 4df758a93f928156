"""Rows that a pipeline makes posts of, some of them bad, and the matches that are due for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ps2stream.client.client import Client
from ps2stream.space.regions import Rect
from tests import naive

QUERIES = [
    naive.Query("a", "s", "flood AND river"),
    naive.Query("b", "s", "storm OR flood", {"type": "Rect", "lon_min": -5.0, "lat_min": -5.0,
                                              "lon_max": 5.0, "lat_max": 5.0}),
    naive.Query("c", "s", "river AND mag >= 5"),
]  # fmt: skip
MAPPING: dict[str, Any] = {
    "posts": {
        "id": "event", "lon": "x", "lat": "y", "text": "concat(title, ' ', body)",
        "where": "lang = 'en'",
    },
    "attributes": {"mag": "size * 1.0"},
}  # fmt: skip
"""Of the rows to posts, as a pipeline's declaration has it."""
PLAIN: dict[str, Any] = {
    "posts": {"id": "event", "lon": "x", "lat": "y", "text": "said"},
    "attributes": {"mag": "size"},
}
"""The same of columns alone, which Arrow can read; posts of another language are wanted too."""


def insert_queries(client: Client, session: str) -> None:
    for query in QUERIES:
        region = Rect(-5, -5, 5, 5) if query.region else None
        client.insert(query.id, query.expression, region, session=session)


def draw_rows(rng: np.random.Generator, first: int, count: int) -> list[dict[str, Any]]:
    """Rows of all kinds: of another language, outside of the world, without a text."""
    words = ("flood", "storm", "river", "calm")
    rows = []
    for i in range(first, first + count):
        title, body = (str(rng.choice(words)) for _ in range(2))
        rows.append(
            {
                "event": f"e{i}", "x": 999.0 if i % 11 == 3 else float(rng.uniform(-10, 10)),
                "y": float(rng.uniform(-10, 10)), "title": None if i % 13 == 5 else title,
                "body": body, "lang": "de" if i % 5 == 1 else "en", "size": int(rng.integers(9)),
            }
        )  # fmt: skip
    return rows


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    names = ("event", "x", "y", "title", "body", "lang", "size")
    columns = {n: pa.array([row[n] for row in rows]) for n in names}
    said = [r["title"] and f"{r['title']} {r['body']}" for r in rows]
    table = pa.table(columns | {"said": pa.array(said, pa.string())})
    pq.write_table(table, path, row_group_size=7)


def select_wanted(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that fit the condition, posts or not."""
    return [row for row in rows if row["lang"] == "en"]


def select_good(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that become posts."""
    return [r for r in select_wanted(rows) if r["x"] < 180 and r["title"] is not None]


def find_due(rows: Iterable[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """The matches of all rows, by brute force: query and post."""
    return Counter(
        (query.id, row["event"])
        for row in select_good(rows)
        for query in QUERIES
        if naive.matches(
            query,
            naive.Obj(row["x"], row["y"], f"{row['title']} {row['body']}", {"mag": row["size"]}),
        )
    )


def forget_last_batch(checkpoint: Path) -> None:
    """Makes a checkpoint that of a driver which died after the work of a micro-batch, before it
    was noted."""
    commits = checkpoint / "commits"
    last = max(int(p.name) for p in commits.iterdir() if p.name.isdecimal())
    for file in (commits / f"{last}", commits / f".{last}.crc"):
        file.unlink(missing_ok=True)
