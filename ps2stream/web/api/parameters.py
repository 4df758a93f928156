"""The parameters of GET /v1/stream."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from aiohttp import web

from ps2stream.client.inputs import region_of_value
from ps2stream.errors import InvalidArgument, Violation, invalid, short
from ps2stream.limits import EXPRESSION_BYTES, SESSION_BYTES
from ps2stream.space.regions import Circle, Rect, Region
from ps2stream.web.api.output import FIELDS, FORMATS
from ps2stream.web.api.query_strings import check_names
from ps2stream.web.shapes import on_globe

PLACES = ("near", "bbox", "polygon")
KNOWN = frozenset({"q", *PLACES, "session", "fields", "format", "cursor"})


@dataclasses.dataclass(frozen=True, slots=True)
class StreamParameters:
    """What a stream is asked for: a query of its own (`expression`, `region`), or a `session`, or
    neither, where the `cursor` says it; which fields of the objects, and in which format."""

    expression: str
    region: Region | None
    session: str
    cursor: str
    fields: frozenset[str]
    format: str

    @property
    def has_query(self) -> bool:
        """True if the request names a query."""
        return bool(self.expression) or self.region is not None

    @property
    def digest(self) -> str:
        """Returns a short name of the query that is asked for: 16 hexadecimal digits."""
        region = None if self.region is None else self.region.to_json()
        data = json.dumps([self.expression, region], sort_keys=True).encode()
        return hashlib.blake2b(data, digest_size=8).hexdigest()


def read_parameters(request: web.Request) -> StreamParameters:
    """Reads the parameters, and the cursor of the header Last-Event-ID, which counts more than the
    parameter: a browser that reconnects sends the address it had at first. Raises
    InvalidArgument."""
    given = request.query
    check_names(request, KNOWN)
    expression, session = given.get("q", ""), given.get("session", "")
    _check_size("q", expression, EXPRESSION_BYTES)
    _check_size("session", session, SESSION_BYTES)
    found = StreamParameters(
        expression,
        read_region(given),
        session,
        request.headers.get("Last-Event-ID", "").strip() or given.get("cursor", ""),
        _read_fields(given.get("fields")),
        _read_format(given.get("format", "json")),
    )
    if found.session and found.has_query:
        raise invalid("session", "is given with q or a place; a session has its own queries")
    return found


def read_region(given: Mapping[str, str]) -> Region | None:
    """Reads the place of a query: near=LON,LAT,KM or bbox=WEST,SOUTH,EAST,NORTH or polygon=, which
    is a GeoJSON geometry or LON,LAT;LON,LAT;... Returns None, the world, without any. Raises
    InvalidArgument that names the parameter."""
    places = [name for name in PLACES if name in given]
    if not places:
        return None
    if len(places) > 1:
        raise invalid(places[1], f"is given with {places[0]}; give one place")
    (name,) = places
    value = given[name]
    try:
        if name == "near":
            return Circle(*_read_numbers(name, value, ("LON", "LAT", "KM")))
        if name == "bbox":
            return Rect(*_read_numbers(name, value, ("WEST", "SOUTH", "EAST", "NORTH")))
        return region_of_value(on_globe(_read_polygon(value)))
    except InvalidArgument as error:
        raise InvalidArgument(
            [Violation(_rename(name, v.field), v.description) for v in error.violations]
        ) from None


@contextmanager
def name_parameters(given: Mapping[str, str]) -> Iterator[None]:
    """Has the errors of a service name the parameters of a query, and not its fields."""
    place = next((name for name in PLACES if name in given), "region")
    names = {"query.expression": "q", "query.region": place}
    try:
        yield
    except InvalidArgument as error:
        found = []
        for field, problem in error.violations:
            name = next((n for n in names if field == n or field.startswith(f"{n}.")), "")
            found.append(Violation(names.get(name, "") + field[len(name) :], problem))
        raise InvalidArgument(found) from None


def _read_polygon(value: str) -> Any:
    if value.lstrip().startswith("{"):
        try:
            return json.loads(value, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise invalid("polygon", f"is not JSON: {error}") from None
    pairs = [part for part in value.replace(" ", ";").split(";") if part]
    ring = [_read_numbers("polygon", pair, ("LON", "LAT")) for pair in pairs]
    if len(ring) < 3:
        raise invalid("polygon", f"expected LON,LAT;LON,LAT;LON,LAT..., got {short(value)}")
    if ring[0] != ring[-1]:
        ring.append(ring[0])
    return {"type": "Polygon", "coordinates": [ring]}


def _read_numbers(name: str, value: str, wanted: tuple[str, ...]) -> list[float]:
    try:
        found = [float(part) for part in value.split(",")]
    except ValueError:
        found = []
    if len(found) != len(wanted):
        raise invalid(name, f"expected {','.join(wanted)}, got {short(value)}")
    return found


def _read_fields(value: str | None) -> frozenset[str]:
    if value is None:
        return frozenset(FIELDS) - {"payload"}
    wanted = frozenset(value.split(",")) - {""}
    if unknown := sorted(wanted - set(FIELDS)):
        raise invalid("fields", f"expected some of {','.join(FIELDS)}, got {short(unknown[0])}")
    return wanted


def _read_format(value: str) -> str:
    if value not in FORMATS:
        raise invalid("format", f"expected one of {', '.join(FORMATS)}, got {short(value)}")
    return value


def _check_size(name: str, value: str, limit: int) -> None:
    if (size := len(value.encode("utf-8", "replace"))) > limit:
        raise invalid(name, f"has {size} bytes, over the limit {limit}")


def _rename(name: str, field: str) -> str:
    return name if field in (name, "region") else f"{name}.{field.removeprefix('region.')}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
