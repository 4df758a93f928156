"""Service to Slack and ntfy: messages that people read, each until it is there."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.connectors.conftest import Program, World
from tests.support.message_receivers import NtfyServer, SlackChannel
from tests.support.webhook_receiver import Receiver, serving

pytestmark = [pytest.mark.slow, pytest.mark.takes_turns]

LINK = "https://market.example/ads/{object_id}?a=1&q={query_id}"
HOSTILE = (
    "flat <!channel> <@U123> @here @everyone <https://evil.example|your bank> & *b*\r\n"
    "Title: x\nBcc: all \u202etxet\u202c \x1b[31m \x00 \u2028end"
)


def publish(world: World, session: str, *texts: str, **more: Any) -> None:
    with world.client() as client:
        client.insert(session, "flat", session=session)
        rows = [
            {"id": f"ad/{n}", "lon": 1, "lat": 2, "text": text, "time": 5, "attributes": more}
            for n, text in enumerate(texts)
        ]
        client.publish(rows)


def to_slack(world: World, session: str, to: Receiver, folder: Path, *more: str) -> Program:
    secret = folder / f"{session}.url"
    secret.write_text(f"{to.url}/T0/B0/only-for-tests\n")
    where = ["--session", session, "--url-file", str(secret), "--link", LINK]
    return world.connect("slack", *where, *more)


def to_ntfy(world: World, session: str, to: NtfyServer, folder: Path, *more: str) -> Program:
    token = folder / "token"
    token.write_text(to.token + "\n")
    where = ["--session", session, "--url", to.url, "--topic", "flats-4hJ2", "--tag", "house"]
    return world.connect("ntfy", *where, "--ntfy-token-file", str(token), *more)


def test_slack_gets_each_text_as_plain_text_in_order(world: World, tmp_path: Path) -> None:
    publish(world, "slacked", "flat one", HOSTILE, "flat " + "&" * 60_000, price=450, new=True)
    with serving(SlackChannel()) as channel:
        channel.script = [503, None, (429, {"retry-after": "1"})]
        how = ("--batch", "1", "--show", "price", "--show", "new", "--show", "none")
        connector = to_slack(world, "slacked", channel, tmp_path, *how)
        connector.until(lambda line: line.get("done") == 3)
    assert connector.stop()["retries"] == 3
    assert "only-for-tests" not in connector.complained
    assert all(r.good for r in channel.requests)
    one, hostile, long = [message["text"] for message in channel.accepted]
    assert one == (
        "slacked\nflat one (price: 450, new: yes, 2.00000, 1.00000) "
        "https://market.example/ads/ad%2F0?a=1&amp;q=slacked"
    )
    assert len(hostile.splitlines()) == len(long.splitlines()) == 2
    assert "&lt;!channel&gt; &lt;@\u2060U123&gt; @\u2060here @\u2060everyone" in hostile
    assert not set(hostile) & set("<>\u202e\u202c\x1b\x00\u2028@ ") - {"@", " "}
    assert long.count("&amp;") < 300
    assert not any(message["mrkdwn"] for message in channel.accepted)


def test_ntfy_gets_one_notification_for_matches_of_one_moment(world: World, tmp_path: Path) -> None:
    publish(world, "pushed", "flat one", HOSTILE, "flat three")
    with serving(NtfyServer()) as server:
        how = ("--interval", "30", "--batch", "3", "--link", LINK)
        connector = to_ntfy(world, "pushed", server, tmp_path, *how)
        connector.until(lambda line: line.get("done") == 3)
        publish(world, "pushed", "flat four")
        publish(world, "pushed", "flat five")
        publish(world, "pushed", "flat six")
        connector.until(lambda line: line.get("done") == 6)
        connector.stop()
        connector = to_ntfy(world, "pushed", server, tmp_path, "--link", LINK)
        publish(world, "pushed", "flat seven")
        connector.until(lambda line: line.get("done") == 1)
        connector.stop()
    assert all(r.good for r in server.requests)
    first, second, single = server.accepted
    assert first["title"] == second["title"] == "3 matches in pushed"
    lines = first["message"].splitlines()
    assert [line.split(" (")[0] for line in lines][::2] == [
        "pushed: flat one",
        "pushed: flat three",
    ]
    assert (first["tags"], first["priority"], "click" in first) == (["house"], 3, False)
    assert (single["title"], single["message"]) == ("pushed", "flat seven (2.00000, 1.00000)")
    assert single["click"] == "https://market.example/ads/ad%2F0?a=1&q=pushed"
    assert len({message["sequence_id"] for message in server.accepted}) == 3


def test_matches_that_wait_for_others_stay_when_the_sink_is_stopped(
    world: World, tmp_path: Path
) -> None:
    publish(world, "patient", "flat one")
    with serving(NtfyServer()) as server:
        connector = to_ntfy(world, "patient", server, tmp_path, "--interval", "3600")
        connector.until(lambda line: line.get("waiting") == 1)
        assert connector.stop()["waiting"] == 1
        assert not server.requests
        connector = to_ntfy(world, "patient", server, tmp_path)
        connector.until(lambda line: line.get("done") == 1)
        connector.stop()
        assert len(server.requests) == 1


def test_a_killed_sink_loses_nothing_and_keeps_the_order(world: World, tmp_path: Path) -> None:
    publish(world, "doomed", *(f"flat {n}" for n in range(6)))
    with serving(NtfyServer()) as server:
        server.script = [200, 200]
        connector = to_ntfy(world, "doomed", server, tmp_path, "--batch", "1")
        server.until(2)
        connector.kill()
        world.kill()
        world.start()
        connector = to_ntfy(world, "doomed", server, tmp_path, "--batch", "1")
        while "flat 5" not in server.requests[-1].body["message"]:
            server.until(len(server.requests) + 1)
        connector.stop()
    numbers = [int(message["message"].split()[1]) for message in server.accepted]
    assert sorted(set(numbers)) == list(range(6))
    assert sum(b <= a for a, b in pairwise(numbers)) <= 1, "once a kill"
    assert len({message["sequence_id"] for message in server.accepted}) == 6


def test_what_is_refused_ends_the_sink_or_is_put_away(world: World, tmp_path: Path) -> None:
    publish(world, "denied", "flat one", "flat two")
    letters = tmp_path / "letters"
    with serving(SlackChannel()) as channel:
        channel.script = [(302, {"location": "http://127.0.0.2/"})]
        code, error = to_slack(world, "denied", channel, tmp_path, "--batch", "1").failed()
        assert (code, error["code"]) == (7, "failed_precondition")
        assert "redirects are not followed" in error["message"]
        channel.script = [403]
        away = ("--batch", "1", "--dead-letters", str(letters))
        connector = to_slack(world, "denied", channel, tmp_path, *away)
        connector.until(lambda line: line.get("done") == 2)
        connector.stop()
        assert "answered 403 Forbidden" in letters.read_text()
        denied = to_slack(world, "denied", channel, tmp_path, "--public-only")
        assert denied.failed()[0] == 2
    for program in (connector, denied):
        assert "only-for-tests" not in program.complained
