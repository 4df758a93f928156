"""Facts about the area of a query that help its author: how large it is, which city is near, and
whether its coordinates look as if they were written in another order.

Nothing is refused here. The answer to an insert carries the result.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import shapely

from ps2stream.limits import LAT_MAX, LON_MAX
from ps2stream.space.places import NearestPlace, PlaceTable
from ps2stream.space.polygons import Geometry, planar_edges
from ps2stream.space.region_rows import boxes_of
from ps2stream.space.regions import Circle, Polygon, Rect, Region, World
from ps2stream.space.sphere import EARTH_KM, KM_PER_DEGREE

MORE_PLACES = 10.0
"""An area looks transposed if the same coordinates in the other order cover at least this many
times the weight of places. Of areas drawn around cities, 0.3 % have such a twin by chance; of
areas written latitude first that are not refused, 83 % are found
(tests/unit/space/test_areas.py)."""
WIDE = 270.0
"""Degrees of longitude. A wider rectangle across the antimeridian leaves out less than a quarter
of the globe: its west and east were more likely exchanged."""


class AreaSummary(NamedTuple):
    """The size and position of an area.

    area_km2 is measured on the sphere. width_km runs from west to east along the middle latitude,
    height_km from south to north; both are the diameter of a circle. lon and lat are the centre
    in degrees, and nearest is the city nearest to it."""

    area_km2: float
    width_km: float
    height_km: float
    lon: float
    lat: float
    nearest: NearestPlace


def summarize_area(region: Region, places: PlaceTable) -> AreaSummary | None:
    """Returns size, centre and nearest city of a region; None for the whole world. Takes about
    0.2 ms for shapes of few corners."""
    if isinstance(region, World):
        return None
    west, south, east, north = _find_bounds(region)
    lon, lat = _find_center(region)
    wide = (east - west) * KM_PER_DEGREE * math.cos(math.radians((south + north) / 2))
    high = (north - south) * KM_PER_DEGREE
    if isinstance(region, Circle):  # near a pole its box says nothing about its size
        wide = high = 2.0 * region.radius_km
    return AreaSummary(area_of(region), wide, high, lon, lat, places.nearest(lon, lat))


def find_warnings(region: Region, places: PlaceTable) -> list[str]:
    """Returns warnings about likely mistakes, each with what may have been meant; at most one
    today."""
    twins = [twin for twin in (_transpose_region(region),) if twin is not None]
    if isinstance(region, Rect) and region.lon_min > region.lon_max:
        wide = region.lon_max + 360.0 - region.lon_min
        if wide > WIDE:
            twins.append(Rect(region.lon_max, region.lat_min, region.lon_min, region.lat_max))
            meant = max(twins, key=lambda twin: places.weight_within(boxes_of(twin)))
            why = f"lon_min {region.lon_min:g} is above lon_max {region.lon_max:g}"
            text = (
                f"the rectangle is {wide:g} degrees wide and crosses the antimeridian, because "
                f"{why}"
            )
            return [f"{text}; did you mean {_describe_region(meant, places)}?"]
    for twin in twins:
        there = places.weight_within(boxes_of(twin))
        if there > 0 and there >= MORE_PLACES * places.weight_within(boxes_of(region)):
            text = "longitude and latitude look swapped: few people live in this area"
            return [f"{text}; did you mean {_describe_region(twin, places)}?"]
    return []


def area_of(region: Rect | Circle | Polygon) -> float:
    """Returns the square kilometres of a region on the sphere of 6371.0088 km."""
    match region:
        case Rect():
            west, south, east, north = _find_bounds(region)
            band = math.sin(math.radians(north)) - math.sin(math.radians(south))
            return EARTH_KM**2 * math.radians(east - west) * band
        case Circle(_, _, km):
            return 4.0 * math.pi * (EARTH_KM * math.sin(km / EARTH_KM / 2.0)) ** 2
        case Polygon(geometry):
            return _polygon_area(geometry)


def _polygon_area(geometry: Geometry) -> float:
    """Returns the area of a polygon by Green's theorem: the sum over edges of the integral of
    sin(latitude) along longitude. Shells run counter-clockwise and holes clockwise
    (polygons.normal_form)."""
    edges = np.radians(planar_edges(geometry))
    along, up = edges[:, 2] - edges[:, 0], edges[:, 3] - edges[:, 1]
    middle = (edges[:, 1] + edges[:, 3]) / 2.0
    return EARTH_KM**2 * -float((along * np.sin(middle) * np.sinc(up / (2.0 * np.pi))).sum())


def _find_bounds(region: Rect | Circle | Polygon) -> tuple[float, float, float, float]:
    """Returns west, south, east, north; east is above 180 if the region crosses the
    antimeridian."""
    match region:
        case Rect(west, south, east, north):
            return west, south, east + 360.0 * (west > east), north
        case Polygon():
            return region.bounds
    boxes = boxes_of(region)
    west, south, east, north = boxes[0].tolist()
    return west, south, east if len(boxes) == 1 else float(boxes[1, 2]) + 360.0, north


def _find_center(region: Rect | Circle | Polygon) -> tuple[float, float]:
    match region:
        case Circle(lon, lat, _):
            return lon, lat
        case Polygon(geometry):
            largest = max(shapely.get_parts(geometry), key=lambda part: part.area)
            return float(largest.centroid.x), float(largest.centroid.y)
    west, south, east, north = _find_bounds(region)
    lon = (west + east) / 2
    return lon - 360.0 * (lon > LON_MAX), (south + north) / 2


def _transpose_region(region: Region) -> Rect | Circle | None:
    """Returns the area that the same numbers give with latitude and longitude exchanged, of a
    polygon that of its bounding box; None if the exchanged numbers are no valid area."""
    match region:
        case Rect(west, south, east, north):
            if max(abs(west), abs(east)) <= LAT_MAX:
                return Rect(south, min(west, east), north, max(west, east))
        case Circle(lon, lat, km):
            holds_pole = (LAT_MAX - abs(lat)) * KM_PER_DEGREE <= km
            if abs(lon) <= LAT_MAX and not holds_pole:  # an area around a pole is sparse on purpose
                return Circle(lat, lon, km)
        case Polygon():
            west, south, east, north = region.bounds
            if max(abs(west), abs(east)) <= LAT_MAX:
                return Rect(south, west, north, east)
    return None


def _describe_region(region: Rect | Circle, places: PlaceTable) -> str:
    """Describes a region by the names and values of its fields and the city that is near."""
    lon, lat = _find_center(region)
    near = places.nearest(lon, lat)
    match region:
        case Circle():
            text = f"lon {lon:g}, lat {lat:g}"
        case Rect(west, south, east, north):
            text = f"lon_min {west:g}, lat_min {south:g}, lon_max {east:g}, lat_max {north:g}"
    return f"{text} (around {near.name}, {near.country})"
