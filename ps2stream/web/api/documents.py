"""The documents of the HTTP interface: OpenAPI 3.1 and AsyncAPI 3.0, of the table of operations."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from aiohttp import web

from ps2stream.web.api.callers import Callers
from ps2stream.web.api.operations import JSON, OPERATIONS, Operation, Parameter, list_errors
from ps2stream.web.api.problems import CONTENT_TYPE
from ps2stream.web.api.schemas import TEXT, build_event_schemas, build_schemas, record, refer

OPENAPI = "3.1.0"
ASYNCAPI = "3.0.0"
TITLE = "PS2Stream"
EVENTS = {
    "ready": ("Ready",),
    "match": ("Match", "MatchFeature", "MatchEvent"),
    "gap": ("Gap", "GapEvent"),
    "end": ("Problem",),
}
"""The schemas that the data of each kind of event has: plain, as GeoJSON, as CloudEvents."""
_ABOUT = {
    "ready": "the stream is open",
    "match": "an object matches a query",
    "gap": "matches are missing, and how many where that is known",
    "end": "the stream ends, and why; over a WebSocket the closing says it",
}
_DESCRIPTION = (
    "A client of the public gRPC API, with its tenants, scopes, quotas and limits. Queries, "
    "sessions and cursors are of one tenant; objects are shared by all."
)


class DocumentHandlers:
    """Handlers of the documents."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    async def openapi(self, request: web.Request) -> web.Response:
        """Answers the OpenAPI document."""
        self._callers.identify(request)
        return web.json_response(build_openapi(self._callers.cookie))

    async def asyncapi(self, request: web.Request) -> web.Response:
        """Answers the AsyncAPI document."""
        self._callers.identify(request)
        return web.json_response(build_asyncapi(request.host, request.secure))


def build_openapi(cookie: str) -> dict[str, Any]:
    """Returns the OpenAPI document. `cookie` is the name of the one that holds a token."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        methods = paths.setdefault(operation.path, {})
        methods[operation.method.lower()] = _describe_operation(operation)
    schemes = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "cookie": {"type": "apiKey", "in": "cookie", "name": cookie},
    }
    return {
        "openapi": OPENAPI,
        "info": _build_info(),
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {"cookie": []}, {}],
        "paths": paths,
        "components": {"schemas": build_schemas(), "securitySchemes": schemes},
    }


def build_asyncapi(host: str, secure: bool) -> dict[str, Any]:
    """Returns the AsyncAPI document of the streams at `host`, which use TLS if `secure`."""
    [stream] = [o for o in OPERATIONS if o.name == "read_stream"]
    asked = [p for p in stream.parameters if p.place == "query"]
    query = record({p.name: p.schema | {"description": p.description} for p in asked})
    query.pop("required")
    ways = {"events": "https" if secure else "http", "socket": "wss" if secure else "ws"}
    messages = {name: _describe_event(name) for name in EVENTS}
    messages |= {f"{name}-frame": _describe_frame(name) for name in EVENTS if name != "end"}
    messages["begin"] = {
        "title": "first message of a reader whose address names no query, session or cursor",
        "contentType": JSON,
        "payload": record({"cursor": TEXT}),
    }
    socket = {"ws": {"method": "GET", "query": query, "bindingVersion": "0.1.0"}}
    http = {"http": {"method": "GET", "query": query, "bindingVersion": "0.3.0"}}
    sent = {"events": list(EVENTS), "socket": [f"{n}-frame" for n in EVENTS if n != "end"]}
    channels: dict[str, dict[str, Any]] = {
        way: {
            "address": stream.path,
            "servers": [{"$ref": f"#/servers/{way}"}],
            "messages": {name: _refer_message(name) for name in sent[way]},
        }
        for way in ways
    }
    channels["socket"]["messages"]["begin"] = _refer_message("begin")
    channels["socket"]["bindings"] = socket
    operations: dict[str, Any] = {
        f"send_{way}": _build_transfer("send", way, sent[way], stream.summary) for way in ways
    }
    operations["send_events"]["bindings"] = http
    operations["take_cursor"] = _build_transfer(
        "receive", "socket", ["begin"], "Goes on behind a cursor that is not in the address"
    )
    schemas = build_event_schemas()
    schemas |= {name: build_schemas()[name] for name in ("Point", "Problem")}
    return {
        "asyncapi": ASYNCAPI,
        "info": _build_info(),
        "defaultContentType": JSON,
        "servers": {way: {"host": host, "protocol": kind} for way, kind in ways.items()},
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas},
    }


def _build_info() -> dict[str, str]:
    version = importlib.metadata.version("ps2stream")
    return {"title": TITLE, "version": version, "description": _DESCRIPTION}


def _describe_operation(operation: Operation) -> dict[str, Any]:
    answer = operation.answer
    good: dict[str, Any] = {"description": answer.description}
    if answer.media:
        good["content"] = {answer.media: {"schema": answer.schema}}
    if answer.headers:
        good["headers"] = {name: {"schema": TEXT} for name in answer.headers}
    problem = {CONTENT_TYPE: {"schema": refer("Problem")}}
    responses: dict[str, Any] = {str(answer.status): good}
    for status, meaning in list_errors(operation):
        responses[str(status)] = {"description": meaning}
        if operation.method != "HEAD":
            responses[str(status)]["content"] = problem
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": responses,
    }
    if operation.parameters:
        made["parameters"] = [_describe_parameter(p) for p in operation.parameters]
    if operation.bodies:
        content = {kind: {"schema": schema} for kind, schema in operation.bodies}
        made["requestBody"] = {"required": True, "content": content}
    return made


def _describe_parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "required": parameter.required,
        "schema": parameter.schema,
    }


def _describe_event(name: str) -> dict[str, Any]:
    forms = [refer(schema) for schema in EVENTS[name]]
    return {
        "name": name,
        "title": _ABOUT[name],
        "contentType": JSON,
        "payload": forms[0] if len(forms) == 1 else {"anyOf": forms},
    }


def _describe_frame(name: str) -> dict[str, Any]:
    """Returns the message of a WebSocket that holds an event."""
    event = _describe_event(name)
    frame = {"id": TEXT, "event": {"const": name}, "data": event["payload"]}
    return event | {"payload": record(frame)}


def _refer_message(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/messages/{name}"}


def _build_transfer(action: str, way: str, names: list[str], summary: str) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{way}"},
        "summary": summary,
        "messages": [{"$ref": f"#/channels/{way}/messages/{name}"} for name in names],
    }
