"""Regions from their JSON form, which `Region.to_json` writes and GetQuery shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import shapely

from ps2stream.errors import InvalidArgument, Violation, short
from ps2stream.limits import LON_MAX, POLYGON_VERTICES
from ps2stream.space.polygons import find_ambiguous_edge
from ps2stream.space.regions import RECT_FIELDS, Circle, Polygon, Rect, Region, World

_FIELDS = {"Rect": RECT_FIELDS, "Circle": ("lon", "lat", "radius_km")}


def from_json(value: object, *, stored: bool = False) -> Region:
    """Reads a region from None (World), a Rect, a Circle or a GeoJSON Polygon or MultiPolygon.

    An edge of more than 180 and less than 360 degrees of longitude is refused, unless `stored`:
    stored queries may be older than the rule. Raises InvalidArgument with paths below
    `region`.
    """
    if value is None:
        return World()
    if not isinstance(value, Mapping):
        raise _region_error("region", f"expected an object, got {type(value).__name__}")
    kind = value.get("type")
    if kind == "Rect":
        return Rect(*_read_numbers(value, _FIELDS["Rect"]))
    if kind == "Circle":
        return Circle(*_read_numbers(value, _FIELDS["Circle"]))
    coordinates = value.get("coordinates")
    if kind == "Polygon":
        return Polygon(_read_polygon(coordinates, "region.coordinates", 0, stored)[0])
    if kind == "MultiPolygon":
        parts, seen = [], 0
        for i, part in enumerate(_require_array(coordinates, "region.coordinates")):
            polygon, seen = _read_polygon(part, f"region.coordinates[{i}]", seen, stored)
            parts.append(polygon)
        return Polygon(shapely.MultiPolygon(parts))
    known = "Rect, Circle, Polygon or MultiPolygon"
    raise _region_error("region.type", f"expected {known}, got {short(kind)}")


def region_of(where: str, value: Any) -> Region:
    """Reads the region of a line of a query file: a form that `from_json` reads, {"rect": [...]}
    or {"circle": [...]}. Raises InvalidArgument that names the line."""
    try:
        if isinstance(value, dict) and "type" not in value and len(value) == 1:
            ((key, numbers),) = value.items()
            sizes = {"rect": 4, "circle": 3}
            if key in sizes and isinstance(numbers, list) and len(numbers) == sizes[key]:
                if not all(type(n) in (int, float) for n in numbers):
                    raise _region_error(f"region.{key}", f"expected numbers, got {short(numbers)}")
                return Rect(*numbers) if key == "rect" else Circle(*numbers)
        return from_json(value)
    except InvalidArgument as error:
        raise InvalidArgument(
            [Violation(f"{where} {v.field}", v.description) for v in error.violations]
        ) from None
    except OverflowError:
        raise _region_error(f"{where} region", "a number is too large") from None


def _read_numbers(value: Mapping[str, Any], names: tuple[str, ...]) -> list[float]:
    problems = [
        Violation(f"region.{name}", "is missing" if name not in value else "is not a number")
        for name in names
        if not _is_number(value.get(name))
    ]
    problems += [
        Violation(f"region.{name}", f"is not a field of a {value['type']}")
        for name in value
        if name not in names and name != "type"
    ]
    if problems:
        raise InvalidArgument(problems)
    return [_to_float(value[name]) for name in names]


def _read_polygon(value: object, path: str, seen: int, stored: bool) -> tuple[shapely.Polygon, int]:
    """Returns (the polygon of an array of rings, `seen` + its number of positions)."""
    rings = []
    for i, positions in enumerate(_require_array(value, path)):
        where = f"{path}[{i}]"
        points = _require_array(positions, where)
        seen += len(points)
        if seen > POLYGON_VERTICES:
            raise _region_error(
                path, f"more vertices than the limit polygon_vertices {POLYGON_VERTICES}"
            )
        if len(points) < 4:
            raise _region_error(where, f"a ring has {len(points)} positions; at least 4 are needed")
        for j, point in enumerate(points):
            pair = isinstance(point, list | tuple) and len(point) >= 2
            if not pair or not all(map(_is_number, point)):
                raise _region_error(f"{where}[{j}]", "expected [longitude, latitude]")
            if not all(math.isfinite(_to_float(x)) for x in point):
                raise _region_error(f"{where}[{j}]", "a coordinate is not finite")
        if list(points[0][:2]) != list(points[-1][:2]):
            raise _region_error(
                where, "the ring is not closed: its first and last positions differ"
            )
        ring = [(_to_float(p[0]), _to_float(p[1])) for p in points]
        if not stored:
            _check_edges(ring, where)
        rings.append(ring)
    if not rings:
        raise _region_error(path, "the polygon is empty")
    return shapely.Polygon(rings[0], rings[1:]), seen


def _check_edges(ring: list[tuple[float, float]], path: str) -> None:
    """Raises InvalidArgument for an ambiguous edge; it names the edge by its first corner and says
    how to split it."""
    lons = np.array([lon for lon, _ in ring])
    edge = find_ambiguous_edge(lons)
    if edge is None or np.abs(lons).max() > LON_MAX:  # out of range has an error of its own
        return
    (lon, lat), (to_lon, to_lat) = ring[edge : edge + 2]
    between = f"[{(lon + to_lon) / 2:.6g}, {(lat + to_lat) / 2:.6g}]"
    raise _region_error(
        f"{path}[{edge}]",
        f"the edge from [{lon:g}, {lat:g}] to [{to_lon:g}, {to_lat:g}] spans "
        f"{abs(to_lon - lon):g} degrees of longitude, and above 180 its direction is ambiguous: "
        "if it crosses the antimeridian, split the polygon there into a MultiPolygon (RFC 7946 "
        f"3.1.9); if it does not, add a corner between, such as {between}",
    )


def _require_array(value: object, path: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise _region_error(path, f"expected an array, got {type(value).__name__}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def _region_error(path: str, problem: str) -> InvalidArgument:
    return InvalidArgument([Violation(path, problem)])
