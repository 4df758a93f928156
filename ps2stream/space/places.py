"""The cities of the world, by GeoNames: where people live, and which city is near a point.

places.arrow is made by scripts/places.py. The data is GeoNames' (https://www.geonames.org,
CC BY 4.0), cities of more than 15,000 people.
"""

from __future__ import annotations

import math
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ps2stream.protocol.frame import F64
from ps2stream.space.sphere import EARTH_KM

FILE = Path(__file__).with_name("places.arrow")
_BANDS = (0.5, 2.0, 8.0, 32.0, 180.0)
"""Degrees of latitude to either side; the last band holds all cities."""


class NearestPlace(NamedTuple):
    """A city and its great-circle distance from the point in question."""

    name: str
    country: str  # ISO 3166, two letters
    km: float


class PlaceTable:
    """A table of n cities, ordered from south to north. lon, lat: float64[n], degrees; population:
    float64[n]."""

    def __init__(self, cities: pa.RecordBatch) -> None:
        # From the buffers: Arrow's own conversion imports pandas, which takes half a second.
        self.lon, self.lat, self.population = (
            np.frombuffer(cities.column(name).buffers()[1], np.float64, len(cities))
            for name in ("lon", "lat", "population")
        )
        self._name = cities.column("name")
        self._country = cities.column("country")
        self._weight = np.sqrt(np.maximum(self.population, 1.0))

    def __len__(self) -> int:
        return len(self.lon)

    def names(self) -> list[str]:
        found: list[str] = self._name.to_pylist()
        return found

    def nearest(self, lon: float, lat: float) -> NearestPlace:
        """Returns the city nearest to a point. It searches a band of latitude, which is widened
        until no city outside of it can be nearer."""
        here = _unit_vectors(np.array([lon]), np.array([lat]))
        for band in _BANDS:
            rows = self._rows_between(lat - band, lat + band)
            if rows.start == rows.stop:
                continue
            away = _unit_vectors(self.lon[rows], self.lat[rows]) - here
            chord = (away * away).sum(1)
            row = int(chord.argmin())
            km = 2.0 * EARTH_KM * math.asin(min(1.0, math.sqrt(chord[row]) / 2.0))
            if km <= math.radians(band) * EARTH_KM:
                break
        row += rows.start
        return NearestPlace(self._name[row].as_py(), self._country[row].as_py(), km)

    def weight_within(self, boxes: F64) -> float:
        """Estimates how many posts to expect from boxes, float64[k, 4] (west, south, east, north;
        none crosses the antimeridian), as a sum of square roots of populations."""
        total = 0.0
        for west, south, east, north in boxes.tolist():
            rows = self._rows_between(south, north)
            lon = self.lon[rows]
            total += float(self._weight[rows][(lon >= west) & (lon <= east)].sum())
        return total

    def _rows_between(self, south: float, north: float) -> slice:
        """Returns the rows of the cities in a band of latitude, its borders included."""
        first, end = np.searchsorted(self.lat, [south, np.nextafter(north, np.inf)]).tolist()
        return slice(first, end)


@lru_cache(maxsize=1)
def load_places() -> PlaceTable:
    """Returns the cities, which are read once: about 10 ms of CPU and 2 MB."""
    with pa.memory_map(str(FILE)) as source:
        return PlaceTable(pa.ipc.open_file(source).get_batch(0))


def _unit_vectors(lon: F64, lat: F64) -> F64:
    """Returns the points on the unit sphere, float64[n, 3]."""
    east, north = np.radians(lon), np.radians(lat)
    flat = np.cos(north)
    return np.column_stack([flat * np.cos(east), flat * np.sin(east), np.sin(north)])
