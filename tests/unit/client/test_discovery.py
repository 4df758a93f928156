"""What a client makes of the addresses that a dispatcher lists."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ps2stream.client import discovery
from ps2stream.client.connection import access
from ps2stream.client.discovery import DispatcherFinder
from ps2stream.client.spreading import DispatcherChoice
from ps2stream.errors import Unavailable
from ps2stream.v1.pubsub_pb2 import ListDispatchersResponse


def learn(finder: DispatcherFinder, *endpoints: str) -> list[str]:
    found = finder.read_answer(ListDispatchersResponse(endpoints=endpoints).SerializeToString())
    return [finder.targets[number] for number in found]


def test_those_that_are_new_come_behind_those_that_are_known() -> None:
    finder = DispatcherFinder(access("a:1,b:1"))
    assert learn(finder, "b:1", "c:1") == ["b:1", "c:1"]
    assert learn(finder, "d:1", "c:1") == ["d:1", "c:1"]
    assert finder.targets == ["a:1", "b:1", "c:1", "d:1"]


@pytest.mark.parametrize("anywhere", ["0.0.0.0:7", "[::]:7"])
def test_a_host_that_is_any_is_the_one_that_was_given(anywhere: str) -> None:
    assert learn(DispatcherFinder(access("db.example:1")), anywhere) == ["db.example:7"]
    assert learn(DispatcherFinder(access("unix:/tmp/a")), anywhere) == [anywhere]


def test_a_token_does_not_travel_to_another_machine_in_plaintext(tmp_path: Path) -> None:
    far = "10.1.2.3:7"
    finder = DispatcherFinder(access("localhost:1", "token"))
    assert learn(finder, far, "127.0.0.1:2") == ["127.0.0.1:2"]
    assert far not in finder.targets
    assert learn(DispatcherFinder(access("localhost:1")), far) == [far]
    assert learn(DispatcherFinder(access("a:1", "token", tls_ca="system")), far) == [far]


def test_more_than_the_limit_and_garbage_are_left_out() -> None:
    finder = DispatcherFinder(access("a:1"))
    assert len(learn(finder, *(f"h:{i}" for i in range(70)))) == 64
    assert finder.read_answer(b"\xff\xff") == []


def test_one_caller_asks_and_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    finder = DispatcherFinder(access("a:1", discover=True))
    assert [finder.begin_question() for _ in range(3)] == [True, False, False]
    begun = time.monotonic()
    for share, asks in ((0.5, False), (1.1, True), (1.6, False), (2.2, True)):
        monkeypatch.setattr(time, "monotonic", lambda: begun + share * discovery.LISTED_S)  # noqa: B023
        assert finder.begin_question() is asks, "what comes in between puts nothing off"
    assert not DispatcherFinder(access("a:1")).begin_question()


def test_those_that_were_given_are_called_when_none_of_the_listed_answers() -> None:
    choice = DispatcherChoice(1)
    choice.prefer([1, 2], 3)
    assert {choice.begin_call().number for _ in range(20)} == {1, 2}
    for number in (1, 2):
        choice.end_call(number, False, Unavailable("gone"))
    assert {choice.begin_call().number for _ in range(20)} == {0}
