"""Posts and queries for the examples, and what brute force finds among them."""

from __future__ import annotations

import random
from typing import Any

from tests import naive

WORDS = ["flood", "river", "creek", "storm", "hail", "snow", "market", "bridge"]
QUERIES: dict[str, tuple[str, tuple[float, float, float] | None]] = {
    "water": ("flood AND (river OR creek)", None),
    "weather": ("storm OR hail OR snow", (10.0, 50.0, 900.0)),
    "town": ("market bridge", (12.0, 48.0, 1500.0)),
    "nowhere": ("flood", (-150.0, -40.0, 10.0)),
    "severe": (
        'storm AND severity >= 3.5 AND source IN ("usgs", "noaa") AND NOT test = true',
        None,
    ),
}
"""Of each id: expression, and circle (longitude, latitude, kilometres)."""


def posts(n: int, seed: int) -> list[dict[str, Any]]:
    """n posts over Europe, with ids of the seed's own."""
    draw = random.Random(seed)
    return [
        {
            "id": f"{seed}-{i}",
            "lon": round(draw.uniform(-5, 25), 4),
            "lat": round(draw.uniform(40, 60), 4),
            "text": " ".join(draw.choices(WORDS, k=3)),
            "attributes": {
                "severity": draw.choice([1, 3, 3.5, 4, 2**53 - 1]),
                "source": draw.choice(["usgs", "noaa", "météo"]),
                "test": draw.random() < 0.2,
            },
        }
        for i in range(n)
    ]


def expected(rows: list[dict[str, Any]]) -> set[tuple[str, str]]:
    """(query, object) of every match; rows need not have attributes."""
    found = set()
    for name, (expression, circle) in QUERIES.items():
        region: dict[str, Any] | None = None
        if circle is not None:
            region = {"type": "Circle"} | dict(
                zip(("lon", "lat", "radius_km"), circle, strict=True)
            )
        query = naive.Query(name, "", expression, region)
        found |= {
            (name, row["id"])
            for row in rows
            if naive.matches(
                query, naive.Obj(row["lon"], row["lat"], row["text"], row.get("attributes") or {})
            )
        }
    return found
