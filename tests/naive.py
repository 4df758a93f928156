"""Brute force, written from the semantics alone and from no code of the package.

`matches` is the definition; `Oracle` adds the history: which queries are live at an
LSN. Everything is as slow and as plain as it can be.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import regex
import shapely
import shapely.geometry

EARTH_KM = 6371.0088


@dataclass(frozen=True)
class Obj:
    """A geo-tagged text; degrees."""

    lon: float
    lat: float
    text: str


@dataclass(frozen=True, eq=False)
class Query:
    """expression "" = region only; region None = the whole world, else a dict:

    {"type": "Rect", "lon_min", "lat_min", "lon_max", "lat_max"}, {"type": "Circle",
    "lon", "lat", "radius_km"}, or a GeoJSON Polygon or MultiPolygon.
    """

    id: str
    session: str
    expression: str
    region: Mapping[str, Any] | None = None


def matches(query: Query, obj: Obj) -> bool:
    """Whether the object satisfies the query's expression and lies in its region."""
    return satisfied(query.expression, tokens(obj.text)) and inside(query.region, obj.lon, obj.lat)


# --- text -----------------------------------------------------------------

SPACELESS = regex.compile(
    r"\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Thai}"
    r"|\p{Script=Lao}|\p{Script=Khmer}|\p{Script=Myanmar}"
)
PICTOGRAPH = regex.compile(r"\p{Extended_Pictographic}|\p{Emoji_Presentation}")
IGNORABLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
KEYCAP = regex.compile(r"[0-9#*]\N{VARIATION SELECTOR-16}?\N{COMBINING ENCLOSING KEYCAP}")


def pieces(text: str) -> list[tuple[bool, str]]:
    """The text as emoji sequences (True) and single characters (False)."""
    out: list[tuple[bool, str]] = []
    for cluster in regex.findall(r"\X", text):
        while cluster:
            if PICTOGRAPH.match(cluster):
                out.append((True, cluster))
                break
            if keycap := KEYCAP.match(cluster):
                out.append((True, keycap[0]))
                cluster = cluster[len(keycap[0]) :]
            else:
                out.append((False, cluster[0]))
                cluster = cluster[1:]
    return out


def normalised(text: str) -> str:
    """NFKC(casefold(NFKC(text))) without ignorable characters outside emoji."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kept = "".join(p for emoji, p in pieces(folded) if emoji or not IGNORABLE.match(p))
    return folded if kept == folded else normalised(kept)


def first_bytes(token: str) -> str:
    """As many of its characters as fit into 128 bytes."""
    while len(token.encode()) > 128:
        token = token[:-1]
    return token


@lru_cache(maxsize=100_000)
def tokens(text: str) -> frozenset[str]:
    """The set of tokens of a text."""
    found: list[str] = []
    run = ""
    for emoji, piece in pieces(normalised(text)):
        word = not emoji and (piece == "_" or category(piece) in "LMN")
        alone = emoji or (word and SPACELESS.match(piece) is not None)
        if word and not alone:
            run += piece
            continue
        found += [run] * bool(run) + [piece] * alone
        run = ""
    found += [run] * bool(run)
    return frozenset(first_bytes(t) for t in found)


def category(c: str) -> str:
    """The major category, of the Unicode version of `regex`."""
    m = regex.match(r"(\p{L})|(\p{M})|(\p{N})", c)
    return "LMN"[m.lastindex - 1] if m is not None and m.lastindex else "?"


# --- expressions ----------------------------------------------------------


@lru_cache(maxsize=100_000)
def parsed(source: str) -> tuple[Any, ...]:
    """("and" | "or", part...) or ("has", token); ValueError for a bad expression."""
    if len(source.encode("utf-8", "surrogatepass")) > 8192:
        raise ValueError("over 8 KiB")
    words = re.findall(r"[()]|[^()\s]+", source)
    terms: set[str] = set()
    tree, rest = either(words, 0, terms)
    if rest:
        raise ValueError(f"unexpected {rest[0]}")
    if len(terms) > 64:
        raise ValueError("over 64 terms")
    return tree


def either(words: list[str], depth: int, terms: set[str]) -> tuple[tuple[Any, ...], list[str]]:
    """or := and (OR and)*; the tree and the words that are left."""
    part, words = every(words, depth, terms)
    parts = [part]
    while words and words[0] == "OR":
        part, words = every(words[1:], depth, terms)
        parts.append(part)
    return ("or", *parts), words


def every(words: list[str], depth: int, terms: set[str]) -> tuple[tuple[Any, ...], list[str]]:
    """and := factor ((AND)? factor)*"""
    part, words = factor(words, depth, terms)
    parts = [part]
    while words and words[0] not in ("OR", ")"):
        part, words = factor(words[words[0] == "AND" :], depth, terms)
        parts.append(part)
    return ("and", *parts), words


def factor(words: list[str], depth: int, terms: set[str]) -> tuple[tuple[Any, ...], list[str]]:
    """factor := keyword | ( or )"""
    if not words or words[0] in (")", "AND", "OR", "NOT"):
        raise ValueError("expected a keyword")
    if words[0] == "(":
        if depth == 8:
            raise ValueError("too deep")
        tree, rest = either(words[1:], depth + 1, terms)
        if not rest:
            raise ValueError("a ( is not closed")
        return tree, rest[1:]
    word = words[0]
    reserved = re.sub(r"\*(?=\ufe0f?\u20e3)", "", word)  # the emoji of a keycap
    if word[0] in "-'\u2018" or any(c in reserved for c in '"“”„*~'):
        raise ValueError(f"{word} is reserved")
    found = tokens(word)
    if not found:
        raise ValueError(f"{word} has no token")
    terms |= found
    return ("and", *(("has", t) for t in found)), words[1:]


def satisfied(expression: str, terms: frozenset[str]) -> bool:
    """Whether a set of terms satisfies an expression; the empty one always."""
    return not expression or holds(parsed(expression), terms)


def holds(tree: tuple[Any, ...], terms: frozenset[str]) -> bool:
    """The truth of a parsed expression."""
    kind, *parts = tree
    if kind == "has":
        return parts[0] in terms
    return (all if kind == "and" else any)(holds(p, terms) for p in parts)


# --- space ----------------------------------------------------------------


def inside(region: Mapping[str, Any] | None, lon: float, lat: float) -> bool:
    """Whether a point lies in a region; borders do."""
    if region is None:
        return True
    # All the longitudes of the point: 180 and -180 are one meridian, a pole has all.
    lons = [-180.0, 180.0] if abs(lon) == 180 else [lon]
    if region["type"] == "Rect":
        west, east = region["lon_min"], region["lon_max"]
        if not region["lat_min"] <= lat <= region["lat_max"]:
            return False
        if abs(lat) == 90:
            return True
        if west <= east:
            return any(west <= x <= east for x in lons)
        return any(x >= west or x <= east for x in lons)
    if region["type"] == "Circle":
        away = great_circle_km(lon, lat, region["lon"], region["lat"])
        return away <= float(region["radius_km"])
    area = shapely.geometry.shape(dict(region))
    if abs(lat) == 90:
        return bool(area.intersects(shapely.LineString([(-180, lat), (180, lat)])))
    return any(bool(area.covers(shapely.Point(x, lat))) for x in lons)


def ambiguous_edges(region: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """The edges of a GeoJSON polygon that are refused: more than 180 and less than 360 degrees of
    longitude between their ends, so that they may be meant either way around the globe."""
    polygons = region["coordinates"]
    if region["type"] == "Polygon":
        polygons = [polygons]
    return [
        (a, b)
        for rings in polygons
        for ring in rings
        for a, b in pairwise(ring)
        if 180 < abs(a[0] - b[0]) < 360
    ]


def great_circle_km(lon_a: float, lat_a: float, lon_b: float, lat_b: float) -> float:
    """Haversine on a sphere."""
    a, b = math.radians(lat_a), math.radians(lat_b)
    up = math.sin((b - a) / 2) ** 2
    along = math.sin(math.radians(lon_b - lon_a) / 2) ** 2
    h = up + math.cos(a) * math.cos(b) * along
    return 2 * EARTH_KM * math.asin(math.sqrt(min(1.0, h)))


# --- history --------------------------------------------------------------


class Oracle:
    """The ledger's history: what an object stamped with an LSN must be delivered to.

    A handle is the LSN of the query's insert.
    """

    def __init__(self) -> None:
        self.queries: dict[int, Query] = {}
        self.deleted: dict[int, int] = {}
        self.live: dict[str, int] = {}

    def insert(self, lsn: int, query: Query) -> int:
        """Records a committed insert; the new handle."""
        assert query.id not in self.live, "the id is live"
        self.queries[lsn] = query
        self.live[query.id] = lsn
        return lsn

    def delete(self, lsn: int, query_id: str) -> int:
        """Records a committed delete of a live id; the handle that died."""
        handle = self.live.pop(query_id)
        self.deleted[handle] = lsn
        return handle

    def live_at(self, lsn: int) -> set[int]:
        """The handles with insert_lsn <= lsn < delete_lsn."""
        return {h for h in self.queries if h <= lsn < self.deleted.get(h, math.inf)}

    def expected(self, lsn: int, obj: Obj) -> set[int]:
        """The handles that an object stamped `lsn` matches."""
        return {h for h in self.live_at(lsn) if matches(self.queries[h], obj)}
