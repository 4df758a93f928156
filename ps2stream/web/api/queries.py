"""/v1/queries: standing queries, inserted, shown, listed and deleted."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import quote

from aiohttp import web

from ps2stream.client.requests import Query
from ps2stream.errors import InvalidArgument, Violation, invalid, short
from ps2stream.limits import QUERY_BYTES, SESSION_BYTES
from ps2stream.posts.members import check_time
from ps2stream.web.api.bodies import BodyRoom, read_json
from ps2stream.web.api.callers import Callers
from ps2stream.web.api.cursors import read_page, write_page
from ps2stream.web.api.operations import PAGE, PAGE_MAX
from ps2stream.web.api.query_strings import check_names
from ps2stream.web.shapes import on_globe

FIELDS = ("id", "expression", "region", "session", "until", "replace", "retro", "if_lsn")


class QueryHandlers:
    """Handlers of queries."""

    def __init__(self, callers: Callers, room: BodyRoom) -> None:
        self._callers = callers
        self._room = room

    async def insert(self, request: web.Request) -> web.Response:
        """Inserts a query, and answers what the service understood of it."""
        check_names(request, set())
        client = await self._callers.find_client(request)
        with self._room.hold(self._callers.identify(request)):
            values = read_query(await read_json(request, QUERY_BYTES))
            id = values.pop("id")
            try:
                done = await client.insert(id, **values)
            except InvalidArgument as error:
                raise _name_fields(error) from None
        answer = {
            "id": id,
            "session": values["session"],
            "lsn": int(done),
            "canonical": done.expression,
            "area": done.area,
            "warnings": list(done.warnings),
        }
        location = f"/v1/queries/{quote(id, safe='')}"
        return web.json_response(answer, status=201, headers={"Location": location})

    async def show(self, request: web.Request) -> web.Response:
        """Answers a live query."""
        check_names(request, set())
        client = await self._callers.find_client(request)
        query = await client.get(request.match_info["id"])
        return web.json_response(describe_query(query) | {"lsn": query.lsn})

    async def delete(self, request: web.Request) -> web.Response:
        """Deletes a query, and answers the LSN of the delete."""
        check_names(request, set())
        client = await self._callers.find_client(request)
        return web.json_response({"lsn": await client.delete(request.match_info["id"])})

    async def list(self, request: web.Request) -> web.Response:
        """Answers a page of the live queries of a session, or of all."""
        check_names(request, {"session", "limit", "after"})
        session = request.query.get("session", "")
        if (size := len(session.encode("utf-8", "replace"))) > SESSION_BYTES:
            raise invalid("session", f"has {size} bytes, over the limit {SESSION_BYTES}")
        limit = _read_limit(request.query.get("limit", str(PAGE)))
        client = await self._callers.find_client(request)
        key = self._callers.find_key(request)
        page = await client.list_page(
            session or None,
            page_size=limit,
            after=read_page(key, session, request.query.get("after", "")),
        )
        found = [describe_query(query) for query in page.queries]
        following = write_page(key, session, page.next) if page.next else None
        return web.json_response({"queries": found, "next": following})


def read_query(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `AsyncClient.insert` for a query in JSON: id (made where it is
    absent), expression, region, session, until, replace, retro and if_lsn. Raises
    InvalidArgument."""
    if unknown := sorted(set(body) - set(FIELDS)):
        known = f"is not a field of a query; known are {', '.join(FIELDS)}"
        raise InvalidArgument([Violation(name, known) for name in unknown[:8]])
    given = {name: value for name, value in body.items() if value is not None}
    for name in ("id", "expression", "session"):
        if not isinstance(given.get(name, ""), str):
            raise invalid(name, f"expected a text, got {short(given[name])}")
    for name in ("replace", "retro"):
        if not isinstance(given.get(name, False), bool):
            raise invalid(name, f"expected true or false, got {short(given[name])}")
    if_lsn = given.get("if_lsn", 0)
    if not isinstance(if_lsn, int) or isinstance(if_lsn, bool) or if_lsn < 0:
        raise invalid("if_lsn", f"expected a whole number from 0, got {short(if_lsn)}")
    region = given.get("region")
    if not isinstance(region, dict | None):
        raise invalid("region", f"expected an object of JSON, got {short(region)}")
    try:
        until = check_time(given["until"]) if "until" in given else None
    except ValueError:
        raise invalid(
            "until", f"expected Unix milliseconds or an ISO 8601 time, got {short(given['until'])}"
        ) from None
    return {
        "id": given.get("id") or f"http-{secrets.token_hex(8)}",
        "expression": given.get("expression", ""),
        "region": on_globe(region),
        "session": given.get("session") or "default",
        "until": until,
        "replace": given.get("replace", False),
        "retro": given.get("retro", False),
        "if_lsn": if_lsn,
    }


def describe_query(query: Query) -> dict[str, Any]:
    """Returns a live query as JSON."""
    return {
        "id": query.id,
        "session": query.session,
        "expression": query.expression,
        "canonical": query.canonical,
        "region": None if query.region is None else query.region.to_json(),
        "until": query.until,
    }


def _name_fields(error: InvalidArgument) -> InvalidArgument:
    """Returns the error with the fields of a query as the body has them."""
    return InvalidArgument(
        [Violation(v.field.removeprefix("query."), v.description) for v in error.violations]
    )


def _read_limit(value: str) -> int:
    if not (value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= PAGE_MAX):
        raise invalid("limit", f"expected a number from 1 to {PAGE_MAX}, got {short(value)}")
    return int(value)
