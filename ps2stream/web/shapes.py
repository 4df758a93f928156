"""Queries and plans as GeoJSON."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import shapely
import shapely.geometry

from ps2stream.client.requests import Query
from ps2stream.errors import invalid
from ps2stream.protocol.frame import U32
from ps2stream.routing.leaves import Space, holders, leaf_from_dict
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Circle, Polygon, Rect, Region
from ps2stream.space.rings import find_ambiguous_edge

CORNERS = 48
EARTH_KM = 6371.0088
_NEARLY = math.radians(90 - 1e-6)
"""Largest latitude of a centre, in radians: at a pole itself there are no bearings."""
MAX_BOXES = 4000
"""Boxes of a plan's picture; a finer plan is drawn coarser."""
Feature = dict[str, Any]


def query_feature(query: Query, own: bool) -> Feature:
    """Returns a query as a feature with its region; no geometry where that is the world."""
    properties = {"id": query.id, "expression": query.expression, "session": query.session}
    return {
        "type": "Feature",
        "properties": properties | {"own": own},
        "geometry": _draw_region(query.region),
    }


def on_globe(region: Any) -> Any:
    """Returns a region as it lies on the globe. A polygon in GeoJSON whose longitudes go on beyond
    180 degrees is cut at the antimeridian, as RFC 7946 wants it, and edges of more than 180
    degrees get corners, so that they go as they are drawn; all else stays as it is. Raises
    InvalidArgument for a polygon that cannot be cut."""
    if not isinstance(region, dict) or region.get("type") != "Polygon":
        return region
    try:
        rings = [np.array(ring, np.float64) for ring in region["coordinates"]]
        east = max(float(ring[:, 0].max()) for ring in rings)
        west = min(float(ring[:, 0].min()) for ring in rings)
        high = max(float(np.abs(ring[:, 1]).max()) for ring in rings)
        shape = shapely.Polygon(rings[0], rings[1:])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        return region  # the service says what is wrong
    if high > 90:
        return region  # so it does here; corners every 180 degrees might be endless
    beyond = west >= -180 and 180 < east <= west + 360
    long = any(find_ambiguous_edge(ring[:, 0].tolist()) is not None for ring in rings)
    if not beyond and (not long or west < -180 or east > 180):
        return region
    if not shape.is_valid:
        problem = f"is not valid: {shapely.is_valid_reason(shape)}"
        raise invalid("region.coordinates", problem)
    shape = shapely.segmentize(shape, 180)
    halves = []
    for turn in (0, 360):
        part = shape.intersection(shapely.box(turn - 180, -90, turn + 180, 90))
        halves.append(shapely.set_coordinates(part, shapely.get_coordinates(part) - [turn, 0]))
    parts = [p for half in halves for p in shapely.get_parts(half) if p.geom_type == "Polygon"]
    cut: dict[str, Any] = shapely.geometry.mapping(shapely.MultiPolygon(parts))
    return cut


def _draw_region(region: Region | None) -> dict[str, Any] | None:
    match region:
        case Rect():
            east = region.lon_max + 360 * (region.lon_min > region.lon_max)
            return _draw_box(region.lon_min, region.lat_min, east, region.lat_max)
        case Circle():
            return {"type": "Polygon", "coordinates": _draw_circle(region)}
        case Polygon():
            found: dict[str, Any] = region.to_json()
            return found
    return None


def _draw_box(west: float, south: float, east: float, north: float) -> dict[str, Any]:
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return {"type": "Polygon", "coordinates": [ring]}


def _draw_circle(circle: Circle) -> list[list[list[float]]]:
    """Returns rings around what is within the radius; longitudes go on beyond 180 degrees."""
    lat, reach = math.radians(circle.lat), circle.radius_km / EARTH_KM
    north, south = reach >= math.pi / 2 - lat, reach >= math.pi / 2 + lat
    if north and south:  # all but a circle around the other side of the earth
        (world,) = _draw_box(circle.lon, -90, circle.lon + 360, 90)["coordinates"]
        return [world, _draw_ring(circle.lon + 180, -lat, math.pi - reach, 0.0)]
    if not (north or south):
        return [_draw_ring(circle.lon, lat, reach, 0.0)]
    ring = _draw_ring(circle.lon, lat, reach, 0.0 if north else math.pi)
    pole = 90.0 if north else -90.0
    return [[*ring, [ring[-1][0], pole], [ring[0][0], pole], ring[0]]]


def _draw_ring(lon: float, lat: float, reach: float, first: float) -> list[list[float]]:
    """Returns points at the distance `reach` (radians, as `lat`) from a centre, from the bearing
    `first` on."""
    lat = max(-_NEARLY, min(_NEARLY, lat))
    bearing = first + np.linspace(0, 2 * np.pi, CORNERS + 1)
    sine = np.sin(lat) * np.cos(reach) + np.cos(lat) * np.sin(reach) * np.cos(bearing)
    east = np.arctan2(
        np.sin(bearing) * np.sin(reach) * np.cos(lat), np.cos(reach) - np.sin(lat) * sine
    )
    north = np.degrees(np.arcsin(np.clip(sine, -1, 1)))
    east = np.degrees(np.unwrap(east))
    east -= 360 * np.round(east.mean() / 360)
    points: list[list[float]] = np.c_[lon + east, north].tolist()
    return points


def plan_picture(raw: bytes) -> dict[str, Any]:
    """Returns the plan in JSON as {version, workers, leaves}: a FeatureCollection of boxes with
    the number of their leaf, the workers that hold it, and whether they divide it by text."""
    plan = json.loads(raw)
    leaves = tuple(map(leaf_from_dict, plan["leaves"]))
    held = holders(leaves)
    grid = Grid.from_dict(plan["grid"])
    runs = np.array(plan["cells"], np.int64).reshape(-1, 2)
    cells = np.repeat(runs[:, 1], runs[:, 0]).astype(np.uint32).reshape(grid.rows(), -1)
    features = [
        {
            "type": "Feature",
            "properties": {
                "leaf": leaf,
                "workers": list(held[leaf]),
                "worker": held[leaf][0] if held[leaf] else 0,
                "text": not isinstance(leaves[leaf], Space),
            },
            "geometry": _draw_box(west, south, east, north),
        }
        for leaf, west, south, east, north in _cover_cells(grid, cells)
    ]
    picture = {"type": "FeatureCollection", "features": features}
    return {"version": plan["version"], "workers": plan["workers"], "leaves": picture}


def _cover_cells(grid: Grid, cells: U32) -> list[tuple[int, float, float, float, float]]:
    """Returns leaf and sides in degrees of boxes that cover the cells, row 0 in the south."""
    while len(found := _merge_cells(cells)) > MAX_BOXES:
        cells = cells[::2, ::2]
    rows, columns = cells.shape
    lon = grid.find_meridians(np.arange(columns + 1) * (grid.columns() // columns)).tolist()
    lat = grid.find_parallels(np.arange(rows + 1) * (grid.rows() // rows)).tolist()
    return [
        (leaf, lon[left], lat[bottom], lon[right], lat[top])
        for leaf, left, bottom, right, top in found
    ]


def _merge_cells(cells: U32) -> list[tuple[int, int, int, int, int]]:
    """Merges equal neighbours in a row, and equal runs above each other, into boxes."""
    changed = np.r_[True, (cells[1:] != cells[:-1]).any(axis=1)]
    bands = np.flatnonzero(changed)
    tops = np.r_[bands[1:], len(cells)]
    done: list[tuple[int, int, int, int, int]] = []
    begun: dict[tuple[int, int, int], int] = {}  # leaf, left, right: bottom
    for bottom, top in zip(bands.tolist(), tops.tolist(), strict=True):
        row = cells[bottom]
        left = np.r_[0, np.flatnonzero(row[1:] != row[:-1]) + 1]
        right = np.r_[left[1:], len(row)]
        here = set(zip(row[left].tolist(), left.tolist(), right.tolist(), strict=True))
        ended = [key for key in begun if key not in here]
        done += [(leaf, a, begun.pop((leaf, a, b)), b, bottom) for leaf, a, b in ended]
        for key in here:
            begun.setdefault(key, bottom)
        if top == len(cells):
            done += [(leaf, a, first, b, top) for (leaf, a, b), first in begun.items()]
    return done
