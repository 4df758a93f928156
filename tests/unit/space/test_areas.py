"""What an insert says of an area: sizes, the nearest place, and warnings that are seldom wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
import shapely

from ps2stream.space.areas import area_of, find_warnings, summarize_area
from ps2stream.space.places import load_places
from ps2stream.space.regions import Circle, Polygon, Rect, Region, World
from tests import naive

PLACES = load_places()
ALPS = Rect(5, 45, 16, 48)


def sampled_area(region: Region) -> float:
    """Square kilometres by counting the points of an even grid on the sphere that it holds."""
    lat = np.degrees(np.arcsin((np.arange(150) + 0.5) / 75 - 1))
    lon = (np.arange(240) + 0.5) * 1.5 - 180
    held = sum(region.contains(x, y) for y in lat.tolist() for x in lon.tolist())
    return 4 * math.pi * naive.EARTH_KM**2 * held / (len(lat) * len(lon))


@pytest.mark.parametrize(
    "region",
    [
        Rect(-40, -30, 70, 65),
        Rect(150, -20, -120, 10),
        Circle(20, 70, 4000),
        Polygon(shapely.Polygon([(-60, -40), (80, -10), (30, 70), (-90, 50)])),
        Polygon(
            shapely.MultiPolygon(
                [
                    shapely.Polygon(
                        shapely.box(0, 0, 60, 60).exterior, [shapely.box(10, 10, 50, 50).exterior]
                    ),
                    shapely.box(-100, -80, -20, -10),
                ]
            )
        ),
    ],
    ids=["rect", "antimeridian", "circle", "polygon", "hole and parts"],
)
def test_area_is_what_a_grid_of_points_counts(region: Rect | Circle | Polygon) -> None:
    assert area_of(region) == pytest.approx(sampled_area(region), rel=0.02)


def test_a_rectangle_and_its_polygon_have_one_area() -> None:
    assert area_of(Polygon(shapely.box(5, 45, 16, 48))) == pytest.approx(area_of(ALPS), rel=1e-12)
    small = Rect(10, 50, 10.001, 50.001)
    assert area_of(small) == pytest.approx(0.111195**2 * math.cos(math.radians(50.0005)), rel=1e-4)


@pytest.mark.parametrize(
    ("lon", "lat"),
    [(-0.12, 51.5), (179.99, -16), (-140, -50), (0, 90), (0, -90), (45, 83), (10, 0)],
)
def test_the_nearest_place_is_that_of_all(lon: float, lat: float) -> None:
    km = [
        naive.great_circle_km(lon, lat, x, y)
        for x, y in zip(PLACES.lon.tolist(), PLACES.lat.tolist(), strict=True)
    ]
    found = PLACES.nearest(lon, lat)
    at = int(np.argmin(km))
    assert found.km == pytest.approx(km[at], abs=1e-6)
    assert found.name == PLACES.names()[at]


def test_a_summary_names_size_centre_and_place() -> None:
    area = summarize_area(Circle(-0.12, 51.5, 30), PLACES)
    assert area is not None
    assert area.area_km2 == pytest.approx(math.pi * 900, rel=1e-3)
    assert area.width_km == pytest.approx(60, rel=1e-3)
    assert area.height_km == pytest.approx(60, rel=1e-3)
    assert (area.nearest.name, area.nearest.country) == ("London", "GB")
    across = summarize_area(Rect(179, -18, -179, -16), PLACES)
    assert across is not None
    assert (across.lon, across.lat) == (180, -17)
    assert across.width_km == pytest.approx(2 * 111.195 * math.cos(math.radians(17)), rel=1e-3)
    assert summarize_area(World(), PLACES) is None
    for lat in (90, -90, 89.95):
        polar = summarize_area(Circle(0, lat, 10), PLACES)
        assert polar is not None
        assert (polar.width_km, polar.height_km) == (20, 20)


@pytest.mark.parametrize(
    ("region", "meant"),
    [
        (Rect(45, 5, 48, 16), "lon_min 5, lat_min 45, lon_max 16, lat_max 48"),
        (Rect(16, 45, 5, 48), "lon_min 5, lat_min 45, lon_max 16, lat_max 48"),
        (Rect(48, 5, 45, 16), "lon_min 5, lat_min 45, lon_max 16, lat_max 48"),
        (Circle(51.5, -0.12, 30), "lon -0.12, lat 51.5 (around London, GB)"),
        (Circle(40.7, -74, 30), "lon -74, lat 40.7"),
        (Polygon(shapely.box(45, 5, 48, 16)), "lon_min 5, lat_min 45, lon_max 16, lat_max 48"),
    ],
)
def test_an_area_that_cannot_be_meant_has_a_warning(region: Region, meant: str) -> None:
    (warning,) = find_warnings(region, PLACES)
    assert f"did you mean {meant}" in warning


@pytest.mark.parametrize(
    "region",
    [World(), ALPS, Rect(-180, -90, 180, 90), Rect(120, -50, -60, 60), Rect(179, -20, -179, -10),
     Circle(-0.12, 51.5, 30), Circle(0, 0, 20_000), Polygon(shapely.box(-10, 35, 30, 60)),
     Circle(0, -90, 5_000)],
)  # fmt: skip
def test_an_area_that_is_meant_has_none(region: Region) -> None:
    assert find_warnings(region, PLACES) == []


def test_few_false_alarms_and_most_swapped_areas_are_found() -> None:
    """Areas of all sizes around cities, more where more people live, and the same transposed."""
    random = np.random.default_rng(1)
    weight = np.sqrt(PLACES.population + 1)
    alarms = found = areas = 0
    for city in random.choice(len(PLACES), 2000, p=weight / weight.sum()).tolist():
        high, wide = 10 ** random.uniform(-1.3, 1.3), 10 ** random.uniform(-1.3, 1.3)
        lon, lat = PLACES.lon[city], PLACES.lat[city]
        west, south, east, north = lon - wide / 2, lat - high / 2, lon + wide / 2, lat + high / 2
        if max(abs(west), abs(east), abs(south), abs(north)) > 90:
            continue  # refused when it is transposed
        areas += 1
        alarms += bool(find_warnings(Rect(west, south, east, north), PLACES))
        found += bool(find_warnings(Rect(south, west, north, east), PLACES))
    assert areas > 1000
    assert alarms / areas < 0.01
    assert found / areas > 0.8
