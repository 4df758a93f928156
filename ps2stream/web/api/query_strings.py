"""The names of parameters in addresses: each known, each once, and none that should be secret."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from aiohttp import web

from ps2stream.errors import InvalidArgument, Violation

SECRET = frozenset({"token", "access_token", "authorization", "key", "api_key"})
_MOST = 8


def check_names(request: web.Request, known: AbstractSet[str]) -> None:
    """Raises InvalidArgument for a parameter that is not known, or is given twice."""
    given = request.query
    names = sorted(set(given))
    problems = [Violation(n, _describe_unknown(n, known)) for n in names if n not in known]
    problems += [Violation(n, "is given twice") for n in names if len(given.getall(n)) > 1]
    if problems:
        raise InvalidArgument(problems[:_MOST])


def _describe_unknown(name: str, known: AbstractSet[str]) -> str:
    if name.lower() in SECRET:
        return "is never read from an address; send a token in the Authorization header"
    return f"is not a parameter; known are {', '.join(sorted(known)) or 'none'}"
