"""What a person should know of the area of a query: how large it is, what is near, and whether
its coordinates look as if they were given in another order.

Nothing here is refused; it is what an insert answers with.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import shapely

from ps2stream.limits import LAT_MAX, LON_MAX
from ps2stream.space.places import NearestPlace, Places
from ps2stream.space.polygons import Geometry, planar_edges
from ps2stream.space.regions import KM_PER_DEGREE, Circle, Polygon, Rect, Region, World
from ps2stream.space.space_kernels import EARTH_KM

MORE_PLACES = 10.0
"""An area looks transposed where the other order of its coordinates holds so many times the
places. Of areas drawn around cities 0.3 % have such a twin by chance; of those given latitude
first 83 % of the ones that are not refused are found (tests/unit/space/test_areas.py)."""
WIDE = 270.0
"""Degrees of longitude. A rectangle across the antimeridian that is wider leaves out less than
a quarter of the globe: more likely its west and east were exchanged."""


class AreaSummary(NamedTuple):
    """Square kilometres on the sphere; kilometres from west to east, along the middle latitude,
    and from south to north, for a circle its diameter; the centre in degrees; what is nearest to
    it."""

    area_km2: float
    width_km: float
    height_km: float
    lon: float
    lat: float
    nearest: NearestPlace


def summarize_area(region: Region, places: Places) -> AreaSummary | None:
    """None for the whole world. Some 0.2 ms for shapes of few corners."""
    if isinstance(region, World):
        return None
    west, south, east, north = _bounds(region)
    lon, lat = _center(region)
    wide = (east - west) * KM_PER_DEGREE * math.cos(math.radians((south + north) / 2))
    high = (north - south) * KM_PER_DEGREE
    if isinstance(region, Circle):  # its box says nothing of its size near a pole
        wide = high = 2.0 * region.radius_km
    return AreaSummary(area_of(region), wide, high, lon, lat, places.nearest(lon, lat))


def find_warnings(region: Region, places: Places) -> list[str]:
    """What looks like a mistake, each with what may have been meant; at most one today."""
    twins = [twin for twin in (_transposed(region),) if twin is not None]
    if isinstance(region, Rect) and region.lon_min > region.lon_max:
        wide = region.lon_max + 360.0 - region.lon_min
        if wide > WIDE:
            twins.append(Rect(region.lon_max, region.lat_min, region.lon_min, region.lat_max))
            meant = max(twins, key=lambda twin: places.weight_within(twin.boxes()))
            why = f"lon_min {region.lon_min:g} is above lon_max {region.lon_max:g}"
            said = f"the rectangle is {wide:g} degrees wide, across the antimeridian, since {why}"
            return [f"{said}; did you mean {_worded(meant, places)}?"]
    for twin in twins:
        there = places.weight_within(twin.boxes())
        if there > 0 and there >= MORE_PLACES * places.weight_within(region.boxes()):
            said = "longitude and latitude look swapped: few people live in this area"
            return [f"{said}; did you mean {_worded(twin, places)}?"]
    return []


def area_of(region: Rect | Circle | Polygon) -> float:
    """Square kilometres on the sphere of 6371.0088 km."""
    match region:
        case Rect():
            west, south, east, north = _bounds(region)
            band = math.sin(math.radians(north)) - math.sin(math.radians(south))
            return EARTH_KM**2 * math.radians(east - west) * band
        case Circle(_, _, km):
            return 4.0 * math.pi * (EARTH_KM * math.sin(km / EARTH_KM / 2.0)) ** 2
        case Polygon(geometry):
            return _polygon_area(geometry)


def _polygon_area(geometry: Geometry) -> float:
    """By Green's theorem: the sum over edges of the integral of sin(latitude) along longitude;
    shells run counter-clockwise and holes clockwise (polygons.normal_form)."""
    edges = np.radians(planar_edges(geometry))
    along, up = edges[:, 2] - edges[:, 0], edges[:, 3] - edges[:, 1]
    middle = (edges[:, 1] + edges[:, 3]) / 2.0
    return EARTH_KM**2 * -float((along * np.sin(middle) * np.sinc(up / (2.0 * np.pi))).sum())


def _bounds(region: Rect | Circle | Polygon) -> tuple[float, float, float, float]:
    """West, south, east, north; east is above 180 for what crosses the antimeridian."""
    match region:
        case Rect(west, south, east, north):
            return west, south, east + 360.0 * (west > east), north
        case Polygon(geometry):
            west, south, east, north = geometry.bounds
            return west, south, east, north
    boxes = region.boxes()
    west, south, east, north = boxes[0].tolist()
    return west, south, east if len(boxes) == 1 else float(boxes[1, 2]) + 360.0, north


def _center(region: Rect | Circle | Polygon) -> tuple[float, float]:
    match region:
        case Circle(lon, lat, _):
            return lon, lat
        case Polygon(geometry):
            largest = max(shapely.get_parts(geometry), key=lambda part: part.area)
            return float(largest.centroid.x), float(largest.centroid.y)
    west, south, east, north = _bounds(region)
    lon = (west + east) / 2
    return lon - 360.0 * (lon > LON_MAX), (south + north) / 2


def _transposed(region: Region) -> Rect | Circle | None:
    """The area that the same numbers give with latitude and longitude exchanged, a polygon's by
    its bounding box; None where that is none."""
    match region:
        case Rect(west, south, east, north):
            if max(abs(west), abs(east)) <= LAT_MAX:
                return Rect(south, min(west, east), north, max(west, east))
        case Circle(lon, lat, km):
            holds_pole = (LAT_MAX - abs(lat)) * KM_PER_DEGREE <= km
            if abs(lon) <= LAT_MAX and not holds_pole:  # few people live there, and it is meant
                return Circle(lat, lon, km)
        case Polygon(geometry):
            west, south, east, north = geometry.bounds
            if max(abs(west), abs(east)) <= LAT_MAX:
                return Rect(south, west, north, east)
    return None


def _worded(region: Rect | Circle, places: Places) -> str:
    """A region by the names of its fields, and what is near."""
    lon, lat = _center(region)
    near = places.nearest(lon, lat)
    match region:
        case Circle():
            text = f"lon {lon:g}, lat {lat:g}"
        case Rect(west, south, east, north):
            text = f"lon_min {west:g}, lat_min {south:g}, lon_max {east:g}, lat_max {north:g}"
    return f"{text} (around {near.name}, {near.country})"
