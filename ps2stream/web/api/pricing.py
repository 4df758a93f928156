"""/v1/price and /v1/explain: what a query would cost, and why a post matches or does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from ps2stream.errors import InvalidArgument, Violation, invalid, short
from ps2stream.space.regions import Region
from ps2stream.web.api.bodies import parse_json
from ps2stream.web.api.callers import Callers
from ps2stream.web.api.objects import check_posts
from ps2stream.web.api.parameters import PLACES, name_parameters, read_region
from ps2stream.web.api.query_strings import check_names


class PricingHandlers:
    """Handlers of questions, which change nothing."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def price(self, request: web.Request) -> web.Response:
        """Answers how many matches a second a query would bring, and how much work."""
        check_names(request, {"q", *PLACES})
        expression, region = _read_query(request.query)
        client = await self._callers.find_client(request)
        with name_parameters(request.query):
            return web.json_response(await client.price(expression, region))

    async def explain(self, request: web.Request) -> web.Response:
        """Answers why a post, which is not published, matches a query or does not: a live one, by
        its id, or one that is not inserted."""
        check_names(request, {"query", "q", *PLACES, "object", "lon", "lat", "text"})
        given = request.query
        named = [name for name in ("q", *PLACES) if name in given]
        if "query" not in given and not named:
            raise invalid("query", f"give the id of a live query, or q or {', '.join(PLACES)}")
        if "query" in given and named:
            raise invalid(named[0], "is given with query, the id of a live query; give one of them")
        if "query" in given and not given["query"]:
            raise invalid("query", "give the id of a live query")
        query = ("", *_read_query(given)) if named else given["query"]
        client = await self._callers.find_client(request)
        post = _read_object(request)
        with name_parameters(given):
            return web.json_response(await client.explain(query, post))


def _read_query(given: Mapping[str, str]) -> tuple[str, Region | None]:
    """Returns the expression and the place of a query that is not inserted."""
    region, expression = read_region(given), given.get("q", "")
    if not expression and region is None:
        raise invalid("q", "give an expression, or a place by near, bbox or polygon")
    return expression, region


def _read_object(request: web.Request) -> dict[str, Any]:
    """Returns the post of the parameters: lon, lat and text, or `object`, which is JSON."""
    given = request.query
    written = given.get("object")
    if written is None:
        post: Any = {name: given[name] for name in ("lon", "lat", "text") if name in given}
    elif extra := [name for name in ("lon", "lat", "text") if name in given]:
        raise invalid(extra[0], "is given with object, which says it")
    else:
        post = parse_json(written.encode("utf-8", "replace"), "object")
        if not isinstance(post, dict):
            raise invalid("object", f"expected a post or a Feature in JSON, got {short(post)}")
    try:
        [row] = check_posts([post]).rows
    except InvalidArgument as error:
        raise InvalidArgument(
            [Violation(v.field.replace("objects[0]", "object", 1), v.description)
             for v in error.violations]
        ) from None  # fmt: skip
    return row
