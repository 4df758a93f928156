"""Areas by their codes, of a GeoJSON file: for alerts that name zones and have no polygon."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ps2stream.connectors.area_positions import read_geometry_area
from ps2stream.connectors.geojson_feed import parse_json
from ps2stream.errors import invalid

MOST_BYTES = 512 << 20


class AlertPlaces:
    """Shapes by code. path: a FeatureCollection; the code of a Feature is its property `key`, or
    the last part of its id. Raises InvalidArgument."""

    def __init__(self, path: Path | None = None, key: str = "id") -> None:
        self._shapes: dict[str, list[Any]] = {}
        for feature in [] if path is None else _read_features(path):
            self._add_feature(path, feature, key)

    def find(self, codes: Sequence[tuple[str, str]]) -> tuple[list[Any], list[str]]:
        """Returns the shapes of an area with codes, and the codes without one. Systems of codes
        name the same places: what one of them knows wholly is enough."""
        systems: dict[str, list[str]] = {}
        for name, value in codes:
            systems.setdefault(name, []).append(value)
        best: tuple[list[Any], list[str]] = ([], [f"{n} {v}" for n, v in codes])
        for name, values in systems.items():
            missing = [f"{name} {value}" for value in values if value not in self._shapes]
            found = [s for value in values for s in self._shapes.get(value, ())]
            if found and len(missing) < len(best[1]):
                best = (found, missing)
        return best

    def _add_feature(self, path: Path | None, feature: Any, key: str) -> None:
        properties = feature.get("properties") if isinstance(feature, dict) else None
        code = properties.get(key) if isinstance(properties, dict) else None
        if code is None and isinstance(feature, dict):
            code = str(feature.get("id") or "").rpartition("/")[2]
        if not isinstance(code, str | int) or code == "" or feature.get("geometry") is None:
            return
        try:
            shape = read_geometry_area(feature["geometry"]).geometry
        except ValueError as error:
            raise invalid("places", f"{path}: {code}: {error}") from None
        self._shapes.setdefault(str(code), []).append(shape)


def _read_features(path: Path) -> list[Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise invalid("places", f"{path} has more than {MOST_BYTES} bytes")
        whole = parse_json(path.read_bytes())
    except OSError as error:
        raise invalid("places", f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise invalid("places", f"{path}: expected GeoJSON: {error}") from None
    features = whole.get("features") if isinstance(whole, dict) else None
    if not isinstance(features, list):
        raise invalid("places", f"{path}: expected a FeatureCollection")
    return features
