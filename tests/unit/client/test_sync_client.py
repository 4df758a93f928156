"""The synchronous client is the asynchronous one."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType

import pytest

from ps2stream.client import async_channel, channel
from ps2stream.client.async_client import AsyncClient
from ps2stream.client.async_subscription import AsyncSubscription
from ps2stream.client.client import Client
from ps2stream.client.subscription import Subscription
from scripts.sync_client import CLIENT, NAMES, PHRASES, convert_modules


def public_signatures(kind: type) -> dict[str, list[tuple[str, object]]]:
    """The parameters of each public method, with their defaults."""
    return {
        name: [(p.name, p.default) for p in inspect.signature(value).parameters.values()]
        for name, value in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }


def test_the_written_modules_are_up_to_date() -> None:
    for name, text in convert_modules().items():
        assert (CLIENT / f"{name}.py").read_text() == text, "run python scripts/sync_client.py"


def test_each_phrase_is_somewhere() -> None:
    modules = " ".join(" ".join(path.read_text() for path in CLIENT.glob("*.py")).split())
    for phrase in (*PHRASES, *PHRASES.values()):
        assert " ".join(phrase.split()) in modules


@pytest.mark.parametrize("kinds", [(AsyncClient, Client), (AsyncSubscription, Subscription)])
def test_both_clients_have_the_same_methods(kinds: tuple[type, type]) -> None:
    one, other = map(public_signatures, kinds)
    assert one == other
    assert len(one) > 5


def test_both_channels_have_the_same_names() -> None:
    def names(module: ModuleType) -> set[str]:
        return {name for name in vars(module) if not name.startswith("_")}

    assert {NAMES.get(name, name) for name in names(async_channel)} >= {
        name for name in names(channel) if name in NAMES.values()
    }
    for one, other in ((async_channel.AsyncChannel, channel.Channel),):
        assert public_signatures(one) == public_signatures(other)
    assert public_signatures(async_channel.AsyncStream) == public_signatures(channel.Stream)


def test_nothing_asynchronous_is_left() -> None:
    for name in ("caller", "admin", "client", "subscription"):
        module = importlib.import_module(f"ps2stream.client.{name}")
        source = inspect.getsource(module).partition("\n")[2]
        assert "async" not in source.lower().replace("async_", "")
        assert "await" not in source
