"""A service, and MCP servers beside it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings

POST = {"lon": 8.5, "lat": 47.4, "text": "a flood at the river"}
ZURICH = {"near": {"lon": 8.5, "lat": 47.4, "radius_km": 20}}
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    folder = Path(tmp_path_factory.mktemp("assistant"))
    settings = Settings(
        runtime="local", port=0, hot="off", adjust="off", workers=1, data_dir=folder
    )
    with start(settings) as running:
        yield running


@pytest.fixture(scope="module")
def target(service: RunningService) -> str:
    return service.targets[0]


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target, timeout=90) as connected:
        yield connected


@asynccontextmanager
async def connect(
    url: str, token: str = "", trust: ssl.SSLContext | None = None, **how: Any
) -> AsyncIterator[McpClient]:
    """The SDK's own client of a server over HTTP."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=TIMEOUT_S, verify=trust or True) as http:
        transport = streamable_http_client(url, http_client=http)
        async with McpClient(transport, read_timeout_seconds=TIMEOUT_S, **how) as connected:
            yield connected


async def call(client: McpClient, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """What a tool answers; its text says the same."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    assert isinstance(found.structured_content, dict)
    return found.structured_content


async def refuse(client: McpClient, tool: str, /, **arguments: Any) -> str:
    """What a tool says that refuses."""
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found.structured_content
    return str(found.content[0].text)  # type: ignore[union-attr]


async def read_until(client: McpClient, count: int, cursor: str = "") -> tuple[list[Any], str]:
    """So many matches, in several answers, and the cursor behind them."""
    found: list[Any] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < count:
            page = await call(client, "read_matches", cursor=cursor, wait_s=10)
            assert page["gaps"] == []
            found += page["matches"]
            cursor = page["cursor"]
    return found, cursor
