"""Regions from their JSON form, which `Region.to_json` writes and GetQuery shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ps2stream.errors import InvalidArgument, Violation, short
from ps2stream.space.regions import RECT_FIELDS, Circle, Polygon, Rect, Region, World
from ps2stream.space.rings import GEOJSON, is_number, read_geojson, region_error, to_float

_FIELDS = {"Rect": RECT_FIELDS, "Circle": ("lon", "lat", "radius_km")}


def from_json(value: object, *, stored: bool = False) -> Region:
    """Reads a region from None (World), a Rect, a Circle or a GeoJSON Polygon or MultiPolygon.

    An edge of more than 180 and less than 360 degrees of longitude is refused, unless `stored`:
    stored queries may be older than the rule, and the service has checked the rest. Raises
    InvalidArgument with paths below `region`.
    """
    if value is None:
        return World()
    if not isinstance(value, Mapping):
        raise region_error("region", f"expected an object, got {type(value).__name__}")
    kind = value.get("type")
    if kind == "Rect":
        return Rect(*_read_numbers(value, _FIELDS["Rect"]))
    if kind == "Circle":
        return Circle(*_read_numbers(value, _FIELDS["Circle"]))
    if kind in GEOJSON:
        return Polygon.from_normal_form(*read_geojson(value, stored)) if stored else Polygon(value)
    known = "Rect, Circle, Polygon or MultiPolygon"
    raise region_error("region.type", f"expected {known}, got {short(kind)}")


def region_of(where: str, value: Any) -> Region:
    """Reads the region of a line of a query file: a form that `from_json` reads, {"rect": [...]}
    or {"circle": [...]}. Raises InvalidArgument that names the line."""
    try:
        if isinstance(value, dict) and "type" not in value and len(value) == 1:
            ((key, numbers),) = value.items()
            sizes = {"rect": 4, "circle": 3}
            if key in sizes and isinstance(numbers, list) and len(numbers) == sizes[key]:
                if not all(type(n) in (int, float) for n in numbers):
                    raise region_error(f"region.{key}", f"expected numbers, got {short(numbers)}")
                return Rect(*numbers) if key == "rect" else Circle(*numbers)
        return from_json(value)
    except InvalidArgument as error:
        raise InvalidArgument(
            [Violation(f"{where} {v.field}", v.description) for v in error.violations]
        ) from None
    except OverflowError:
        raise region_error(f"{where} region", "a number is too large") from None


def _read_numbers(value: Mapping[str, Any], names: tuple[str, ...]) -> list[float]:
    problems = [
        Violation(f"region.{name}", "is missing" if name not in value else "is not a number")
        for name in names
        if not is_number(value.get(name))
    ]
    problems += [
        Violation(f"region.{name}", f"is not a field of a {value['type']}")
        for name in value
        if name not in names and name != "type"
    ]
    if problems:
        raise InvalidArgument(problems)
    return [to_float(value[name]) for name in names]
