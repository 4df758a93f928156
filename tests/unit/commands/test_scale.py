"""Whom `scale` asks whether dispatchers have left."""

from __future__ import annotations

import pytest

from ps2stream.commands.scale import choose_staying

LOCAL = ["127.0.0.1:7077", "127.0.0.1:7078", "127.0.0.1:7079"]
HOSTS = ["10.0.0.1:7077", "10.0.0.2:7077", "10.0.0.3:7077"]
ANY = ["0.0.0.0:7077", "0.0.0.0:7078", "0.0.0.0:7079"]


@pytest.mark.parametrize(
    ("server", "endpoints", "chosen"),
    [
        ("127.0.0.1:7077", LOCAL, "127.0.0.1:7077"),
        ("localhost:7078,127.0.0.1:7077", LOCAL, "127.0.0.1:7077"),
        ("localhost:7079", LOCAL, "127.0.0.1:7077"),
        ("example.com:7079", ANY, "example.com:7077"),
        ("unix:/run/socket", LOCAL, "unix:/run/socket"),
        ("balancer:443", LOCAL, "balancer:443"),
        ("10.0.0.1:7077,10.0.0.3:7077", HOSTS, "10.0.0.1:7077"),
        ("10.0.0.2:7077", HOSTS, "10.0.0.1:7077"),
        ("balancer:7077", HOSTS, "balancer:7077"),
    ],
)
def test_no_dispatcher_that_leaves_is_asked(server: str, endpoints: list[str], chosen: str) -> None:
    assert choose_staying(server, endpoints, 1) == chosen
