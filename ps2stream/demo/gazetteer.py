"""Made-up posts at real places, and queries from a stream's own words and places.

The demo uses them. The places are the cities of `places`, with more posts where more people
live; the texts are made from a small vocabulary. Everything is drawn from a generator that the
caller seeds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import shapely

from ps2stream.language.analyzer import Analyzer
from ps2stream.posts.arrow_columns import SCHEMA
from ps2stream.space.places import load_places
from ps2stream.space.regions import Circle, Polygon, Rect, Region

_SUBJECTS = """
    flood flooding storm thunder lightning rain hail snow wind wildfire smoke earthquake
    landslide heat fog traffic accident roadworks train bus tram metro airport flight delay
    ferry bicycle concert festival market museum gallery theatre cinema football match
    marathon parade protest coffee breakfast ramen pizza bakery street food rooftop sunset
    sunrise beach harbour bridge river creek lake mountain forest park garden stadium station
    square school library hospital
""".split()  # noqa: SIM905
LONDON = (-0.1, 51.5)
FLOOD_EACH = 64
"""Of so many posts one is about the flood."""
_FILLERS = """
    just now near the old town what a day anyone else seeing this again right here so much
    never thought i would see great tonight today this morning please avoid closed open free
    packed quiet loud live from breaking update photo thread help thanks everyone stay safe
    wow
""".split()  # noqa: SIM905
_MARKS = ("", "", "", "!", "...", " 😀", " #now", " #news", " 🌊", " ☕")


class QuerySeed(NamedTuple):
    """The source of a made query: the tokens of a post and its position."""

    tokens: list[str]
    lon: float
    lat: float


class MadeQuery(NamedTuple):
    """An expression, which may be empty, and a region, which may be None; never both."""

    expression: str
    region: Region | None


def made_posts(random: np.random.Generator, batch: int) -> Iterator[Any]:
    """Yields record batches of `SCHEMA` without end."""
    places = load_places()
    names = places.names()
    weight = np.sqrt(np.maximum(places.population, 1.0))
    weight /= weight.sum()
    number = 0
    while True:
        chosen = random.choice(len(places), batch, p=weight)
        scatter = random.normal(0.0, 0.03, (2, batch))
        spots = np.array([places.lon[chosen], places.lat[chosen]]) + scatter
        texts = [_make_text(random, names[i]) for i in chosen]
        columns = {
            "id": [f"post-{number + i}" for i in range(batch)],
            "time": pa.nulls(batch, pa.int64()),
            "lon": np.clip(spots[0], -180.0, 180.0),
            "lat": np.clip(spots[1], -90.0, 90.0),
            "text": texts,
        }
        number += batch
        yield pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def tell_of_flood(posts: Iterator[Any], random: np.random.Generator) -> Iterator[Any]:
    """Yields the record batches of `posts`, in which every FLOOD_EACH-th post is about a flood in
    London, as if one went on there. So there is a place and a word that somebody can ask for."""
    number = 0
    for batch in posts:
        columns = {name: batch.column(name).to_pylist() for name in ("lon", "lat", "text")}
        for i in range(-number % FLOOD_EACH, len(batch), FLOOD_EACH):
            east, north = random.normal(0.0, 0.03, 2)
            columns["lon"][i], columns["lat"][i] = LONDON[0] + east, LONDON[1] + north
            columns["text"][i] = f"flood {_make_text(random, 'London')}"
        number += len(batch)
        for name, values in columns.items():
            at = batch.schema.get_field_index(name)
            batch = batch.set_column(
                at, batch.schema.field(at), pa.array(values, SCHEMA.field(name).type)
            )
        yield batch


def _make_text(random: np.random.Generator, city: str) -> str:
    words = [
        *random.choice(_SUBJECTS, random.integers(1, 4)),
        *random.choice(_FILLERS, random.integers(2, 7)),
        city,
    ]
    random.shuffle(words)
    return " ".join(words) + _MARKS[random.integers(len(_MARKS))]


def seeds_of(batch: Any, analyzer: Analyzer) -> list[QuerySeed]:
    """Returns the rows of a record batch that have words to make queries from."""
    rows = zip(
        batch.column("text").to_pylist(),
        batch.column("lon").to_pylist(),
        batch.column("lat").to_pylist(),
        strict=True,
    )
    seeds = (
        QuerySeed([t for t in analyzer.tokens(text) if t.isalnum() and len(t) > 2], lon, lat)
        for text, lon, lat in rows
    )
    return [seed for seed in seeds if seed.tokens]


def distinctive(seeds: Sequence[QuerySeed], share: float = 0.02) -> list[QuerySeed]:
    """Returns the seeds without the words that occur in more than this share of them, since half
    the stream would match those; all seeds unchanged where nothing would be left."""
    count = Counter(token for seed in seeds for token in set(seed.tokens))
    limit = max(2.0, share * len(seeds))
    rare = (QuerySeed([t for t in s.tokens if count[t] <= limit], s.lon, s.lat) for s in seeds)
    return [seed for seed in rare if seed.tokens] or list(seeds)


def make_query(random: np.random.Generator, seeds: Sequence[QuerySeed]) -> MadeQuery:
    """Makes a query of words of one post and an area around another, or around the same post,
    which is likelier to match."""
    post = seeds[int(random.integers(len(seeds)))]
    drawn = random.choice(post.tokens, min(3, len(post.tokens)))
    words = list(dict.fromkeys(drawn.tolist()))
    expression = _make_expression(random, words)
    if len(words) > 1 and random.random() < 0.1:
        return MadeQuery(expression, None)
    place = post if random.random() < 0.5 else seeds[int(random.integers(len(seeds)))]
    region = _make_region(random, place.lon, place.lat)
    # Region-only queries match every post of a place; keep them few and small.
    if random.random() < 0.02:
        return MadeQuery("", Circle(place.lon, place.lat, 2.0))
    return MadeQuery(expression, region)


def _make_expression(random: np.random.Generator, words: list[str]) -> str:
    match len(words):
        case 1:
            return words[0]
        case 2:
            return f"{words[0]} {random.choice(['AND', 'OR'])} {words[1]}"
    return str(
        random.choice(
            [
                f"{words[0]} AND ({words[1]} OR {words[2]})",
                f"{words[0]} OR {words[1]} {words[2]}",
                " OR ".join(words),
                " AND ".join(words[:2]),
            ]
        )
    )


def _make_region(random: np.random.Generator, lon: float, lat: float) -> Region:
    size = float(10.0 ** random.uniform(-1.0, 1.0))  # degrees across
    kind = random.random()
    if kind < 0.4:
        return Circle(lon, lat, 55.0 * size)
    south, north = max(lat - size / 2, -90.0), min(lat + size / 2, 90.0)
    if kind < 0.8:
        west, east = lon - size / 2, lon + size / 2
        west, east = west + 360.0 * (west < -180.0), east - 360.0 * (east > 180.0)
        return Rect(west, south, east, north)
    ring = [
        (lon + size / 2 * math.cos(a), lat + size / 2 * math.sin(a))
        for a in np.linspace(0.0, 2.0 * math.pi, 6, endpoint=False)
    ]
    return Polygon(
        shapely.Polygon([(min(max(x, -180.0), 180.0), min(max(y, -90.0), 90.0)) for x, y in ring])
    )
