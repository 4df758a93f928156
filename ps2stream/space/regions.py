"""Regions and their exact predicates, on the sphere in degrees (semantics.md 2).

A region is World, Rect, Circle or Polygon: a frozen, validated value. Routing uses its boxes
(algorithms.md 1.6), verification its shape and geometry. -180 and 180 are the same meridian and
a pole is one point at every longitude, in boxes as in predicates.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ps2stream.errors import InvalidArgument, Violation, invalid
from ps2stream.limits import LAT_MAX, LON_MAX, RADIUS_KM
from ps2stream.space.rings import (
    GEOJSON,
    Part,
    is_swapped,
    normalize_parts,
    parts_problem,
    read_geojson,
    read_geometry,
    region_error,
)
from ps2stream.space.sphere import haversine_km, in_rect

if TYPE_CHECKING:
    from ps2stream.space.polygons import Geometry


@dataclasses.dataclass(frozen=True, slots=True)
class World:
    """The region of a query without one: everywhere."""

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

    def __post_init__(self) -> None:
        _set_floats(self)
        problems = [
            Violation(f"region.{name}", problem)
            for name, limit in zip(RECT_FIELDS, RECT_LIMITS, strict=True)
            if (problem := coordinate_problem(getattr(self, name), limit))
        ]
        if not problems and self.lat_min > self.lat_max:
            problems.append(
                Violation("region.lat_min", _describe_inverted(self.lat_min, self.lat_max))
            )
        if problems:
            west, south, east, north = self.lon_min, self.lat_min, self.lon_max, self.lat_max
            meant = f"lon_min {south:g}, lat_min {west:g}, lon_max {north:g}, lat_max {east:g}"
            _suggest_swap(problems, (west, east), (south, north), meant)
            raise InvalidArgument(problems)

    def contains(self, lon: float, lat: float) -> bool:
        return in_rect(
            self.lon_min, self.lat_min, self.lon_max, self.lat_max, float(lon), float(lat)
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

    def contains(self, lon: float, lat: float) -> bool:
        return haversine_km(self.lon, self.lat, float(lon), float(lat)) <= self.radius_km

    def to_json(self) -> dict[str, Any]:
        return {"type": "Circle", "lon": self.lon, "lat": self.lat, "radius_km": self.radius_km}


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Polygon:
    """A valid polygon or multipolygon of straight edges in the longitude/latitude plane;
    borders and hole borders are inside. Made of GeoJSON or of a geometry of another library, such
    as shapely. Kept in normal form: two dimensions, rings and parts in a fixed order, shells
    counter-clockwise (RFC 7946). Raises InvalidArgument; where shapely is not installed, rings
    that cross each other are left to the service to refuse."""

    parts: tuple[Part, ...]
    """The polygons of a multipolygon, else one: each a shell and its holes, closed rings of
    (longitude, latitude)."""
    multi: bool
    _geometry: Any = dataclasses.field(compare=False, repr=False)

    __match_args__ = ("geometry",)

    def __init__(self, geometry: Any) -> None:
        geojson = isinstance(geometry, Mapping) and geometry.get("type") in GEOJSON
        parts, multi = read_geojson(geometry) if geojson else read_geometry(geometry)
        if problem := parts_problem(parts):
            raise region_error("region.coordinates", problem)
        self._keep_parts(normalize_parts(parts), multi)
        polygons = _load_polygons()
        if polygons is not None and (problem := polygons.polygon_problem(self.geometry)):
            raise region_error("region.coordinates", problem)

    @classmethod
    def from_normal_form(cls, parts: tuple[Part, ...], multi: bool) -> Polygon:
        """Makes a polygon of the parts of another one, as the service keeps them, without a
        check."""
        made = object.__new__(cls)
        made._keep_parts(parts, multi)
        return made

    def _keep_parts(self, parts: tuple[Part, ...], multi: bool) -> None:
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "multi", multi)
        object.__setattr__(self, "_geometry", None)

    def __reduce__(self) -> tuple[Any, ...]:
        return Polygon.from_normal_form, (self.parts, self.multi)

    @property
    def geometry(self) -> Geometry:
        """The shapely geometry, made when it is first used."""
        if self._geometry is None:
            from ps2stream.space.polygons import build_geometry

            object.__setattr__(self, "_geometry", build_geometry(self.parts, self.multi))
        found: Geometry = self._geometry
        return found

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """The bounding box: west, south, east, north."""
        lons, lats = zip(*(point for shell, *_ in self.parts for point in shell), strict=True)
        return min(lons), min(lats), max(lons), max(lats)

    def contains(self, lon: float, lat: float) -> bool:
        """Returns whether the polygon covers a point. Needs shapely."""
        from ps2stream.space.polygons import polygon_holds

        return polygon_holds(self.geometry, float(lon), float(lat))

    def to_json(self) -> dict[str, Any]:
        """Returns the GeoJSON form."""
        parts = [[[list(point) for point in ring] for ring in part] for part in self.parts]
        if self.multi:
            return {"type": "MultiPolygon", "coordinates": parts}
        return {"type": "Polygon", "coordinates": parts[0]}


Region = World | Rect | Circle | Polygon
RECT_FIELDS = ("lon_min", "lat_min", "lon_max", "lat_max")
RECT_LIMITS = (LON_MAX, LAT_MAX, LON_MAX, LAT_MAX)


# --- validation -----------------------------------------------------------


def coordinate_problem(value: float, limit: float) -> str:
    """Describes what is wrong with a coordinate that must lie in [-limit, limit]; "" if nothing
    is."""
    if not math.isfinite(value):
        return f"{value} is not finite"
    if abs(value) > limit:
        return f"{value} is not in [{-limit:g}, {limit:g}]"
    return ""


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
            raise invalid(f"region.{field.name}", problem) from None
        object.__setattr__(region, field.name, value)


@functools.cache
def _load_polygons() -> ModuleType | None:
    """Returns the module that checks with GEOS; None where its library is not installed."""
    try:
        from ps2stream.space import polygons
    except ModuleNotFoundError:
        return None
    return polygons
