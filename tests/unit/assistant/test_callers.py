"""ps2stream/assistant/callers.py: who is kept, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from ps2stream.assistant import callers as callers_module
from ps2stream.assistant.callers import IDLE_S, CallerTable
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import ResourceExhausted, Unauthenticated


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that asks nobody for a token, and so lets every token in."""
    folder = Path(tmp_path_factory.mktemp("callers"))
    with start(Settings(runtime="local", port=0, workers=1, data_dir=folder)) as running:
        yield running.targets[0]


class HandClock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_token_has_one_caller_and_its_own_session(target: str) -> None:
    async def run() -> None:
        table = CallerTable(target, {"token": "ps2s_own"}, "mcp", open_to_all=True)

        async def ask(token: str | None) -> tuple[str, object, str]:
            async with table.hold(token) as (name, caller):
                await asyncio.sleep(0)
                return name, caller, caller.session

        asked: list[str | None] = ["ps2s_a", "ps2s_a", "ps2s_b", None]
        first, again, other, nobody = await asyncio.gather(*map(ask, asked))
        assert first == again
        assert first[2] == f"mcp-{first[0]}"
        assert other[2] != first[2]
        assert nobody[2] == "mcp"
        assert len(table) == 3
        assert "ps2s" not in first[2]
        await table.close()
        assert len(table) == 0

    asyncio.run(run())


def test_nobody_is_let_in_where_tokens_are_asked_for(target: str) -> None:
    async def run() -> None:
        table = CallerTable(target, {}, "mcp", open_to_all=False)
        with pytest.raises(Unauthenticated, match="Authorization"):
            async with table.hold(None):
                pass
        assert len(table) == 0

    asyncio.run(run())


def test_callers_that_are_idle_make_room(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers_module, "MAX_CALLERS", 2)
    clock = HandClock()

    async def run() -> None:
        table = CallerTable(target, {}, "mcp", True, clock)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(table.hold("ps2s_a"))
            async with table.hold("ps2s_b"):
                with pytest.raises(ResourceExhausted, match=r"\(callers\)"):
                    await stack.enter_async_context(table.hold("ps2s_c"))
            await stack.enter_async_context(table.hold("ps2s_c"))  # b was idle
            assert len(table) == 2
            clock.now = 2 * IDLE_S
            await table.close_idle()
            assert len(table) == 2  # they have requests
        clock.now += IDLE_S / 2
        await table.close_idle()
        assert len(table) == 2
        clock.now += IDLE_S
        await table.close_idle()
        assert len(table) == 0

    asyncio.run(run())
