"""Brute force, written from the semantics alone and from no code of the package.

`matches` is the definition; `Oracle` adds the history: which queries are live at an
LSN. Everything is as slow and as plain as it can be.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import combinations, pairwise
from typing import Any

import regex
import shapely
import shapely.geometry

from tests import naive_predicates
from tests.naive_predicates import PARENS, QUOTES, Scalar

EARTH_KM = 6371.0088


@dataclass(frozen=True)
class Obj:
    """A geo-tagged text; degrees."""

    lon: float
    lat: float
    text: str
    attributes: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    until: int = 0  # the end of its validity, Unix ms; 0 for none


@dataclass(frozen=True, eq=False)
class Query:
    """expression "" = region only; region None = the whole world, else a dict:

    {"type": "Rect", "lon_min", "lat_min", "lon_max", "lat_max"}, {"type": "Circle",
    "lon", "lat", "radius_km"}, or a GeoJSON Polygon or MultiPolygon. until: its end, Unix ms: it is
    deleted at some LSN once the sequencer's clock has reached it, and never before.
    """

    id: str
    session: str
    expression: str
    region: Mapping[str, Any] | None = None
    until: int | None = None
    retro: bool = False


def meets(
    query: Query,
    inserted_lsn: int,
    inserted_ms: int,
    deleted_lsn: float,
    obj: Obj,
    lsn: int,
    withdrawn_lsn: float = math.inf,
) -> bool:
    """Whether a query and an object make a match, given the LSNs and the sequencer's time of the
    insert: the query is live as of the LSN of the object; or it is matched against what is still
    valid, the object came before its insert, and ends after it. withdrawn_lsn: the LSN up to which
    queries were inserted when the object was withdrawn; later ones do not meet it so."""
    came_before = query.retro and lsn < inserted_lsn and inserted_ms < obj.until
    came_before = came_before and inserted_lsn <= withdrawn_lsn
    return (came_before or inserted_lsn <= lsn < deleted_lsn) and matches(query, obj)


def matches(query: Query, obj: Obj) -> bool:
    """Whether the object satisfies the query's expression and lies in its region."""
    return satisfied(query.expression, obj.text, obj.attributes) and inside(
        query.region, obj.lon, obj.lat
    )


# --- text -----------------------------------------------------------------

SPACELESS = regex.compile(
    r"\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Thai}"
    r"|\p{Script=Lao}|\p{Script=Khmer}|\p{Script=Myanmar}"
)
PICTOGRAPH = regex.compile(r"(?![©®])(?:\p{Extended_Pictographic}|\p{Emoji_Presentation})")
IGNORABLE = regex.compile(r"\p{Default_Ignorable_Code_Point}")
VARIATION = regex.compile(r"\p{Variation_Selector}")
KEYCAP = regex.compile(r"[0-9#*]\N{COMBINING ENCLOSING KEYCAP}")
CLUSTER = regex.compile(r"\X")
APOSTROPHES = dict.fromkeys("‘’´\u02bb\u02bc\u05f3", "'") | {"\u05f4": '"'}
# What stands between two letters, or between two numbers, without parting them.
IN_LETTERS = "'.·\u055f\u2027"
IN_NUMBERS = "'.,;:\u0589\u060c\u060d\u066b\u066c\u07f8\u2044"


def pieces(text: str) -> list[tuple[bool, str]]:
    """The text as emoji sequences (True) and single characters (False)."""
    out: list[tuple[bool, str]] = []
    for cluster in CLUSTER.findall(text):
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


@cache
def prepared(c: str) -> str:
    """What stands for a character before NFKC."""
    form = "".join(APOSTROPHES.get(x, x) for x in unicodedata.normalize("NFKC", c))
    if c in APOSTROPHES:
        return APOSTROPHES[c]
    kinds = {category(x) for x in form} - {"?"}
    if form == c or not kinds:
        return c
    is_symbol = regex.match(r"\p{S}", c) is not None
    is_word_in_itself = (is_symbol or regex.match(r"\p{No}", c) is not None) and not regex.match(
        r"\p{WB=ALetter}", c
    )
    is_raised = unicodedata.decomposition(c).startswith(("<super>", "<sub>"))
    if kinds == {"M"} and (is_symbol or " " in form):
        return " "  # an accent alone
    if is_symbol and is_raised:
        return " "  # the trade mark
    if " " in form or (is_word_in_itself and not is_raised):
        return f" {form} "
    return form if "\u02bc" in unicodedata.normalize("NFKC", c) else c


def normalised(text: str) -> str:
    """NFKC(casefold(NFKC(text))) without variation selectors, and without ignorable characters
    outside emoji."""
    given = "".join(map(prepared, text))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", given).casefold())
    selected = "".join(c for c in folded if not VARIATION.match(c))
    kept = "".join(p for emoji, p in pieces(selected) if emoji or not IGNORABLE.match(p))
    return folded if kept == folded else normalised(kept)


def first_bytes(token: str) -> str:
    """As many of its characters as fit into 128 bytes; none that joins comes last."""
    if len(token.encode()) <= 128:
        return token
    while len(token.encode()) > 128:
        token = token[:-1]
    return token.rstrip(IN_LETTERS + IN_NUMBERS + '"')


@lru_cache(maxsize=100_000)
def words(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """The words of a text in order, with repeats, and the side words."""
    sequence: list[str] = []
    side: set[str] = set()
    run = ""
    last = ""  # the kind of the last character of the run that is no mark
    parts = [*pieces(normalised(text)), (False, " ")]
    for i, (emoji, piece) in enumerate(parts):
        kind = "?" if emoji else category(piece)
        alone = emoji or (kind != "?" and SPACELESS.match(piece) is not None)
        if kind != "?" and not alone:
            last = last if run and kind == "M" else joint(piece)
            run += piece
            continue
        if run and joins(last, piece, parts[i + 1 : i + 2]):
            run += piece
            continue
        if run:
            sequence.append(first_bytes(run))
            side |= found_besides(first_bytes(run), parts[i : i + 3])
        if alone:
            sequence.append(first_bytes(piece))
        run = last = ""
    return tuple(sequence), frozenset(side)


@cache
def joint(c: str) -> str:
    """The kind of character that matters to what stands behind it: L, H (Hebrew), N or none."""
    if SPACELESS.match(c) or category(c) == "?":
        return ""
    for kind, pattern in (("H", "Hebrew_Letter"), ("L", "ALetter"), ("N", "Numeric")):
        if regex.match(rf"\p{{WB={pattern}}}", c):
            return kind
    return ""


def joins(last: str, c: str, behind: list[tuple[bool, str]]) -> bool:
    """Whether a character joins what is before it and behind it."""
    after = "".join("" if emoji else joint(piece) for emoji, piece in behind)
    if last == "N":
        return after == "N" and c in IN_NUMBERS
    if last == after == "H" and c == '"':
        return True
    return last in ("L", "H") and after in ("L", "H") and c in IN_LETTERS


def found_besides(word: str, behind: list[tuple[bool, str]]) -> set[str]:
    """The side words of a word."""
    side = set()
    cut = [-1]
    for i, c in enumerate(word):
        digit = word[i + 1 : i + 2] in tuple("0123456789")
        if (
            c == "_"
            or (c == "." and not digit)
            or (c == "'" and word[i + 1 :] == "s")
            or (c == "'" and not digit and (i == 1 or word[i - 2] in "_.'"))
        ):
            cut.append(i)
    if len(cut) > 1:
        side |= {word[a + 1 : b] for a, b in pairwise([*cut, len(word)]) if b - a > 2}
    next_ = "".join(piece for _, piece in behind)
    for mark in ("++", "#"):
        # A character of a word, also of a keycap, right behind makes it something else.
        follows = next_.startswith(mark) and category(next_[len(mark) :][:1]) == "?"
        if follows and len((word + mark).encode()) <= 128:
            side.add(word + mark)
    return side


@lru_cache(maxsize=100_000)
def tokens(text: str) -> frozenset[str]:
    """The set of words and side words of a text."""
    sequence, side = words(text)
    return side | set(sequence)


@cache
def category(c: str) -> str:
    """The major category of what words are made of, of the Unicode version of `regex`."""
    m = regex.match(r"([\p{L}_])|(\p{M})|(\p{N})", c)
    return "LMN"[m.lastindex - 1] if m is not None and m.lastindex else "?"


# --- expressions ----------------------------------------------------------

DASHES = "-\u2010\u2011\u2013\u2014\u2015\u2212\u2e3a\u2e3b\ufe63\uff0d"
DIRECTIONS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
OPERATORS = ("AND", "OR", "NOT")
LEAVES = ("phrase", "prefix", "is")
NO_ATTRIBUTES: Mapping[str, Scalar] = {}
Tree = tuple[Any, ...]


def analysed(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
    """What becomes of `words` by stemming and stop words, of which there are none here."""
    return words(text)


def is_quote(source: str, at: int) -> bool:
    """Whether a quote begins or ends a phrase: not where it is one of a Hebrew acronym."""
    inner = source[at] in '"\u201d\uff02' and 0 < at < len(source) - 1
    return source[at] in QUOTES and not (
        inner and all("\u0591" <= c <= "\u05f2" for c in (source[at - 1], source[at + 1]))
    )


def lexed(source: str) -> list[tuple[str, str]]:
    """(kind, text): "(", ")", "-", an operator, "word", "predicate" or "phrase"; the latter without
    quotes."""
    out: list[tuple[str, str]] = []
    at = 0
    while at < len(source):
        c = source[at]
        end = at + 1
        if c.isspace() or c in DIRECTIONS:
            pass
        elif c in PARENS:
            kind = "()"[PARENS.index(c) % 2]
            out.append((kind, c))
        elif found := naive_predicates.find(source, at):
            end = found
            out.append(("predicate", source[at:end]))
        elif c in QUOTES:
            while end < len(source) and not is_quote(source, end):
                end += 1
            if end == len(source):
                raise ValueError("a quote is not closed")
            out.append(("phrase", source[at + 1 : end]))
            end += 1
        elif c in DASHES:
            if (
                end == len(source)
                or source[end].isspace()
                or source[end] in DIRECTIONS + PARENS[1::2]
            ):
                raise ValueError("a lone minus")
            out.append(("-", c))
        else:
            while end < len(source) and not (
                source[end].isspace() or source[end] in PARENS or is_quote(source, end)
            ):
                end += 1
            word = source[at:end].rstrip(DIRECTIONS)
            out.append((word if word in OPERATORS else "word", word))
        at = end
    return out


@lru_cache(maxsize=100_000)
def parsed(source: str) -> Tree:
    """("and" | "or" | "not", part...), ("phrase", word...), ("prefix", text) or ("is", name, op,
    value); ValueError for a bad expression."""
    if len(source.encode("utf-8", "surrogatepass")) > 8192:
        raise ValueError("over 8 KiB")
    tree, rest = either(lexed(source), 0)
    if rest:
        raise ValueError(f"unexpected {rest[0]}")
    literals = leaves(tree)
    if len(literals) > 64:
        raise ValueError("over 64 terms")
    if len(literals) <= 12 and not any(
        is_true(tree, frozenset(chosen).__contains__)
        for size in range(len(literals) + 1)
        for chosen in combinations(sorted(literals), size)
    ):
        raise ValueError("can match nothing")
    if len(literals) == 64 and is_true(tree, frozenset().__contains__):
        raise ValueError("64 terms and the term of any text")
    return tree


def either(lexemes: list[tuple[str, str]], depth: int) -> tuple[Tree, list[tuple[str, str]]]:
    """or := and (OR and)*; the tree and the lexemes that are left."""
    part, lexemes = every(lexemes, depth)
    parts = [part]
    while lexemes and lexemes[0][0] == "OR":
        part, lexemes = every(lexemes[1:], depth)
        parts.append(part)
    return ("or", *parts), lexemes


def every(lexemes: list[tuple[str, str]], depth: int) -> tuple[Tree, list[tuple[str, str]]]:
    """and := factor ((AND)? factor)*"""
    part, lexemes = factor(lexemes, depth)
    parts = [part]
    while lexemes and lexemes[0][0] not in ("OR", ")"):
        part, lexemes = factor(lexemes[lexemes[0][0] == "AND" :], depth)
        parts.append(part)
    return ("and", *parts), lexemes


def factor(lexemes: list[tuple[str, str]], depth: int) -> tuple[Tree, list[tuple[str, str]]]:
    """factor := NOT factor | -literal | -( or ) | literal | ( or )"""
    kind, text = lexemes[0] if lexemes else ("", "")
    rest = lexemes[1:]
    if kind == "NOT":
        nots = [k for k, _ in lexemes]
        chain = next((i for i, k in enumerate(nots) if k != "NOT"), len(nots))
        tree, rest = factor(lexemes[chain:], depth)
        return (("not", tree) if chain % 2 else tree), rest
    if kind == "-":
        if not rest or rest[0][0] not in ("word", "phrase", "predicate", "("):
            raise ValueError("a minus before nothing")
        tree, rest = factor(rest, depth)
        return ("not", tree), rest
    if kind == "(":
        if depth == 8:
            raise ValueError("too deep")
        tree, rest = either(rest, depth + 1)
        if not rest:
            raise ValueError("a ( is not closed")
        return tree, rest[1:]
    if kind == "predicate":
        return naive_predicates.parsed(text), rest
    if kind not in ("word", "phrase"):
        raise ValueError("expected a keyword")
    return literal(text, kind == "phrase"), rest


def literal(text: str, quoted: bool) -> Tree:
    """A keyword, a phrase or a prefix."""
    stars = re.sub(r"[*\uff0a](?=\ufe0f?\u20e3)", "", text)  # the emoji of a keycap
    stars = stars.replace("\uff0a", "*")
    if "~" in text or (text[:1] in ("'", "\u2018") and not quoted):
        raise ValueError(f"{text} is reserved")
    if not quoted and text.startswith((*naive_predicates.OPERATORS,)):
        raise ValueError("a comparison without a name")
    wide = next((i for i, letter in enumerate(text) if letter in "＝＜＞"), 0)
    if not quoted and re.fullmatch(r"[^\W\d][\w.-]*[！＜＞]?", text[:wide]):
        raise ValueError("a comparison of full width")
    if not quoted and (re.match(r"[!\[{]\w", text) or re.search(r"\w[\]}]\Z", text)):
        raise ValueError("another language's NOT or parentheses")
    if "*" in stars:
        if quoted or stars.index("*") < len(stars) - 1:
            raise ValueError("* within a word")
        text = text[:-1]
        beginning, _ = words(text)
        if len(beginning) == 1 and len(beginning[0]) >= 2:
            return ("prefix", beginning[0])
        if len(beginning) < 2 or not SPACELESS.match(beginning[-1]):
            raise ValueError("a prefix needs one word of two letters")
    found, side = analysed(text)
    if len(found) == 1 and (marked := [word for word in side if word[-1] in "+#"]):
        found = (marked[0],)
    if not 1 <= len(found) <= 64:
        raise ValueError(f"{text} has no words, or too many")
    return ("phrase", *found)


def leaves(tree: Tree) -> frozenset[Tree]:
    """The literals of a tree."""
    if tree[0] in LEAVES:
        return frozenset([tree])
    return frozenset().union(*map(leaves, tree[1:]))


def is_true(tree: Tree, holds: Callable[[Tree], bool]) -> bool:
    """The truth of an expression, given which literals hold."""
    kind, *parts = tree
    if kind in LEAVES:
        return holds(tree)
    if kind == "not":
        return not is_true(parts[0], holds)
    return (all if kind == "and" else any)(is_true(part, holds) for part in parts)


def satisfied(expression: str, text: str, attributes: Mapping[str, Scalar] = NO_ATTRIBUTES) -> bool:
    """Whether a text with these attributes satisfies an expression; the empty one always."""
    return not expression or is_true(
        parsed(expression), lambda literal: holds(literal, text, attributes)
    )


def holds(leaf: Tree, text: str, attributes: Mapping[str, Scalar] = NO_ATTRIBUTES) -> bool:
    """Whether a literal holds for a text with these attributes."""
    kind, *parts = leaf
    if kind == "is":
        return naive_predicates.holds(leaf, attributes)
    if kind == "prefix":
        return any(word.startswith(parts[0]) for word in tokens(text))
    sequence, side = analysed(text)
    if len(parts) == 1:
        return parts[0] in side or parts[0] in sequence
    return any(list(sequence[i : i + len(parts)]) == parts for i in range(len(sequence)))


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
