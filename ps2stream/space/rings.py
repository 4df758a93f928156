"""Rings of polygons as plain tuples: reading them, their normal form, and what is wrong with them.

Nothing here needs a library; whether rings cross each other is left to GEOS (polygons.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

from ps2stream.errors import InvalidArgument, invalid
from ps2stream.limits import LAT_MAX, LON_MAX, POLYGON_VERTICES

Position = tuple[float, float]
"""Longitude and latitude in degrees."""
Ring = tuple[Position, ...]
"""A closed ring: its last position is its first."""
Part = tuple[Ring, ...]
"""A polygon: its shell, then its holes."""
GEOJSON = ("Polygon", "MultiPolygon")
"""The types of GeoJSON that are regions."""


# --- reading --------------------------------------------------------------


def read_geojson(value: Mapping[str, Any], stored: bool = False) -> tuple[tuple[Part, ...], bool]:
    """Returns the parts of a Polygon or MultiPolygon in GeoJSON, and whether it is a MultiPolygon.
    Raises InvalidArgument, also for an ambiguous edge unless `stored`."""
    path, coordinates = "region.coordinates", value.get("coordinates")
    if value.get("type") == "Polygon":
        return (_read_part(coordinates, path, 0, stored)[0],), False
    parts, seen = [], 0
    for i, rings in enumerate(_require_array(coordinates, path)):
        part, seen = _read_part(rings, f"{path}[{i}]", seen, stored)
        parts.append(part)
    return tuple(parts), True


def read_geometry(geometry: Any) -> tuple[tuple[Part, ...], bool]:
    """Returns the parts of a geometry that has `__geo_interface__`, as shapely's have, and whether
    it is a MultiPolygon. Raises InvalidArgument for another one."""
    shape = getattr(geometry, "__geo_interface__", None)
    kind = shape.get("type") if isinstance(shape, Mapping) else None
    if not isinstance(shape, Mapping) or kind not in GEOJSON:
        problem = f"expected a Polygon or MultiPolygon, got {type(geometry).__name__}"
        raise region_error("region.coordinates", problem)
    multi = kind == "MultiPolygon"
    parts = shape["coordinates"] if multi else [shape["coordinates"]]
    try:
        plain = [
            tuple(tuple((float(p[0]) + 0.0, float(p[1]) + 0.0) for p in ring) for ring in part)
            for part in parts
        ]
    except (TypeError, ValueError, IndexError, OverflowError):
        raise region_error("region.coordinates", "expected [longitude, latitude]") from None
    return tuple(part for part in plain if part and part[0]), multi


def _read_part(value: object, path: str, seen: int, stored: bool) -> tuple[Part, int]:
    """Returns (the polygon of an array of rings as GeoJSON has it, `seen` + its number of
    positions). Raises InvalidArgument with paths below `path`, also for an ambiguous edge unless
    `stored`."""
    rings = []
    for i, positions in enumerate(_require_array(value, path)):
        where = f"{path}[{i}]"
        points = _require_array(positions, where)
        seen += len(points)
        if seen > POLYGON_VERTICES:
            raise region_error(
                path, f"more vertices than the limit polygon_vertices {POLYGON_VERTICES}"
            )
        if len(points) < 4:
            raise region_error(where, f"a ring has {len(points)} positions; at least 4 are needed")
        ring = tuple([_read_position(point, where, j) for j, point in enumerate(points)])
        if ring[0] != ring[-1]:
            raise region_error(where, "the ring is not closed: its first and last positions differ")
        if not stored:
            _check_edges(ring, where)
        rings.append(ring)
    if not rings:
        raise region_error(path, "the polygon is empty")
    return tuple(rings), seen


def _read_position(value: object, path: str, at: int) -> Position:
    """Returns a position without its elevation, -0.0 as 0.0."""
    if not isinstance(value, list | tuple) or len(value) < 2 or not all(map(is_number, value)):
        raise region_error(f"{path}[{at}]", "expected [longitude, latitude]")
    numbers = [to_float(number) + 0.0 for number in value]
    if not all(map(math.isfinite, numbers)):
        raise region_error(f"{path}[{at}]", "a coordinate is not finite")
    return numbers[0], numbers[1]


def _check_edges(ring: Ring, path: str) -> None:
    """Raises InvalidArgument for an ambiguous edge; it names the edge by its first corner and says
    how to split it."""
    edge = find_ambiguous_edge([lon for lon, _ in ring])
    if edge is None or max(abs(lon) for lon, _ in ring) > LON_MAX:
        return  # out of range has an error of its own
    (lon, lat), (to_lon, to_lat) = ring[edge : edge + 2]
    between = f"[{(lon + to_lon) / 2:.6g}, {(lat + to_lat) / 2:.6g}]"
    raise region_error(
        f"{path}[{edge}]",
        f"the edge from [{lon:g}, {lat:g}] to [{to_lon:g}, {to_lat:g}] spans "
        f"{abs(to_lon - lon):g} degrees of longitude, and above 180 its direction is ambiguous: "
        "if it crosses the antimeridian, split the polygon there into a MultiPolygon (RFC 7946 "
        f"3.1.9); if it does not, add a corner between, such as {between}",
    )


def find_ambiguous_edge(lons: Sequence[float]) -> int | None:
    """Returns the index of the first edge of a ring of these longitudes that spans more than 180
    and less than 360 degrees of longitude; None if there is none. Such an edge may be meant to
    cross the antimeridian, the short way; an edge of 360 degrees bounds a whole band of
    latitude."""
    spans = (abs(b - a) for a, b in pairwise(lons))
    return next((i for i, span in enumerate(spans) if LON_MAX < span < 2 * LON_MAX), None)


def _require_array(value: object, path: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise region_error(path, f"expected an array, got {type(value).__name__}")
    return value


def is_number(value: object) -> bool:
    """Returns whether JSON has this value as a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_float(value: float) -> float:
    """Returns a number as a float; infinity for one that no float can be."""
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return math.inf


def region_error(path: str, problem: str) -> InvalidArgument:
    """Returns the error about one field of a region."""
    return invalid(path, problem)


# --- problems -------------------------------------------------------------


def parts_problem(parts: Sequence[Part]) -> str:
    """Describes what is wrong with a polygon, as far as plain numbers tell; "" if nothing is."""
    points = [point for part in parts for ring in part for point in ring]
    if not points:
        return "the polygon is empty"
    if len(points) > POLYGON_VERTICES:
        return f"{len(points)} vertices are over the limit polygon_vertices {POLYGON_VERTICES}"
    lons, lats = [lon for lon, _ in points], [lat for _, lat in points]
    if not (all(map(math.isfinite, lons)) and all(map(math.isfinite, lats))):
        return "a coordinate is not finite"
    if abs(worst := max(lons, key=abs)) > LON_MAX:
        advice = "; split a polygon that crosses the antimeridian (RFC 7946 3.1.9)"
        return f"longitude {worst} is not in [{-LON_MAX:g}, {LON_MAX:g}]" + advice
    if abs(worst := max(lats, key=abs)) > LAT_MAX:
        advice = "; each corner is [longitude, latitude]" if is_swapped(lons, lats) else ""
        return f"latitude {worst} is not in [{-LAT_MAX:g}, {LAT_MAX:g}]" + advice
    for part in parts:
        for ring in part:
            if len(set(ring)) < 3 and len(_drop_repeats(ring)) < 4:
                lon, lat = ring[0]
                return f"invalid polygon: Too few points in geometry component[{lon:g} {lat:g}]"
    return ""


def is_swapped(lons: Iterable[float], lats: Iterable[float]) -> bool:
    """Returns whether some latitude is out of range and all values would be valid with longitudes
    and latitudes exchanged."""
    return LAT_MAX < max(map(abs, lats)) <= LON_MAX and max(map(abs, lons)) <= LAT_MAX


# --- normal form ----------------------------------------------------------


def normalize_parts(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Returns the parts of a valid polygon without a point twice in a row, rings and
    parts in a fixed order, shells counter-clockwise (RFC 7946). Equal polygons, however written,
    become the same value."""
    return tuple(
        sorted(map(_normalize_part, parts), key=lambda part: _order_ring(part[0]), reverse=True)
    )


def _normalize_part(part: Part) -> Part:
    shell, *holes = part
    turned = sorted((_normalize_ring(hole, False) for hole in holes), key=_order_ring, reverse=True)
    return (_normalize_ring(shell, True), *turned)


def _normalize_ring(ring: Ring, counter_clockwise: bool) -> Ring:
    """Returns the ring from its least position on, in the direction wanted."""
    points = _drop_repeats(ring)[:-1]
    first = points.index(min(points))
    points = points[first:] + points[:first]
    if _turns_left(points[-1], points[0], points[1]) != counter_clockwise:
        points[1:] = points[:0:-1]
    return (*points, points[0])


def _drop_repeats(ring: Ring) -> list[Position]:
    return [ring[0], *(point for before, point in pairwise(ring) if point != before)]


def _turns_left(a: Position, b: Position, c: Position) -> bool:
    """Returns whether the way from a over b to c turns left. Exact: the corner at its least
    position decides the direction of a ring, however flat."""
    (ax, ay), (bx, by), (cx, cy) = a, b, c
    left, right = (bx - ax) * (cy - by), (by - ay) * (cx - bx)
    if abs(left - right) > 1e-15 * (abs(left) + abs(right)) + 1e-300:  # above the rounding
        return left > right
    exact = [(Fraction(lon), Fraction(lat)) for lon, lat in (a, b, c)]
    (along, up), (on, over) = ((q[0] - p[0], q[1] - p[1]) for p, q in pairwise(exact))
    return along * over > up * on


def _order_ring(ring: Ring) -> tuple[int, list[Position]]:
    """Returns what GEOS orders rings by, which it has the other way around."""
    return len(ring), list(reversed(ring))
