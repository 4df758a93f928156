"""Small samples of objects and query updates for the tests of the planner's tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from ps2stream.language.analyzer import Analysis
from ps2stream.planner import updates
from ps2stream.planner.sample import PlannerSample, posts, take
from ps2stream.space.grid import Grid

WORDS = ["flood", "river", "😀", "don't", "Straße", "東京", "a", "b_2", "👩‍👩‍👧"]
GRID = Grid(5, 4, 16)


def some_sample(seed: int, n: int = 400, queries: int = 60) -> tuple[Any, list[dict[str, Any]]]:
    """Objects, and updates with deletes, re-inserts, duplicates and huge regions."""
    rng = np.random.default_rng(seed)
    lon = np.round(rng.normal(0, 30, n).clip(-180, 180), 1)
    lat = np.round(rng.normal(0, 15, n).clip(-90, 90), 1)
    text = [" ".join(rng.choice(WORDS, rng.integers(0, 5))) for _ in range(n)]
    rows: list[dict[str, Any]] = []
    for i in range(queries):
        west, south = rng.uniform(-60, 40), rng.uniform(-40, 20)
        side = float(rng.choice([0.0, 3.0, 20.0, 120.0], p=[0.1, 0.5, 0.3, 0.1]))
        rect = [west, south, min(west + side, 180), min(south + side, 90)]
        words = rng.choice(WORDS, rng.integers(1, 4), replace=False)
        expression = (" OR " if rng.random() < 0.5 else " AND ").join(words)
        record = {"id": f"q{i % 45}", "expression": expression, "region": {"rect": rect}}
        if rng.random() < 0.15:
            record["expression"] = ""
        rows.append(record | {"op": "insert", "time": int(rng.integers(0, 50))})
        if rng.random() < 0.5:
            at = int(rng.integers(0, 60))
            rows.append({"id": f"q{rng.integers(0, 45)}", "op": "delete", "time": at})
    rows += [{"id": f"old{i}", "expression": "river", "region": None} for i in range(3)]
    return posts(lon, lat, text), rows


def batch(rows: list[dict[str, Any]]) -> Any:
    """A batch of UPDATES of these records."""
    return updates.of_records((f"row {i}", row) for i, row in enumerate(rows))


def sampled(objects: Any, rows: list[dict[str, Any]], grid: Grid | None = GRID) -> PlannerSample:
    return take(lambda: [objects], [batch(rows)], Analysis(0), grid)


def standing_naively(rows: list[dict[str, Any]]) -> list[tuple[str, Any, int, int]]:
    """(expression, region, inserted, deleted) of each query that there ever was."""
    rank = {"live": 0, "insert": 1, "delete": 2}
    table = batch(rows).to_pylist()
    order = sorted(
        range(len(rows)),
        key=lambda i: tuple(table[i][name] for name in updates.ORDER),
    )
    found: list[tuple[str, Any, int, int]] = []
    live: dict[str, int] = {}
    for i in order:
        row = rows[i]
        op = row.get("op", "live")
        assert rank[op] == table[i]["op"]
        if op == "delete":
            if (at := live.pop(row["id"], None)) is not None:
                found[at] = (*found[at][:3], 1)
        elif row["id"] not in live:
            live[row["id"]] = len(found)
            found.append((row["expression"], row.get("region"), int(op == "insert"), 0))
    return found
