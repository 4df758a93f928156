"""Regions on the command line: --rect, --circle, --polygon."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ps2stream.errors import invalid
from ps2stream.space import geojson
from ps2stream.space.regions import Circle, Polygon, Rect, Region

if TYPE_CHECKING:
    from ps2stream.client.answers import InsertedQuery

F = TypeVar("F", bound=Callable[..., Any])


def region_options(command: F) -> F:
    """Adds the three options, of which one may be given."""
    for name, metavar, text in (
        ("--polygon", "FILE", "GeoJSON file with a Polygon or MultiPolygon."),
        ("--circle", "LON,LAT,KM", "Centre in degrees and radius in kilometres."),
        (
            "--rect",
            "LON_MIN,LAT_MIN,LON_MAX,LAT_MAX",
            "Rectangle in degrees; with LON_MIN > LON_MAX it crosses the antimeridian.",
        ),
    ):
        command = click.option(name, metavar=metavar, help=text)(command)
    return command


def parse_region(rect: str | None, circle: str | None, polygon: str | None) -> Region | None:
    """Returns the region of the one option given; None without any. Raises InvalidArgument."""
    given = [
        name
        for name, value in (("--rect", rect), ("--circle", circle), ("--polygon", polygon))
        if value is not None
    ]
    if len(given) > 1:
        raise invalid("region", f"{' and '.join(given)} cannot be combined; give one of them")
    if rect is not None:
        return Rect(*_parse_numbers("--rect", rect, 4))
    if circle is not None:
        return Circle(*_parse_numbers("--circle", circle, 3))
    return read_polygon(Path(polygon)) if polygon is not None else None


def format_region(region: Region | None) -> str:
    """Formats a region as the options write it."""
    match region:
        case Rect(west, south, east, north):
            return f"rect {west:g},{south:g},{east:g},{north:g}"
        case Circle(lon, lat, km):
            return f"circle {lon:g},{lat:g},{km:g}"
        case Polygon():
            return f"polygon within {','.join(f'{v:g}' for v in region.bounds)}"
    return "everywhere"


def interpretation_lines(inserted: InsertedQuery) -> list[str]:
    """Formats the service's interpretation of a query for people."""
    text = f"  text  {inserted.expression or 'any'}"
    if (area := inserted.area) is None:
        return [text, "  area  the whole world"]
    size = f"{_round_number(area['width_km'])} x {_round_number(area['height_km'])} km"
    north = f"{abs(area['lat']):.4g} {'S' if area['lat'] < 0 else 'N'}"
    east = f"{abs(area['lon']):.4g} {'W' if area['lon'] < 0 else 'E'}"
    near = f"{area['nearest_place']}, {area['nearest_country']}"
    place = f"around {north}, {east}; {_round_number(area['nearest_km'])} km from {near}"
    return [text, f"  area  {size}, {_round_number(area['area_km2'])} km2, {place}"]


def _round_number(value: float) -> str:
    """Formats a number with at least two significant digits and commas between thousands."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def read_polygon(path: Path) -> Region:
    """Reads a polygon from a GeoJSON file: a geometry, or a Feature or one-feature
    FeatureCollection around it. Raises InvalidArgument."""
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise invalid("--polygon", f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise invalid("--polygon", f"{path} is not JSON: {error}") from None
    if isinstance(value, dict) and value.get("type") == "FeatureCollection":
        features = value.get("features")
        if not isinstance(features, list) or len(features) != 1:
            raise invalid(
                "--polygon", f"{path}: expected a FeatureCollection with exactly one feature"
            )
        value = features[0]
    if isinstance(value, dict) and value.get("type") == "Feature":
        value = value.get("geometry")
    if not isinstance(value, dict) or value.get("type") not in ("Polygon", "MultiPolygon"):
        raise invalid("--polygon", f"{path}: expected a GeoJSON Polygon or MultiPolygon")
    return geojson.from_json(value)


def _parse_numbers(option: str, text: str, count: int) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != count:
        raise invalid(option, f"expected {count} numbers separated by commas, got {text!r}")
    return numbers
