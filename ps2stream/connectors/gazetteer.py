"""A gazetteer: the places that an operator wants to be found in texts, by their names.

The longest name that stands in a text between word borders is its place. A name of several places
means the most populous one if it has RATIO times the population of the next; otherwise, and if a
text names several places, it says nothing. So does a text that names none.
"""

from __future__ import annotations

import csv
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ps2stream.errors import invalid, short
from ps2stream.posts.post import CHECKS

RATIO = 10.0
"""How many times the population of the next place of a name the most populous one has."""
RADIUS_KM = 25.0
"""How far off a place may be whose row does not say."""
MOST_BYTES = 256 << 20
MOST_PLACES = 2_000_000
NAME_BYTES = 256
WORDS = 8
"""Words of a name, at most."""
TEXT_WORDS = 1000
"""Words of a text that are looked at."""


class GazetteerPlace(NamedTuple):
    """A place in degrees and kilometres: about how far its area reaches, and its inhabitants."""

    name: str
    lon: float
    lat: float
    radius_km: float
    population: float


class Gazetteer:
    """Places by name. A name that begins with a capital does so in a text, too, or it is a word
    like any other (`Nice` is a place, `nice` is none); apart from that, case does not count, and
    accents do."""

    def __init__(self, places: Iterable[GazetteerPlace], ratio: float = RATIO) -> None:
        self._places: dict[tuple[str, ...], GazetteerPlace | None] = {}
        self._most: dict[str, int] = {}  # words of the longest name that begins so
        self._is_capital: dict[tuple[str, ...], bool] = {}
        by_name: dict[tuple[str, ...], list[GazetteerPlace]] = {}
        for place in places:
            found = _split_words(place.name)
            if found and len(found) <= WORDS:
                words = tuple(map(_fold_word, found))
                by_name.setdefault(words, []).append(place)
                capital = self._is_capital.get(words, True)
                self._is_capital[words] = capital and found[0][0].isupper()
        for words, places_of_name in by_name.items():
            self._places[words] = _choose_place(places_of_name, ratio)
            self._most[words[0]] = max(self._most.get(words[0], 0), len(words))

    def __len__(self) -> int:
        return len(self._places)

    def find(self, text: str) -> GazetteerPlace | None:
        """Returns the one place that a text names; None if it names none, several, or one of which
        it is not known which place it is."""
        written = _split_words(text)[:TEXT_WORDS]
        words = tuple(map(_fold_word, written))
        found: set[GazetteerPlace] = set()
        at = 0
        while at < len(words):
            size = self._measure_name(words, at, written[at][0].isupper())
            if size:
                place = self._places[words[at : at + size]]
                if place is None:
                    return None
                found.add(place)
            at += size or 1
        return found.pop() if len(found) == 1 else None

    def _measure_name(self, words: tuple[str, ...], at: int, is_capital: bool) -> int:
        """Returns how many words the longest name has that begins here; 0 if none does."""
        for size in range(self._most.get(words[at], 0), 0, -1):
            name = words[at : at + size]
            if name in self._places and (is_capital or not self._is_capital[name]):
                return size
        return 0


def _choose_place(found: list[GazetteerPlace], ratio: float) -> GazetteerPlace | None:
    found = sorted(set(found), key=lambda place: -place.population)
    if len(found) == 1:
        return found[0]
    first, second = found[:2]
    return first if first.population > 0 and first.population >= ratio * second.population else None


def _split_words(text: str) -> list[str]:
    """Returns the words of a text: runs of letters, marks and digits."""
    plain = unicodedata.normalize("NFKC", text)
    return "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in plain).split()


def _fold_word(word: str) -> str:
    """Returns a word in one case."""
    return unicodedata.normalize("NFKC", word.casefold())


def read_gazetteer(path: Path, ratio: float = RATIO) -> Gazetteer:
    """Reads a gazetteer, CSV or Parquet by its name, of the columns name, lat, lon, and, if they
    are there, radius_km and population. Raises InvalidArgument."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise invalid("gazetteer", f"{path} has more than {MOST_BYTES} bytes")
        rows = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
        return Gazetteer(_check_rows(path, rows), ratio)
    except OSError as error:
        problem = f"cannot read {path}: {error.strerror or error}"
        raise invalid("gazetteer", problem) from None


def _check_rows(path: Path, rows: Iterator[Mapping[str, Any]]) -> Iterator[GazetteerPlace]:
    for number, row in enumerate(rows, 1):
        if number > MOST_PLACES:
            raise invalid("gazetteer", f"{path} has more than {MOST_PLACES:,} places")
        try:
            yield _read_place(row)
        except ValueError as error:
            raise invalid("gazetteer", f"{path} place {number}: {error}") from None


def _read_place(row: Mapping[str, Any]) -> GazetteerPlace:
    name = row.get("name")
    if not isinstance(name, str) or not 0 < len(name.encode("utf-8", "replace")) <= NAME_BYTES:
        raise ValueError(f"name: expected 1 to {NAME_BYTES} bytes, got {short(name)}")
    place = {}
    for axis in ("lon", "lat"):
        try:
            place[axis] = CHECKS[axis](row.get(axis))
        except ValueError as error:
            raise ValueError(f"{axis}: {error}") from None
    radius_km = _read_number(row, "radius_km", RADIUS_KM)
    return GazetteerPlace(name, **place, radius_km=radius_km,
                          population=_read_number(row, "population", 0.0))  # fmt: skip


def _read_number(row: Mapping[str, Any], name: str, otherwise: float) -> float:
    value = row.get(name)
    if value is None or value == "":
        return otherwise
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{name}: expected a number from 0, got {short(value)}")
    return number


def _read_csv(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        try:
            _check_columns(path, reader.fieldnames or ())
            yield from reader
        except (csv.Error, UnicodeDecodeError) as error:
            raise invalid("gazetteer", f"{path} is no CSV in UTF-8: {error}") from None


def _read_parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            _check_columns(path, names)
            wanted = [name for name in GazetteerPlace._fields if name in names]
            for batch in file.iter_batches(10_000, columns=wanted):
                yield from batch.to_pylist()
    except pa.ArrowException as error:
        raise invalid("gazetteer", f"{path} is no Parquet: {error}") from None


def _check_columns(path: Path, names: Iterable[str]) -> None:
    have = list(names)
    if missing := [name for name in ("name", "lat", "lon") if name not in have]:
        there = ", ".join(have) or "none"
        raise invalid("gazetteer", f"{path}: expected a column {missing[0]}; there are: {there}")
