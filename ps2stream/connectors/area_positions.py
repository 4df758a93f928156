"""Areas as positions: so many, and so placed, that no wide enough query that touches the area
misses all of them.

An object has one position and a query a region. So an area becomes several objects, at points of a
grid that spans the globe: rows of latitude, and in each row positions of equal distance. REACH is
the most that any point of the globe is away from one of them, as a share of the spacing. Those are
taken that lie within MARGIN of the area (a little beyond in the corners). Why these are enough: let
a query hold a disc of radius REACH that has a point of the area within REACH * sqrt(2) of its
centre, as every circle of that radius that touches the area does, and a rectangle of twice that
width, even if it touches the area with a corner only. The grid has a point within REACH of the
centre of the disc, so within the query; and that point is within REACH * (1 + sqrt(2)) of the area.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from ps2stream.errors import short
from ps2stream.space.sphere import EARTH_KM, KM_PER_DEGREE

REACH = 0.4
MARGIN = 0.98
"""Shares of the spacing; MARGIN is at least REACH * (1 + sqrt(2))."""
ROW = 1.3
"""Distance of rows, as a multiple of the reach; along a row it is 1.4, together less than 2 as the
diagonal of a rectangle. Near the poles, where rows bend, it is 0.6."""
BENT = 80.0
VERTICES = 100_000
DEPTH = 8
CIRCLE_CORNERS = 64

F64 = NDArray[np.float64]


class AreaCircle(NamedTuple):
    """A circle, in degrees and kilometres."""

    lon: float
    lat: float
    radius_km: float


class AreaShape(NamedTuple):
    """An area: shapes in degrees, whose longitudes may go beyond 180 where an edge crosses the
    antimeridian, and circles."""

    geometry: Any
    circles: tuple[AreaCircle, ...] = ()


class AreaPositions(NamedTuple):
    """Positions of an area. spacing_km: 0 if the area is points, so that each is exact; more than
    requested if the area is too large for its bound. names: of the points of the grid, the same
    for each area."""

    lon: F64
    lat: F64
    inside: list[bool]
    names: list[str]
    spacing_km: float


def place_area(area: AreaShape, spacing_km: float, most: int) -> AreaPositions:
    """Returns at most `most` positions of an area, with the spacing doubled until that holds.
    Raises ValueError for an area of more points than that."""
    points = _list_points(area)
    if points is not None:
        if len(points) > most:
            raise ValueError(f"has {len(points)} points, more than the limit --most-objects {most}")
        names = [str(i) for i in range(len(points))]
        return AreaPositions(points[:, 0], points[:, 1], [True] * len(points), names, 0.0)
    if area.geometry is not None:
        shapely.prepare(area.geometry)
    while True:
        rows = _find_rows(area, spacing_km)
        if _bound_count(rows, area, spacing_km) <= 64 * most + 4096:
            found = _place_rows(area, spacing_km, rows)
            if len(found.lon) <= most or spacing_km > 2 * EARTH_KM:
                return found
        spacing_km *= 2


def _list_points(area: AreaShape) -> F64 | None:
    if area.circles or area.geometry is None:
        return None
    if set(shapely.get_type_id(shapely.get_parts(area.geometry)).tolist()) != {0}:
        return None
    return np.asarray(shapely.get_coordinates(area.geometry), np.float64)


def _find_rows(area: AreaShape, spacing_km: float) -> F64:
    """Returns the numbers of the rows that may have a point near the area."""
    south, north = _find_latitudes(area)
    step = REACH * ROW * spacing_km / KM_PER_DEGREE
    margin = MARGIN * spacing_km / KM_PER_DEGREE
    last = math.ceil(90.0 / step)
    first = max(-last, math.floor((south - margin) / step))
    return np.arange(first, min(last, math.ceil((north + margin) / step)) + 1, dtype=np.float64)


def _find_latitudes(area: AreaShape) -> tuple[float, float]:
    south, north = 90.0, -90.0
    if area.geometry is not None:
        _, south, _, north = shapely.bounds(area.geometry).tolist()
    for circle in area.circles:
        high = circle.radius_km / KM_PER_DEGREE
        south, north = min(south, circle.lat - high), max(north, circle.lat + high)
    return max(south, -90.0), min(north, 90.0)


def _bound_count(rows: F64, area: AreaShape, spacing_km: float) -> float:
    """Returns about how many points the rows have between the sides of the area."""
    west, east = _find_sides(area)
    step = REACH * ROW * spacing_km / KM_PER_DEGREE
    lat = np.clip(rows * step, -90.0, 90.0)
    share = REACH * np.where(np.abs(lat) > BENT, 0.6, 1.4) * spacing_km
    around = 360.0 * KM_PER_DEGREE * np.cos(np.radians(lat)) / share
    margin = 2.0 * MARGIN * spacing_km / share
    return float(np.sum(around * min(1.0, (east - west) / 360.0) + margin + 2.0))


def _find_sides(area: AreaShape) -> tuple[float, float]:
    """Returns degrees of longitude between which the area lies; they may go beyond 180."""
    west, east = math.inf, -math.inf
    if area.geometry is not None:
        west, _, east, _ = shapely.bounds(area.geometry).tolist()
    for circle in area.circles:
        half = _reach_longitude(circle.radius_km, circle.lat)
        west, east = min(west, circle.lon - half), max(east, circle.lon + half)
    return (-180.0, 180.0) if east - west >= 360.0 else (west, east)


def _place_rows(area: AreaShape, spacing_km: float, rows: F64) -> AreaPositions:
    lons, lats, names = [], [], list[str]()
    step = REACH * ROW * spacing_km / KM_PER_DEGREE
    for row in rows.tolist():
        lat = max(-90.0, min(90.0, row * step))
        lon, at = _take_row(area, lat, spacing_km)
        if not len(lon):
            continue
        lons.append(lon)
        lats.append(np.full(len(lon), lat))
        names += [f"{row:.0f}.{i}" for i in at]
    empty = np.zeros(0)
    lon, lat_all = (np.concatenate(found) if found else empty for found in (lons, lats))
    return AreaPositions(lon, lat_all, find_inside(area, lon, lat_all), names, spacing_km)


def _take_row(area: AreaShape, lat: float, spacing_km: float) -> tuple[F64, list[int]]:
    """Returns the positions of a row that lie near the area, and their numbers in the row."""
    cosine = math.cos(math.radians(lat))
    bend = 0.6 if abs(lat) > BENT else 1.4
    count = max(1, math.ceil(360.0 * KM_PER_DEGREE * cosine / (REACH * bend * spacing_km)))
    margin = MARGIN * spacing_km
    half_lat = margin / KM_PER_DEGREE
    half_lon = _reach_longitude(margin, lat)
    numbers = _number_candidates(area, count, half_lon)
    lon = -180.0 + 360.0 / count * numbers
    near = np.zeros(len(lon), np.bool_)
    lats = np.full_like(lon, lat)
    for circle in area.circles:
        near |= _distances_km(lon, lats, circle) <= circle.radius_km + margin
    if area.geometry is not None:
        for shift in (-360.0, 0.0, 360.0):
            sides = lon + shift - half_lon, lats - half_lat, lon + shift + half_lon
            boxes = shapely.box(*sides, lats + half_lat)
            near |= shapely.intersects(area.geometry, boxes)
    return lon[near], numbers[near].astype(np.int64).tolist()


def _number_candidates(area: AreaShape, count: int, half_lon: float) -> F64:
    """Returns the numbers of a row's positions between the sides of the area, each once."""
    width = 360.0 / count
    if half_lon >= 180.0:
        return np.arange(count, dtype=np.float64)
    west, east = _find_sides(area)
    first = math.floor((west - half_lon + 180.0) / width)
    last = math.ceil((east + half_lon + 180.0) / width)
    if last - first + 1 >= count:
        return np.arange(count, dtype=np.float64)
    return np.unique(np.arange(first, last + 1) % count).astype(np.float64)


def _reach_longitude(km: float, lat: float) -> float:
    """Returns the degrees of longitude within `km` of a point; 180 if a pole is."""
    angle = km / EARTH_KM
    if angle >= math.pi / 2 or abs(lat) + math.degrees(angle) >= 90.0:
        return 180.0
    return math.degrees(math.asin(math.sin(angle) / math.cos(math.radians(lat))))


def find_inside(area: AreaShape, lon: F64, lat: F64) -> list[bool]:
    """Returns of each position whether the area has it."""
    found = np.zeros(len(lon), np.bool_)
    for circle in area.circles:
        found |= _distances_km(lon, lat, circle) <= circle.radius_km
    if area.geometry is not None:
        for shift in (-360.0, 0.0, 360.0):
            found |= shapely.intersects(area.geometry, shapely.points(lon + shift, lat))
    return [bool(each) for each in found]


def _distances_km(lon: F64, lat: F64, circle: AreaCircle) -> F64:
    north = np.sin(np.radians(lat - circle.lat) / 2) ** 2
    east = np.sin(np.radians(lon - circle.lon) / 2) ** 2
    cosines = np.cos(np.radians(lat)) * math.cos(math.radians(circle.lat))
    root = np.sqrt(np.minimum(1.0, north + cosines * east))
    return np.asarray(2 * EARTH_KM * np.arcsin(root), np.float64)


# --- reading --------------------------------------------------------------------


def read_geometry_area(geometry: Any) -> AreaShape:
    """Returns the area of a geometry of GeoJSON. Raises ValueError."""
    left = [VERTICES]
    found = list(_read_geometry(geometry, left, DEPTH))
    if not found:
        raise ValueError("geometry: has no positions")
    return AreaShape(join_shapes(found))


def join_shapes(shapes: list[Any]) -> Any:
    """Returns shapes as one geometry that is valid."""
    whole = shapely.geometrycollections(shapes) if len(shapes) > 1 else shapes[0]
    valid = [s if s.is_valid else shapely.make_valid(s) for s in shapely.get_parts(whole)]
    return shapely.geometrycollections(valid)


def make_polygon(rings: list[list[tuple[float, float]]]) -> Any:
    """Returns a polygon of rings, the first of which is its shell. Raises ValueError."""
    for ring in rings:
        if len(ring) < 4 or ring[0] != ring[-1]:
            raise ValueError("a polygon needs at least four positions, the last as the first")
    shell = _unwrap_line(rings[0])
    return shapely.Polygon(shell, [_unwrap_line(ring, shell[0][0]) for ring in rings[1:]])


def check_position(lon: Any, lat: Any) -> tuple[float, float]:
    """Returns a position. Raises ValueError unless both are degrees."""
    for value, limit in ((lon, 180), (lat, 90)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not -limit <= value <= limit:
            raise ValueError(f"expected degrees in [-{limit}, {limit}], got {short(value)}")
    return float(lon), float(lat)


def _read_geometry(value: Any, left: list[int], depth: int) -> Iterator[Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"geometry: expected an object, got {short(value)}")
    kind, at = value.get("type"), value.get("coordinates")
    if kind == "GeometryCollection":
        if depth <= 0:
            raise ValueError(f"geometry: has more than {DEPTH} nested collections")
        for one in _check_array(value.get("geometries")):
            yield from _read_geometry(one, left, depth - 1)
    elif kind == "Point":
        yield shapely.Point(_read_line([at], left)[0])
    elif kind == "MultiPoint":
        yield from map(shapely.Point, _read_line(at, left))
    elif kind == "LineString":
        yield _make_line(at, left)
    elif kind == "MultiLineString":
        yield from (_make_line(one, left) for one in _check_array(at))
    elif kind == "Polygon":
        yield _make_rings(at, left)
    elif kind == "MultiPolygon":
        yield from (_make_rings(one, left) for one in _check_array(at))
    else:
        raise ValueError(f"geometry: expected a geometry of GeoJSON, got the type {short(kind)}")


def _make_rings(value: Any, left: list[int]) -> Any:
    rings = [_read_line(ring, left) for ring in _check_array(value)]
    if not rings:
        raise ValueError("geometry: a polygon needs a ring")
    return make_polygon(rings)


def _make_line(value: Any, left: list[int]) -> Any:
    line = _read_line(value, left)
    if len(line) < 2:
        raise ValueError("geometry: a line needs at least two positions")
    return shapely.LineString(_unwrap_line(line))


def _read_line(value: Any, left: list[int]) -> list[tuple[float, float]]:
    positions = _check_array(value)
    left[0] -= len(positions)
    if left[0] < 0:
        raise ValueError(f"geometry: has more than {VERTICES} positions")
    found = []
    for one in positions:
        if not isinstance(one, list) or len(one) < 2:
            raise ValueError(f"geometry: expected [longitude, latitude], got {short(one)}")
        found.append(check_position(one[0], one[1]))
    return found


def _check_array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"geometry: expected an array, got {short(value)}")
    return value


def _unwrap_line(
    line: list[tuple[float, float]], near: float | None = None
) -> list[tuple[float, float]]:
    """Returns a line whose longitudes go on beyond 180 where one of its steps is longer than 180
    degrees, so that it goes the short way round."""
    shift, out = 0.0, []
    before = line[0][0] if near is None else near
    for lon, lat in line:
        if abs(lon + shift - before) > 180.0:
            shift += math.copysign(360.0, before - lon - shift)
        before = lon + shift
        out.append((before, lat))
    return out
