"""The documents of the HTTP interface: sound, complete, and true of what the service sends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from jsonschema import Draft7Validator, Draft202012Validator

from ps2stream.client.client import Client
from ps2stream.web.api.documents import build_asyncapi, build_openapi
from ps2stream.web.api.output import FORMATS
from ps2stream.web.api.routes import add_api
from ps2stream.web.serve import ServedMap
from tests.http.conftest import ask
from tests.map.stream_reader import StreamReader

META = Path(__file__).parent / "meta"


def list_problems(kind: Any, name: str, document: dict[str, Any]) -> list[str]:
    """What the meta schema of this name says against a document."""
    meta = json.loads((META / name).read_text("utf-8"))
    return [f"{e.json_path}: {e.message}" for e in kind(meta).iter_errors(document)]


def test_the_documents_are_what_they_say() -> None:
    openapi, asyncapi = build_openapi("cookie"), build_asyncapi("localhost:7080", False)
    assert list_problems(Draft202012Validator, "openapi-3.1.json", openapi) == []
    assert list_problems(Draft7Validator, "asyncapi-3.0.json", asyncapi) == []
    for document in (openapi, asyncapi):
        for schema in document["components"]["schemas"].values():
            Draft202012Validator.check_schema(schema)
            Draft7Validator.check_schema(schema)
        for target in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document)):
            found: Any = document
            for step in target.split("/"):
                found = found[step]
    del openapi["info"]
    asyncapi["operations"]["send_events"]["action"] = "shout"
    assert list_problems(Draft202012Validator, "openapi-3.1.json", openapi)
    assert list_problems(Draft7Validator, "asyncapi-3.0.json", asyncapi)


def test_every_route_is_in_the_document_and_the_reverse() -> None:
    app, nobody = web.Application(), Any
    add_api(app, nobody, nobody)  # type: ignore[arg-type]
    served = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method != "OPTIONS"
    }
    paths = build_openapi("cookie")["paths"]
    assert served == {(m.upper(), path) for path, methods in paths.items() for m in methods}
    for path, methods in paths.items():
        for operation in methods.values():
            named = [p["name"] for p in operation.get("parameters", []) if p["in"] == "path"]
            assert named == re.findall(r"\{(\w+)\}", path)
    ids = [o["operationId"] for methods in paths.values() for o in methods.values()]
    assert len(ids) == len(set(ids))


def test_the_documents_are_served(api: str, live: ServedMap) -> None:
    openapi = ask(f"{api}/openapi.json").body
    [cookie] = [s for s in openapi["components"]["securitySchemes"].values() if "in" in s]
    port = live.url.rsplit(":", 1)[1].strip("/")
    assert openapi == build_openapi(f"ps2stream-token-{port}")
    assert cookie["name"].endswith(port)
    assert ask(f"{api}/asyncapi.json").body == build_asyncapi(f"127.0.0.1:{port}", False)


@pytest.mark.parametrize("format", FORMATS)
def test_events_are_as_the_document_says(live: ServedMap, client: Client, format: str) -> None:
    components = build_asyncapi("h", False)["components"]
    thing = {"lon": 8.5, "lat": 47.4, "text": "an avalanche", "attributes": {"mag": 4.5, "x": "y"}}
    fields = "text,position,time,attributes,payload"
    reader = StreamReader(live.url, f"/v1/stream?q=avalanche&format={format}&fields={fields}")
    try:
        for number, kind in enumerate(("ready", "match", "match")):
            event = reader.next()
            assert event.event == kind
            schema = {**components["messages"][kind]["payload"], "components": components}
            Draft7Validator({"allOf": [schema], "components": components}).validate(event.data)
            client.publish([thing | {"payload": b"x" if number else {"a": 1}}])
    finally:
        reader.cut()
