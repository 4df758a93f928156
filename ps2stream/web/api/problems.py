"""Errors of the HTTP interface as problem details (RFC 9457)."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler

from ps2stream.errors import (
    AlreadyExists,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Ps2StreamError,
    ResourceExhausted,
    Unauthenticated,
    Violation,
)

log = logging.getLogger("ps2stream.web")
PREFIX = "/v1/"
CONTENT_TYPE = "application/problem+json"
STATUS: tuple[tuple[type[Exception], int], ...] = (
    (InvalidArgument, 400),
    (Unauthenticated, 401),
    (PermissionDenied, 403),
    (NotFound, 404),
    (AlreadyExists, 409),
    (FailedPrecondition, 409),
    (ResourceExhausted, 429),
    (Exception, 503),
)
KEPT = ("Allow", "Location", "Accept", "Accept-Encoding")
"""Headers of errors that say what would be right."""
UNAVAILABLE_S = 1
"""Seconds after which a request to a service that is away makes sense again."""
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class RequestEnd(Protocol):
    """What is told that a request has been answered."""

    def release(self, request: web.Request) -> None: ...


def is_api(request: web.Request) -> bool:
    """Returns whether a request is one of the HTTP interface, not of the map's page."""
    return request.path.startswith(PREFIX)


def build_reporter(callers: RequestEnd) -> Any:
    """Returns the middleware that answers errors of the HTTP interface as problems."""

    @web.middleware
    async def report_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_api(request):
            return await handler(request)
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            kept = {k: v for k, v in error.headers.items() if k in KEPT}
            detail = f"{request.method} {request.path}: {error.reason.lower()}"
            return build_problem(error.status, detail, request.path, headers=kept)
        except (Ps2StreamError, TimeoutError) as error:
            return describe_error(error, request.path)
        except (ConnectionError, web.RequestPayloadError):
            raise  # nobody is there to be told
        except Exception:
            log.exception("a request failed: %s %s", request.method, request.path)
            return build_problem(500, "the map's log has the details", request.path)
        finally:
            callers.release(request)

    return report_problems


def describe_error(error: Exception, instance: str) -> web.Response:
    """Returns the answer that says what an error of the client or the service says."""
    status = next(status for kind, status in STATUS if isinstance(error, kind))
    detail = str(error) or "the service did not answer in time"
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, ResourceExhausted):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_ms / 1000)))
    elif status == 503:
        headers["Retry-After"] = str(UNAVAILABLE_S)
    return build_problem(
        status,
        detail,
        instance,
        kind=_name_kind(error),
        violations=getattr(error, "violations", ()),
        headers=headers,
    )


def build_problem(
    status: int,
    detail: str,
    instance: str,
    *,
    kind: str = "",
    violations: Sequence[Violation] = (),
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Returns an answer of the type application/problem+json: type, title, status, detail,
    instance, and `violations`, a list of {field, problem}. `instance` is the path of the request
    alone, for what follows it may be private."""
    body: dict[str, Any] = {
        "type": f"urn:ps2stream:problem:{kind}" if kind else "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": instance,
        "violations": [{"field": v.field, "problem": v.description} for v in violations],
    }
    return web.Response(
        status=status,
        text=json.dumps(body, ensure_ascii=False),
        content_type=CONTENT_TYPE,
        headers=headers,
    )


def _name_kind(error: Exception) -> str:
    """Returns the name of an error's class in the form invalid-argument."""
    name = "Unavailable" if isinstance(error, TimeoutError) else type(error).__name__
    return _WORD.sub("-", name).lower()
