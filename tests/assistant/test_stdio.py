"""`ps2stream mcp` on standard input and output, with the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.shared.exceptions import MCPError

from ps2stream.assistant.callers import MATCHES
from ps2stream.assistant.tools import KINDS
from ps2stream.client.client import Client
from tests.assistant.conftest import POST, TIMEOUT_S, ZURICH, call, read_until, refuse

pytestmark = pytest.mark.takes_turns

PID = (
    "import os, sys; print(os.getpid(), file=open(sys.argv.pop(1), 'w')); "
    "from ps2stream.cli import main; main()"
)
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("add_subscription", {}, "query: give words, or a place"),
    ("add_subscription", {"query": "flood AND ("}, "query: "),
    ("add_subscription", {"query": "a", "sesion": "x"}, "sesion: Extra inputs"),
    ("add_subscription", {"near": {"lon": 8, "lat": 91, "radius_km": 1}}, "near.lat: "),
    ("add_subscription", {"near": {"lon": 8, "lat": 1, "radius_km": 0}}, "near.radius_km: "),
    ("add_subscription", {**ZURICH, "bbox": {"west": 1, "south": 2, "east": 3, "north": 4}},
     "bbox: is given with near"),
    ("add_subscription", {"bbox": {"west": 1, "south": 4, "east": 3, "north": 2}}, "bbox"),
    ("add_subscription", {"polygon": [[1, 2], [3, 4]]}, "polygon: "),
    ("add_subscription", {"query": "a", "valid_s": 0}, "valid_s: "),
    ("add_subscription", {"query": "a" * 9000}, "query: "),
    ("add_subscription", {"query": "ä" * 8000}, "over the limit 8192"),
    ("list_subscriptions", {"page": "12-forged"}, "not known here"),
    ("list_subscriptions", {"limit": 101}, "limit: "),
    ("read_matches", {"cursor": "forged"}, "not known here"),
    ("read_matches", {"wait_s": 31}, "wait_s: "),
    ("explain", {"id": "nobody", "lon": 1, "lat": 1, "text": "a"}, "no subscription 'nobody'"),
    ("explain", {"query": "NOT", "lon": 1, "lat": 1, "text": "a"}, "query: "),
    ("explain", {"lon": 1, "lat": 1, "text": "a"}, "give words, or a place"),
    ("explain", {"id": "x", "query": "a", "lon": 1, "lat": 1, "text": "a"}, "is given with id"),
    ("remove_subscription", {"id": ""}, "id: "),
    ("price", {"query": "NOT"}, "query: "),
]  # fmt: skip
"""A tool, its bad arguments, and words of the refusal."""


def program(target: str, session: str, *more: str, pid: Path | None = None) -> McpClient:
    """A client that starts the program, which writes its process id to `pid`."""
    start = ["-m", "ps2stream"] if pid is None else ["-c", PID, str(pid)]
    arguments = [*start, "mcp", "--server", target, "--session", session, *more]
    parameters = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    return McpClient(parameters, read_timeout_seconds=TIMEOUT_S)


def publish(client: Client, *texts: str) -> None:
    client.publish([POST | {"text": text} for text in texts])


@pytest.mark.every_turn
def test_an_assistant_subscribes_reads_and_removes(target: str, client: Client) -> None:
    async def talk() -> None:
        async with program(target, "walk") as assistant:
            assert "untrusted_" in (assistant.instructions or "")
            added = await call(assistant, "add_subscription", query="flood OR storm", **ZURICH)
            assert added["id"].startswith("walk-")
            assert added["warnings"] == []
            listed = await call(assistant, "list_subscriptions")
            assert [s["id"] for s in listed["subscriptions"]] == [added["id"]]
            assert listed["subscriptions"][0]["region"]["radius_km"] == 20
            publish(client, "a flood at the river", "nothing", "a storm")
            matches, _ = await read_until(assistant, 2)
            assert [m["untrusted_text"] for m in matches] == ["a flood at the river", "a storm"]
            assert {m["subscription_id"] for m in matches} == {added["id"]}
            asked = {"id": added["id"], "lon": 8.5, "lat": 47.4}
            assert (await call(assistant, "explain", **asked, text="storm"))["matches"]
            other = await call(assistant, "explain", **asked, text="sun")
            assert not other["matches"]
            about = {"query": "sun NOT rain", **ZURICH, "lon": 8.5, "lat": 47.4}
            assert (await call(assistant, "explain", **about, text="sun"))["matches"]
            dry = await call(assistant, "explain", **about, text="sun and rain")
            assert (dry["matches"], dry["region"]["inside"]) == (False, True)
            price = await call(assistant, "price", query="flood")
            assert price["sampled"] >= price["matched"] >= 1
            assert await call(assistant, "remove_subscription", id=added["id"]) == {
                "id": added["id"], "removed": True
            }  # fmt: skip
            assert (await call(assistant, "list_subscriptions"))["subscriptions"] == []
            assert "no subscription" in await refuse(
                assistant, "remove_subscription", id=added["id"]
            )

    asyncio.run(talk())


def test_the_tools_say_what_they_take_and_answer(target: str) -> None:
    async def talk() -> None:
        async with program(target, "schemas") as assistant:
            tools = {tool.name: tool for tool in (await assistant.list_tools()).tools}
            assert list(tools) == [kind.name for kind in KINDS]
            for tool in tools.values():
                assert tool.input_schema["additionalProperties"] is False
                assert tool.output_schema is not None
            removing = tools["remove_subscription"].annotations
            assert removing is not None
            assert removing.destructive_hint
            assert tools["list_subscriptions"].annotations.read_only_hint  # type: ignore[union-attr]

    asyncio.run(talk())


def test_bad_input_is_refused_by_its_name(target: str) -> None:
    async def talk() -> None:
        async with program(target, "bad") as assistant:
            for tool, given, words in BAD:
                assert words in await refuse(assistant, tool, **given)
            with pytest.raises(MCPError, match="there is no tool 'drop'"):
                await assistant.call_tool("drop", {})
            assert (await call(assistant, "list_subscriptions"))["subscriptions"] == []

    asyncio.run(talk())


def test_a_killed_server_goes_on_behind_the_cursor(
    target: str, client: Client, tmp_path: Path
) -> None:
    """What was given out and not acknowledged comes again, with the same numbers."""

    async def begin() -> tuple[list[Any], str]:
        async with program(target, "killed", pid=tmp_path / "pid") as assistant:
            await call(assistant, "add_subscription", query="wave")
            publish(client, *(f"wave {i}" for i in range(6)))
            found, _ = await read_until(assistant, 6)
            page = await call(assistant, "read_matches", cursor="", limit=3)
            assert page["matches"] == found[:3]  # nothing was acknowledged
            assert page["more"]
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
            return found, page["cursor"]

    async def go_on(found: list[Any], cursor: str) -> None:
        async with program(target, "killed") as assistant:
            rest, last = await read_until(assistant, 3, cursor)
            assert rest == found[3:]
            publish(client, "wave 6")
            new, newest = await read_until(assistant, 1, last)
            assert new[0]["seq"] == found[-1]["seq"] + 1
            await call(assistant, "read_matches", cursor=newest)
            page = await call(assistant, "read_matches", cursor=cursor)
            (gap,) = page["gaps"]  # an old cursor is told what is gone
            assert (gap["first"], gap["last"]) == (found[3]["seq"], new[0]["seq"])
            assert page["matches"] == []

    found, cursor = asyncio.run(begin())
    asyncio.run(go_on(found, cursor))


def test_texts_cannot_hide_and_are_cut(target: str, client: Client) -> None:
    async def talk() -> None:
        async with program(target, "texts") as assistant:
            await call(assistant, "add_subscription", query="trap")
            text = "trap \u202e\U000e0041\x1b[2J \u0434\u0430"
            client.publish([
                POST | {"text": text, "id": "a\u2066", "attributes": {"k": "\u200f"}},
                POST | {"text": "trap " + "x" * 9000},
            ])  # fmt: skip
            (first, second), _ = await read_until(assistant, 2)
            assert first["untrusted_text"] == "trap <U+202E><U+E0041><U+001B>[2J \u0434\u0430"
            assert first["untrusted_id"] == "a<U+2066>"
            assert first["untrusted_attributes"] == {"k": "<U+200F>"}
            assert first["cut"] == []
            assert len(second["untrusted_text"]) == 2000
            assert second["cut"] == ["untrusted_text"]

    asyncio.run(talk())


def test_the_resource_shows_the_latest_and_tells_of_new_ones(target: str, client: Client) -> None:
    async def talk() -> None:
        async with program(target, "live") as assistant:
            await call(assistant, "add_subscription", query="gust")
            async with assistant.listen(resource_subscriptions=[MATCHES]) as events:
                publish(client, "gust one")
                async with asyncio.timeout(TIMEOUT_S):
                    event = await anext(events)
                assert event.uri == MATCHES  # type: ignore[union-attr]
            contents = (await assistant.read_resource(MATCHES)).contents
            shown = json.loads(contents[0].text)  # type: ignore[union-attr]
            assert [m["untrusted_text"] for m in shown["matches"]] == ["gust one"]
            found, _ = await read_until(assistant, 1)  # nothing was acknowledged
            assert found == shown["matches"]
            with pytest.raises(MCPError, match="there is no resource"):
                await assistant.read_resource("ps2stream://other")

    asyncio.run(talk())


def test_only_the_own_session_can_be_touched(target: str, client: Client) -> None:
    client.insert("theirs", "flood", session="another")

    async def talk() -> None:
        async with program(target, "own", "--max-subscriptions", "2") as assistant:
            assert "no subscription 'theirs'" in await refuse(
                assistant, "remove_subscription", id="theirs"
            )
            asked = {"id": "theirs", "lon": 1, "lat": 1, "text": "flood"}
            assert "no subscription 'theirs'" in await refuse(assistant, "explain", **asked)
            for query in ("a1", "b1"):
                await call(assistant, "add_subscription", query=query)
            assert "max_subscriptions" in await refuse(assistant, "add_subscription", query="c1")
            page = await call(assistant, "list_subscriptions", limit=1)
            rest = await call(assistant, "list_subscriptions", page=page["next"])
            assert [s["query"] for s in page["subscriptions"]] == ["a1"]
            assert [s["query"] for s in rest["subscriptions"]] == ["b1"]

    asyncio.run(talk())
    assert client.get("theirs").session == "another"
