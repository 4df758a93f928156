"""Regions and their exact predicates, on the sphere in degrees (semantics.md 2).

A region is World, Rect, Circle or Polygon: a frozen, validated value. Routing uses its boxes
(algorithms.md 1.6), verification its shape and geometry. -180 and 180 are the same meridian and
a pole is one point at every longitude, in boxes as in predicates.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import shapely

from ps2stream.errors import InvalidArgument, Violation
from ps2stream.limits import LAT_MAX, LON_MAX, RADIUS_KM
from ps2stream.protocol.frame import F64
from ps2stream.protocol.rows import RegionShape
from ps2stream.space import space_kernels as kernels
from ps2stream.space.polygons import (
    Geometry,
    encode,
    is_swapped,
    normal_form,
    polygon_problem,
    polygon_rings,
    polygons_hold,
)
from ps2stream.space.space_kernels import EARTH_KM

__all__ = [
    "KM_PER_DEGREE",
    "RECT_FIELDS",
    "Circle",
    "Polygon",
    "Rect",
    "Region",
    "World",
    "coordinate_problem",
    "rect_problems",
    "square_km",
]

KM_PER_DEGREE = EARTH_KM * math.pi / 180.0
# Outward, in radians: above the error of the haversine near the antipode, sqrt(2^-53).
_MARGIN = 1e-7


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """The region of a query without one: everywhere."""

    SHAPE: ClassVar[RegionShape] = RegionShape.WORLD

    def shape(self) -> RegionShape:
        return self.SHAPE

    def geom(self) -> F64:
        return np.zeros(0)

    def boxes(self) -> F64:
        """Returns float64[1, 4]: lon_min, lat_min, lon_max, lat_max."""
        return np.array([[-LON_MAX, -LAT_MAX, LON_MAX, LAT_MAX]])

    def contains(self, lon: float, lat: float) -> bool:
        return True

    def to_json(self) -> None:
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Rect:
    """A rectangle in degrees, closed on all sides; lon_min > lon_max crosses the antimeridian;
    zero width or height is allowed. Raises InvalidArgument."""

    lon_min: float
    lat_min: float
    lon_max: float
    lat_max: float

    SHAPE: ClassVar[RegionShape] = RegionShape.RECT

    def __post_init__(self) -> None:
        _set_floats(self)
        problems = [
            Violation(f"region.{name}", problem)
            for name, limit in zip(RECT_FIELDS, _RECT_LIMITS, strict=True)
            if (problem := coordinate_problem(getattr(self, name), limit))
        ]
        if not problems and self.lat_min > self.lat_max:
            problems.append(
                Violation("region.lat_min", _describe_inverted(self.lat_min, self.lat_max))
            )
        if problems:
            west, south, east, north = self.geom().tolist()
            meant = f"lon_min {south:g}, lat_min {west:g}, lon_max {north:g}, lat_max {east:g}"
            _suggest_swap(problems, (west, east), (south, north), meant)
            raise InvalidArgument(problems)

    def shape(self) -> RegionShape:
        return self.SHAPE

    def geom(self) -> F64:
        return np.array([self.lon_min, self.lat_min, self.lon_max, self.lat_max])

    def boxes(self) -> F64:
        """Returns float64[k, 4], k 1 or 2. A single box is exactly this rectangle."""
        return _make_boxes(self.lon_min, self.lat_min, self.lon_max, self.lat_max)

    def contains(self, lon: float, lat: float) -> bool:
        return bool(
            kernels.in_rect(
                self.lon_min, self.lat_min, self.lon_max, self.lat_max, float(lon), float(lat)
            )
        )

    def to_json(self) -> dict[str, Any]:
        return {"type": "Rect", **{f: getattr(self, f) for f in RECT_FIELDS}}


@dataclasses.dataclass(frozen=True, slots=True)
class Circle:
    """The points within radius_km of a centre, by great-circle distance on a sphere of
    6371.0088 km; the border is inside. Raises InvalidArgument."""

    lon: float
    lat: float
    radius_km: float

    SHAPE: ClassVar[RegionShape] = RegionShape.CIRCLE

    def __post_init__(self) -> None:
        _set_floats(self)
        problems = [
            Violation(f"region.{name}", problem)
            for name, limit in (("lon", LON_MAX), ("lat", LAT_MAX))
            if (problem := coordinate_problem(getattr(self, name), limit))
        ]
        r = self.radius_km
        if not math.isfinite(r):
            problems.append(Violation("region.radius_km", f"{r} is not finite"))
        elif not 0 < r <= RADIUS_KM:
            text = f"{r} is not above 0 and at most {RADIUS_KM} km"
            problems.append(Violation("region.radius_km", text))
        if problems:
            _suggest_swap(problems, (self.lon,), (self.lat,), f"lon {self.lat:g}, lat {self.lon:g}")
            raise InvalidArgument(problems)

    def shape(self) -> RegionShape:
        return self.SHAPE

    def geom(self) -> F64:
        return np.array([self.lon, self.lat, self.radius_km])

    def boxes(self) -> F64:
        """Returns float64[k, 4], k 1 or 2: the spherical bounding box, half a metre wider; the
        full longitude band if the circle holds a pole."""
        r = self.radius_km / EARTH_KM + _MARGIN
        south, north = self.lat - math.degrees(r), self.lat + math.degrees(r)
        if south <= -LAT_MAX or north >= LAT_MAX:
            return _make_boxes(-LON_MAX, max(south, -LAT_MAX), LON_MAX, min(north, LAT_MAX))
        half = math.degrees(math.asin(min(1.0, math.sin(r) / math.cos(math.radians(self.lat)))))
        west, east = self.lon - half, self.lon + half
        west += 360.0 if west < -LON_MAX else 0.0
        east -= 360.0 if east > LON_MAX else 0.0
        return _make_boxes(west, south, east, north)

    def contains(self, lon: float, lat: float) -> bool:
        return bool(
            kernels.haversine_km(self.lon, self.lat, float(lon), float(lat)) <= self.radius_km
        )

    def to_json(self) -> dict[str, Any]:
        return {"type": "Circle", "lon": self.lon, "lat": self.lat, "radius_km": self.radius_km}


@dataclasses.dataclass(frozen=True, slots=True)
class Polygon:
    """A valid polygon or multipolygon of straight edges in the longitude/latitude plane;
    borders and hole borders are inside. Kept in normal form: two dimensions, rings and
    parts in a fixed order, shells counter-clockwise (RFC 7946). Raises InvalidArgument."""

    geometry: Geometry

    SHAPE: ClassVar[RegionShape] = RegionShape.POLYGON

    def __post_init__(self) -> None:
        problem = polygon_problem(self.geometry)
        if problem:
            raise InvalidArgument([Violation("region.coordinates", problem)])
        object.__setattr__(self, "geometry", normal_form(self.geometry))

    def shape(self) -> RegionShape:
        return self.SHAPE

    def geom(self) -> F64:
        """Returns the length of the WKB in bytes, then the WKB, eight bytes per element."""
        return encode(self.geometry)

    def boxes(self) -> F64:
        """Returns float64[k, 4], k 1 or 2: the bounding box."""
        return _make_boxes(*self.geometry.bounds)

    def contains(self, lon: float, lat: float) -> bool:
        one = np.array([self.geometry], object)
        return bool(polygons_hold(one, np.array([float(lon)]), np.array([float(lat)]))[0])

    def to_json(self) -> dict[str, Any]:
        """Returns the GeoJSON form."""
        parts = [polygon_rings(p) for p in shapely.get_parts(self.geometry)]
        if isinstance(self.geometry, shapely.Polygon):
            return {"type": "Polygon", "coordinates": parts[0]}
        return {"type": "MultiPolygon", "coordinates": parts}


Region = World | Rect | Circle | Polygon
RECT_FIELDS = ("lon_min", "lat_min", "lon_max", "lat_max")
_RECT_LIMITS = (LON_MAX, LAT_MAX, LON_MAX, LAT_MAX)


# --- validation -----------------------------------------------------------


def coordinate_problem(value: float, limit: float) -> str:
    """Describes what is wrong with a coordinate that must lie in [-limit, limit]; "" if nothing
    is."""
    if not math.isfinite(value):
        return f"{value} is not finite"
    if abs(value) > limit:
        return f"{value} is not in [{-limit:g}, {limit:g}]"
    return ""


def rect_problems(rects: F64) -> list[tuple[int, str, str]]:
    """Returns (row, `region.<side>`, description) of the bad rows of float64[n, 4], in row
    order."""
    bad = ~(np.abs(rects) <= np.array(_RECT_LIMITS)).all(1) | ~(rects[:, 1] <= rects[:, 3])
    problems: list[tuple[int, str, str]] = []
    for row in np.flatnonzero(bad).tolist():
        try:
            Rect(*rects[row].tolist())
        except InvalidArgument as error:
            problems += [(row, field, text) for field, text in error.violations]
    return problems


def _describe_inverted(lat_min: float, lat_max: float) -> str:
    return f"{lat_min} is above lat_max {lat_max}"


def _suggest_swap(
    problems: list[Violation], lons: tuple[float, ...], lats: tuple[float, ...], meant: str
) -> None:
    """Adds the likely meaning to the last refused latitude, if the values would be valid with
    longitude and latitude exchanged."""
    found = [i for i, problem in enumerate(problems) if problem.field.startswith("region.lat")]
    if found and is_swapped(lons, lats):
        field, text = problems[found[-1]]
        problems[found[-1]] = Violation(field, f"{text}; did you mean {meant}?")


def _set_floats(region: Rect | Circle) -> None:
    """Replaces the fields by Python floats, -0.0 by 0.0, so that equal regions are the same
    value."""
    for field in dataclasses.fields(region):
        raw = getattr(region, field.name)
        try:
            value = float(raw) + 0.0
        except (TypeError, ValueError):
            problem = f"expected a number, got {raw!r:.80}"
            raise InvalidArgument([Violation(f"region.{field.name}", problem)]) from None
        object.__setattr__(region, field.name, value)


def _make_boxes(lon_min: float, lat_min: float, lon_max: float, lat_max: float) -> F64:
    out = np.empty((2, 4))
    return out[: kernels.boxes_of(lon_min, lat_min, lon_max, lat_max, out)]


# --- squares --------------------------------------------------------------


def square_km(lon: F64, lat: F64, side_km: F64) -> tuple[F64, F64, F64, F64]:
    """Returns the sides (lon_min, lat_min, lon_max, lat_max) in degrees, float64[n], of squares
    of side_km around points, at the centre's latitude (algorithms.md 7.8). They are cut at the
    poles, are at most the full longitude band wide, and cross the antimeridian if need be.
    """
    high = np.asarray(side_km, np.float64) / (2.0 * KM_PER_DEGREE)
    wide = high / np.maximum(np.cos(np.radians(lat)), 1e-9)
    band = wide >= LON_MAX
    west, east = lon - wide, lon + wide
    west = np.where(band, -LON_MAX, np.where(west < -LON_MAX, west + 360.0, west))
    east = np.where(band, LON_MAX, np.where(east > LON_MAX, east - 360.0, east))
    return west, np.maximum(lat - high, -LAT_MAX), east, np.minimum(lat + high, LAT_MAX)
