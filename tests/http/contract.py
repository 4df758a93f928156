"""What the OpenAPI document says of an exchange, held against the exchange."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from jsonschema import Draft202012Validator

from ps2stream.web.api.documents import build_openapi

BASE = "/v1"


@cache
def document() -> dict[str, Any]:
    """The document."""
    return build_openapi("cookie")


def find_operation(method: str, url: str) -> dict[str, Any] | None:
    """What the document says of a request; None if it is none of the interface's."""
    path = urlsplit(url).path
    for template, methods in document()["paths"].items():
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path):
            found: dict[str, Any] | None = methods.get(method.lower())
            return found
    return None


def check_value(schema: Mapping[str, Any], value: Any) -> None:
    """The value is one of the schema, whose references are into the document."""
    whole = {**schema, "components": document()["components"]}
    Draft202012Validator(whole).validate(value)


def check_exchange(method: str, url: str, sent: Any, status: int, kind: str, body: Any) -> None:
    """The answer is one that the document has, and so is the JSON of a request that was taken."""
    operation = find_operation(method, url)
    if operation is None:
        assert status in (404, 405), url
        return
    assert str(status) in operation["responses"], (method, url, status, body)
    content = operation["responses"][str(status)].get("content", {})
    if content:
        assert kind in content, (method, url, kind)
        check_value(content[kind]["schema"], body)
    else:
        assert not body, (method, url, body)
    if status < 300 and sent is not None and not isinstance(sent, bytes):
        check_value(operation["requestBody"]["content"]["application/json"]["schema"], sent)
