"""A service, and its HTTP interface."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.web.serve import MapOptions, ServedMap, serving
from tests.http.contract import check_exchange

LINES = {"Content-Type": "application/x-ndjson"}
POST = {"lon": 8.5, "lat": 47.4, "text": "a flood at the river"}
NONE: Mapping[str, str] = {}


class Answer(NamedTuple):
    """An answer: status, headers, and the body, parsed where it is JSON."""

    status: int
    headers: Mapping[str, str]
    body: Any


def problem(answer: Answer, status: int, field: str, words: str) -> None:
    """The answer is a problem of this status, which names the field and says so much."""
    assert answer.status == status, answer
    assert answer.headers["Content-Type"].startswith("application/problem+json")
    assert {"type", "title", "status", "detail", "instance"} <= answer.body.keys()
    fields = [v["field"] for v in answer.body["violations"]]
    assert field in fields or (not field and not fields), answer.body
    assert words in answer.body["detail"], answer.body


def ask(
    url: str, method: str = "GET", body: Any = None, headers: Mapping[str, str] = NONE
) -> Answer:
    """Sends a request; a body that is not bytes goes as JSON. Holds request and answer against
    the OpenAPI document."""
    sent = dict(headers)
    given = body
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        sent.setdefault("Content-Type", "application/json")
    request = urllib.request.Request(url, body, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = _read(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            found = _read(error.code, error.headers, error.read())
    kind = found.headers.get("Content-Type", "").split(";")[0]
    check_exchange(method, url, given, found.status, kind, found.body)
    return found


def _read(status: int, headers: Any, body: bytes) -> Answer:
    kind = headers.get_content_type()
    return Answer(
        status, dict(headers), json.loads(body) if body and kind.endswith("json") else body
    )


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = Path(tmp_path_factory.mktemp("http"))
    settings = Settings(
        runtime="local", port=0, hot="off", adjust="off", workers=1, data_dir=folder
    )
    with start(settings) as running:
        yield running


@pytest.fixture(scope="module")
def target(service: RunningService) -> str:
    return service.targets[0]


@pytest.fixture(scope="module")
def live(target: str) -> Iterator[ServedMap]:
    with serving(target, {}, MapOptions(port=0)) as running:
        yield running


@pytest.fixture(scope="module")
def api(live: ServedMap) -> str:
    """The address of the HTTP interface."""
    return f"{live.url}v1"


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target, timeout=90) as connected:
        yield connected
