"""Ray's token: the mode that demands one is set before Ray is imported. test_service.py has
strangers try to join."""

from __future__ import annotations

import sys

import pytest

from ps2stream.cluster import ray_environment
from ps2stream.errors import FailedPrecondition


def test_the_mode_is_set_before_ray_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    environ: dict[str, str] = {}
    ray_environment.prepare(environ)
    assert environ[ray_environment.MODE] == "token"
    assert len(environ[ray_environment.TOKEN]) == 64
    before = dict(environ)
    ray_environment.prepare(environ)
    assert environ == before
    assert environ[ray_environment.NICENESS] == "0"  # Ray's own is 15
    ray_environment.prepare(environ, niceness=19)
    assert environ[ray_environment.NICENESS] == "19"
    configured = {ray_environment.TOKEN_PATH: "/token"}
    ray_environment.prepare(configured)
    assert ray_environment.TOKEN not in configured
    monkeypatch.setitem(sys.modules, "ray", sys)
    ray_environment.prepare(before)
    with pytest.raises(FailedPrecondition, match="imported before RAY_AUTH_MODE=token"):
        ray_environment.prepare({})


def test_a_ray_without_a_token_is_not_joined(caplog: pytest.LogCaptureFixture) -> None:
    ray_environment.check_joined({ray_environment.MODE: "token"})
    open_one = {ray_environment.MODE: "disabled"}
    ray_environment.prepare(open_one)
    assert "can run code on this host" in caplog.text
    with pytest.raises(FailedPrecondition, match="requires no token"):
        ray_environment.check_joined(open_one)
