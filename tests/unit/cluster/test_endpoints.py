"""Where clients reach dispatchers: ports that stay, and the list of those that have listened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ps2stream.cluster import endpoints as endpoints_module
from ps2stream.cluster.actor_home import ActorHome
from ps2stream.cluster.endpoints import DispatcherEndpoints
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument, Unavailable, invalid

HOME = ActorHome("node", "10.0.0.1", "boot")


class Actor:
    """Listens at the port that it is given, or at a free one."""

    def __init__(self, free: int, is_taken: bool = False) -> None:
        self.free, self.is_taken = free, is_taken
        self.asked: list[int] = []
        self.serve = self

    def remote(self, _host: str, port: int, _security: object, private: Path | None) -> Any:
        self.asked.append(port)
        if self.is_taken:
            raise invalid("port", "in use")
        assert private is None
        return port or self.free


def endpoints(settings: Settings) -> DispatcherEndpoints:
    return DispatcherEndpoints(settings, lambda _: None, lambda call: call)


def test_a_successor_listens_where_the_first_one_did() -> None:
    found = endpoints(Settings(port=0))
    found.open(0, Actor(7001), HOME)
    later = Actor(7999)
    found.open(0, later, HOME)
    assert later.asked == [7001]
    assert found.targets == ["127.0.0.1:7001"]


def test_those_that_join_have_the_next_ports() -> None:
    found = endpoints(Settings(port=7100, dispatchers=1))
    for index in (1, 0):
        found.open(index, Actor(0), HOME)
    assert found.targets == ["127.0.0.1:7100", "127.0.0.1:7101"]
    assert 1 in found
    assert 2 not in found


def test_a_port_in_use_is_no_endpoint() -> None:
    found = endpoints(Settings(port=7100))
    with pytest.raises(InvalidArgument):
        found.open(1, Actor(0, is_taken=True), HOME)
    assert 1 not in found
    assert found.targets == []


def test_a_dispatcher_that_never_comes_to_serve_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(endpoints_module, "READY_S", 0.0)

    class Late:
        class ready:
            @staticmethod
            def remote() -> bool:
                return False

    with pytest.raises(Unavailable, match="the ledger was not replayed"):
        endpoints(Settings(port=0)).await_ready(Late())
    assert not endpoints(Settings(port=0)).is_ready(Late())


def test_a_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    found = endpoints(Settings(port=0))
    for _ in range(2):
        found.note_refusal(1, invalid("port", "in use"))
    assert caplog.text.count("dispatcher-1 has no endpoint; retrying: port: in use") == 1
