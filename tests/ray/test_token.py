"""Ray's own ports: who has no token does not get in."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from ps2stream.client.client import Client
from ps2stream.cluster import ray_environment
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import FailedPrecondition, Unauthenticated
from ps2stream.protocol.tokens import make
from ps2stream.security import AccessScope, TenantQuota
from ps2stream.store.tokens import FileTokenStore

JOIN = "import ray, sys; ray.init(address=sys.argv[1], logging_level='ERROR'); print(ray.nodes())"


def joins(address: str, environ: dict[str, str]) -> bool:
    """Whether a process with this environment may use the Ray at `address`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    found = subprocess.run(
        [sys.executable, "-c", JOIN, address],
        env=clean | environ, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return found.returncode == 0 and "NodeID" in found.stdout


@pytest.mark.ray
def test_ray_asks_for_a_token_and_the_service_too(tmp_path: Path) -> None:
    made = make(os.urandom(40), "acme", frozenset({AccessScope.SUBSCRIBE}), 0)
    data, home = tmp_path / "data", tmp_path / "home"
    home.mkdir()
    with FileTokenStore(data) as store:
        store.keep_tokens([made.token])
    settings = Settings(port=0, workers=1, data_dir=data, auth=True, quotas={"acme": TenantQuota()})
    with start(settings) as service:
        import ray

        address = ray.get_runtime_context().gcs_address
        file = data / ray_environment.NAME
        assert file.stat().st_mode & 0o777 == 0o600
        here = {"HOME": str(home)}
        token = here | {ray_environment.MODE: "token"}
        tries = (
            here | {ray_environment.MODE: "disabled"},
            token | {ray_environment.TOKEN: "0" * 64},
            token | {ray_environment.TOKEN_PATH: str(file)},
        )
        with ThreadPoolExecutor(len(tries)) as pool:  # a refusal takes Ray half a minute
            assert list(pool.map(partial(joins, address), tries)) == [False, False, True]
        with Client(service.targets[0], token=made.text) as client:
            client.insert("q", "storm")
            assert [q.id for q in client.list()] == ["q"]
        with Client(service.targets[0]) as stranger, pytest.raises(Unauthenticated):
            stranger.get("q")
    assert not file.exists()


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
