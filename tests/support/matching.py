"""Queries and objects for matching in this process, and what matches by brute force."""

from __future__ import annotations

import random
from typing import Any

from ps2stream.client.requests import Query
from ps2stream.space.regions import World
from tests import naive
from tests.sim.hostile import LATS, SPOTS, WORDS
from tests.sim.interleavings import some_region

NUMBERS = ("n = 1", "x < 0.5", "n != 2", 't = "usgs"', "b = true", "x EXISTS", "NOT n = 1")


def some_query(rng: random.Random, number: int) -> Query:
    words = rng.sample(WORDS, 3)
    forms = (
        words[0],
        f"{words[0]} AND ({words[1]} OR {words[2]})",
        f"{words[0]} NOT {words[1]}",
        f'"{words[0]} {words[1]}" OR {words[2]}',
        rng.choice(["fl*", "riv*", "Fi*"]) + f" OR {words[1]}",
        f"{words[0]} AND {rng.choice(NUMBERS)}",
        rng.choice(NUMBERS),
    )
    return Query(f"q{number}", rng.choice(forms), some_region(rng))


def some_object(rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {
        "lon": rng.choice(SPOTS),
        "lat": rng.choice(LATS),
        "text": " ".join(rng.choices(WORDS, k=rng.randrange(6))),
    }
    values = {"n": rng.randrange(4), "x": rng.random(), "t": rng.choice(["usgs", "é"]), "b": True}
    return found | {"attributes": {k: v for k, v in values.items() if rng.random() < 0.6}}


def brute_force(queries: list[Query], objects: list[dict[str, Any]]) -> list[tuple[int, int]]:
    asked = [
        naive.Query(q.id, "", q.expression, None if q.region is None else shown(q.region))
        for q in queries
    ]
    posts = [naive.Obj(o["lon"], o["lat"], o["text"], o.get("attributes", {})) for o in objects]
    return [
        (o, q)
        for o, post in enumerate(posts)
        for q, query in enumerate(asked)
        if naive.matches(query, post)
    ]


def shown(region: Any) -> Any:
    return None if isinstance(region, World) else region.to_json()
