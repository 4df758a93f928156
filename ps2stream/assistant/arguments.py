"""The arguments of the tools. Their JSON schemas are what an assistant is shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ps2stream.client.inputs import region_of_value
from ps2stream.errors import InvalidArgument, Violation, invalid
from ps2stream.limits import EXPRESSION_BYTES, ID_BYTES, LAT_MAX, LON_MAX, RADIUS_KM, TEXT_BYTES
from ps2stream.space.regions import Circle, Rect, Region

VALID_S = 10 * 365 * 24 * 3600
VERTICES = 1000
CURSOR = 512
PLACES = ("near", "bbox", "polygon")
A = TypeVar("A", bound="ToolArguments")

Longitude = Annotated[float, Field(ge=-LON_MAX, le=LON_MAX, description="degrees east")]
Latitude = Annotated[float, Field(ge=-LAT_MAX, le=LAT_MAX, description="degrees north")]


class ToolArguments(BaseModel):
    """Base of all arguments: what is not known is refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class NearArgument(ToolArguments):
    """A circle on the globe."""

    lon: Longitude
    lat: Latitude
    radius_km: float = Field(gt=0, le=RADIUS_KM)


class BoxArgument(ToolArguments):
    """A rectangle of longitudes and latitudes; west may be greater than east, across the
    antimeridian."""

    west: Longitude
    south: Latitude
    east: Longitude
    north: Latitude


class QueryArguments(ToolArguments):
    """A query: words, a place, or both."""

    query: str = Field(
        "",
        max_length=EXPRESSION_BYTES,
        description='Words with AND, OR, NOT and parentheses, "phrases", prefix* and comparisons '
        'of attributes: flood AND (river OR "high water") AND severity >= 3. Empty: every post in '
        "the place.",
    )
    near: NearArgument | None = Field(None, description="Circle in which a post must lie.")
    bbox: BoxArgument | None = Field(None, description="Rectangle in which a post must lie.")
    polygon: list[tuple[Longitude, Latitude]] | None = Field(
        None,
        min_length=3,
        max_length=VERTICES,
        description="Corners [lon, lat] of the polygon in which a post must lie.",
    )

    def read_region(self) -> Region | None:
        """Returns the place, None for the world. Raises InvalidArgument for more than one, and for
        a query without words or a place."""
        given = [name for name in PLACES if getattr(self, name) is not None]
        if len(given) > 1:
            raise invalid(given[1], f"is given with {given[0]}; give one place")
        if not given and not self.query.strip():
            raise invalid("query", "give words, or a place by near, bbox or polygon")
        if self.near is not None:
            return Circle(self.near.lon, self.near.lat, self.near.radius_km)
        if (box := self.bbox) is not None:
            return Rect(box.west, box.south, box.east, box.north)
        if self.polygon is not None:
            ring = [list(corner) for corner in self.polygon]
            ring += [ring[0]] * (ring[0] != ring[-1])
            return region_of_value({"type": "Polygon", "coordinates": [ring]})
        return None

    def name_fields(self, error: InvalidArgument) -> InvalidArgument:
        """Returns an error with the fields of the query as these arguments have them."""
        place = next((name for name in PLACES if getattr(self, name) is not None), "region")
        names = {"expression": "query", "region": place}
        found = []
        for field, problem in error.violations:
            first, dot, rest = field.removeprefix("query.").partition(".")
            found.append(Violation(names.get(first, first) + dot + rest, problem))
        return InvalidArgument(found)


class AddArguments(QueryArguments):
    """Arguments of add_subscription."""

    valid_s: int | None = Field(
        None,
        ge=1,
        le=VALID_S,
        description="Seconds after which the subscription ends by itself; absent: it stays.",
    )


class ListArguments(ToolArguments):
    """Arguments of list_subscriptions."""

    page: str = Field("", max_length=CURSOR, description="`next` of the page before.")
    limit: int = Field(50, ge=1, le=100, description="Largest number of subscriptions.")


class NamedArguments(ToolArguments):
    """Arguments of a tool that concerns one subscription."""

    id: str = Field(min_length=1, max_length=ID_BYTES, description="Id of the subscription.")


class ExplainArguments(QueryArguments):
    """Arguments of explain: a post, and a subscription or a query."""

    id: str = Field(
        "",
        max_length=ID_BYTES,
        description="Id of a subscription; empty: the query and place given here, which are not "
        "added.",
    )
    lon: Longitude
    lat: Latitude
    text: str = Field(max_length=TEXT_BYTES, description="Text of a post, which is not published.")
    attributes: dict[str, str | int | float | bool] = Field(
        {}, max_length=64, description="Attributes of the post by name."
    )

    def check_alone(self) -> None:
        """Raises InvalidArgument for a query or a place beside the id of a subscription."""
        beside = [name for name in ("query", *PLACES) if getattr(self, name)]
        if beside:
            raise invalid(beside[0], "is given with id; give a subscription or a query")


class ReadArguments(ToolArguments):
    """Arguments of read_matches."""

    cursor: str = Field(
        "",
        max_length=CURSOR,
        description="`cursor` of the answer before, which acknowledges its matches; empty: begin "
        "with the oldest that are not acknowledged.",
    )
    limit: int = Field(20, ge=1, le=100, description="Largest number of matches.")
    wait_s: float = Field(
        0, ge=0, le=30, description="Seconds to wait for a match if there is none yet."
    )


def read_arguments(kind: type[A], given: Mapping[str, Any] | None) -> A:
    """Reads the arguments of a call. Raises InvalidArgument that names each bad field."""
    try:
        return kind.model_validate(dict(given or {}))
    except ValidationError as error:
        raise InvalidArgument(
            [
                Violation(".".join(map(str, e["loc"])) or "arguments", e["msg"])
                for e in error.errors(include_url=False, include_input=False)[:16]
            ]
        ) from None
