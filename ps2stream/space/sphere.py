"""Predicates of one position on the sphere, in degrees (semantics.md 2).

Plain Python, which space_kernels.py compiles as it is for the hot path.
"""

from __future__ import annotations

import math

EARTH_KM = 6371.0088  # mean radius, IUGG
KM_PER_DEGREE = EARTH_KM * math.pi / 180.0


def in_rect(
    lon_min: float, lat_min: float, lon_max: float, lat_max: float, lon: float, lat: float
) -> bool:
    """Returns whether a rectangle holds a point. It is closed on all sides; lon_min > lon_max
    crosses the antimeridian."""
    if not lat_min <= lat <= lat_max:
        return False
    if abs(lat) == 90.0:
        return True
    wraps = lon_min > lon_max
    if abs(lon) == 180.0:
        return wraps or lon_min == -180.0 or lon_max == 180.0
    if wraps:
        return lon >= lon_min or lon <= lon_max
    return lon_min <= lon <= lon_max


def haversine_km(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Returns the great-circle distance on a sphere of 6371.0088 km."""
    east = abs(lon1 - lon2)
    east = min(east, 360.0 - east)
    if abs(lat1) == 90.0 or abs(lat2) == 90.0:
        east = 0.0
    a = math.sin(math.radians(lat2 - lat1) / 2.0)
    b = math.sin(math.radians(east) / 2.0)
    h = a * a + math.cos(math.radians(lat1)) * math.cos(math.radians(lat2)) * b * b
    return 2.0 * EARTH_KM * math.asin(min(1.0, math.sqrt(h)))
