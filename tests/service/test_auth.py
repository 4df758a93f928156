"""Tokens at the gate: every method of every service, scopes, revocation, the file."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from click.testing import CliRunner
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ps2stream.cli import main
from ps2stream.client.async_client import AsyncClient
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import (
    DataDirectoryError,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    Unauthenticated,
)
from ps2stream.protocol.tokens import Token, TokensReply, encode, make
from ps2stream.security import AccessScope, PortSecurity
from ps2stream.service import auth
from ps2stream.service.server import serve
from ps2stream.store.tokens import NAME, FileTokenStore


def run(*args: str) -> Any:
    """One line of JSON of the program."""
    result = CliRunner().invoke(main, [*args, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("guarded"))


@pytest.fixture(scope="module")
def root_token(data_dir: Path) -> str:
    made = run("token", "create", "--data-dir", str(data_dir), "--scope", "admin")
    assert made["scopes"] == ["admin"]
    assert (data_dir / NAME).stat().st_mode & 0o777 == 0o600
    return str(made["token"])


@pytest.fixture(scope="module")
def guarded(data_dir: Path, root_token: str) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local", port=0, workers=1, dispatchers=2, auth=True, data_dir=data_dir
    )
    with start(settings) as running:
        yield running


@pytest.fixture
def admin(guarded: RunningService, root_token: str) -> Iterator[Client]:
    with Client(guarded.targets[0], token=root_token) as client:
        yield client


def methods(target: str, token: str) -> Iterator[tuple[str, bool, bool]]:
    """Every method that the server says it has: its path, and which sides stream."""
    with grpc.insecure_channel(target) as channel:
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
        (answer,) = call(iter([ask]), metadata=[("authorization", f"Bearer {token}")])
    for service in answer.list_services_response.service:
        found = descriptor_pool.Default().FindServiceByName(service.name)
        for method in found.methods:
            path = f"/{service.name}/{method.name}"
            yield path, method.client_streaming, method.server_streaming


def code_of(target: str, path: str, sends: bool, gets: bool, token: str | None) -> Any:
    """How a call with an empty message ends; None when it is answered."""
    metadata = [] if token is None else [("authorization", f"Bearer {token}")]
    with grpc.insecure_channel(target) as channel:
        kind = f"{'stream' if sends else 'unary'}_{'stream' if gets else 'unary'}"
        call: Any = getattr(channel, kind)(path)
        try:
            answer = call(iter([b""]) if sends else b"", metadata=metadata, timeout=60)
            if gets:
                next(answer)
        except grpc.RpcError as error:
            return error.code()
        except StopIteration:
            pass
    return None


def test_every_method_refuses_who_has_no_credential(
    guarded: RunningService, root_token: str
) -> None:
    target = guarded.targets[0]
    found = list(methods(target, root_token))
    assert {path for path, _, _ in found} == set(auth.RULES)
    wrong = "ps2s_" + "0" * 16 + "_" + "0" * 64
    forged = root_token[:-1] + ("0" if root_token[-1] != "0" else "1")
    refused = grpc.StatusCode.UNAUTHENTICATED
    for path, sends, gets in found:
        for token in (None, "", "x", wrong, forged, root_token + "0"):
            want = None if path == "/grpc.health.v1.Health/Check" else refused
            assert code_of(target, path, sends, gets, token) == want, (path, token)
    assert code_of(target, "/no.Such/Method", False, False, None) == refused
    unimplemented = grpc.StatusCode.UNIMPLEMENTED
    assert code_of(target, "/no.Such/Method", False, False, root_token) == unimplemented


def test_every_method_asks_for_its_scope(guarded: RunningService, admin: Client) -> None:
    target = guarded.targets[0]
    made = {s: admin.create_token(scopes=[s])[1] for s in AccessScope}
    for path, sends, gets in methods(target, made[AccessScope.ADMIN]):
        for scope, token in made.items():
            code = code_of(target, path, sends, gets, token)
            allowed = not auth.RULES[path].scopes or scope in auth.RULES[path].scopes
            assert (code == grpc.StatusCode.PERMISSION_DENIED) == (not allowed), (path, scope)
            assert code not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNKNOWN)


def test_a_method_without_a_rule_needs_every_scope(
    guarded: RunningService, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/ps2stream.v1.PubSub/ListQueries"
    _, token = admin.create_token(scopes=["subscribe"])
    assert code_of(guarded.targets[0], path, False, False, token) is None
    monkeypatch.delitem(auth.RULES, path)
    denied = grpc.StatusCode.PERMISSION_DENIED
    assert code_of(guarded.targets[0], path, False, False, token) == denied


def test_a_token_works_for_both_clients_at_every_dispatcher(
    guarded: RunningService, admin: Client
) -> None:
    info, token = admin.create_token(scopes=["publish", "subscribe"])
    assert info in admin.tokens()
    for target in guarded.targets:
        until_known(target, token)
        with Client(target, token=token) as client:
            client.publish([{"lon": 0.0, "lat": 0.0, "text": "storm"}])
            batch = {"lon": [0.0], "lat": [0.0], "text": ["storm"]}
            assert [r.accepted for r in client.publish_stream([batch])] == [1]

    async def ask() -> int:
        async with AsyncClient(guarded.targets[0], token=token) as client:
            await client.insert("aio", "storm")
            return await client.delete("aio")

    assert asyncio.run(ask()) > 0
    admin.revoke_token(info.id)
    with pytest.raises(NotFound, match=info.id):
        admin.revoke_token(info.id)


def until_known(target: str, token: str) -> None:
    """A dispatcher hears of a new token within a second or two."""
    deadline = time.monotonic() + 60
    path = "/ps2stream.v1.PubSub/ListQueries"
    while code_of(target, path, False, False, token) == grpc.StatusCode.UNAUTHENTICATED:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_revocation_ends_open_streams_everywhere(guarded: RunningService, admin: Client) -> None:
    info, token = admin.create_token(scopes=["publish", "subscribe"])
    _, kept = admin.create_token(scopes=["publish", "subscribe"])
    for target in guarded.targets:
        until_known(target, token)
        until_known(target, kept)
    first, second = guarded.targets
    with (
        Client(first, token=token) as here,
        Client(second, token=token) as there,
        Client(first, token=kept) as stays,
        grpc.insecure_channel(second) as channel,
    ):
        stays.insert("kept", "storm", session="kept")
        subscriptions = [here.subscribe("here"), there.subscribe("there")]
        other = stays.subscribe("kept")
        hold = threading.Event()
        publish: Any = channel.stream_stream("/ps2stream.v1.PubSub/PublishStream")
        metadata = [("authorization", f"Bearer {token}")]
        idle = publish(iter(hold.wait, True), metadata=metadata)
        admin.revoke_token(info.id)
        for subscription in subscriptions:
            with pytest.raises(Unauthenticated, match="has been revoked"):
                next(iter(subscription))
        with pytest.raises(grpc.RpcError):
            next(idle)
        assert idle.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAUTHENTICATED)
        hold.set()
        with pytest.raises(Unauthenticated):
            here.insert("q", "storm")
        stays.publish([{"lon": 0.0, "lat": 0.0, "text": "storm"}])
        assert next(iter(other)).query_id == "kept"


@pytest.mark.takes_turns
def test_an_expired_token_ends_its_streams(guarded: RunningService, admin: Client) -> None:
    expires = time.time_ns() // 1_000_000 + 3000
    _, token = admin.create_token(scopes=["subscribe"], expires_ms=expires)
    with Client(guarded.targets[0], token=token) as client:
        subscription = client.subscribe("expiring")
        with pytest.raises(Unauthenticated, match="has expired"):
            next(iter(subscription))
        with pytest.raises(Unauthenticated, match="has expired"):
            client.get("q")


def test_bad_tokens_are_not_made(admin: Client) -> None:
    for given, field in (
        ({"tenant": "a b"}, "tenant"),
        ({"tenant": "x" * 65}, "tenant"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["root"]}, "scopes"),
        ({"scopes": ["unspecified"]}, "scopes"),
        ({"expires_ms": 1}, "expires_ms"),
    ):
        with pytest.raises(InvalidArgument, match=f"^{field}: "):
            admin.create_token(**given)


def test_who_reaches_an_open_service_makes_no_tokens(target: str) -> None:
    with Client(target) as client:
        with pytest.raises(FailedPrecondition, match="does not require tokens"):
            client.create_token()
        with pytest.raises(FailedPrecondition):
            client.revoke_token("0" * 16)
        assert client.tokens() == []


def test_the_program(
    guarded: RunningService, root_token: str, data_dir: Path, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{root_token}\n")
    where = ("--server", guarded.targets[0], "--token-file", str(file))
    made = run("token", "create", "--tenant", "acme", "--expires", "2h", *where)
    assert (made["tenant"], made["scopes"]) == ("acme", ["publish", "subscribe"])
    listed = CliRunner().invoke(main, ["token", "list", "--json", *where]).output
    row = next(r for r in map(json.loads, listed.splitlines()) if r["id"] == made["id"])
    secret = made.pop("token")
    assert row == made
    assert secret.split("_")[2] not in listed
    assert secret.split("_")[2] not in (data_dir / NAME).read_text()
    assert run("token", "revoke", made["id"], *where) == {"revoked": made["id"]}

    def fails(*args: str, env: dict[str, str] | None = None) -> tuple[int, str]:
        result = CliRunner().invoke(main, [*args, "--server", guarded.targets[0]], env=env)
        return result.exit_code, result.output

    assert fails("status", "--token", secret) == (10, "ps2stream: the token is not known\n")
    nothing = "ps2stream: send a token (authorization: Bearer ...) or a known certificate"
    assert fails("status") == (10, f"{nothing}; --token-file names one\n")
    empty = tmp_path / "empty"
    empty.touch()
    wrong = (2, f"ps2stream: --token-file: {empty}: is empty\n")
    assert fails("status", "--token-file", str(empty)) == wrong
    code, said = fails("status", env={"PS2STREAM_TOKEN": secret})
    assert code == 10
    assert secret not in said
    weak = run("token", "create", "--scope", "publish", *where)["token"]
    assert fails("status", "--token", weak)[0] == 11
    # An option outdoes the other one's variable.
    assert fails("status", "--token", root_token, env={"PS2STREAM_TOKEN_FILE": "/none"})[0] == 0
    in_use = CliRunner().invoke(main, ["token", "list", "--data-dir", str(data_dir)])
    assert in_use.exit_code == 8
    assert "is in use by process" in in_use.output


def test_tokens_outlive_the_service_and_damage_is_told(tmp_path: Path) -> None:
    data = str(tmp_path)
    made = run("token", "create", "--data-dir", data, "--expires", "2099-01-01")
    gone = run("token", "create", "--data-dir", data)
    run("token", "revoke", gone["id"], "--data-dir", data)
    assert run("token", "list", "--data-dir", data)["id"] == made["id"]
    missing = CliRunner().invoke(main, ["token", "revoke", gone["id"], "--data-dir", data])
    assert missing.exit_code == 3
    settings = Settings(runtime="local", port=0, workers=1, auth=True, data_dir=tmp_path)
    for _ in range(2):
        with start(settings) as running:
            with Client(running.targets[0], token=made["token"]) as client:
                client.insert("q", "storm")
            client = Client(running.targets[0], token=gone["token"])
            with client, pytest.raises(Unauthenticated):
                client.insert("q", "storm")
            client = Client(running.targets[0], token=made["token"])
            with client, pytest.raises(PermissionDenied):
                client.status()
    file = tmp_path / NAME
    sound = file.read_bytes()
    for at in range(len(sound)):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
        with (
            FileTokenStore(tmp_path) as store,
            pytest.raises(DataDirectoryError, match="is damaged"),
        ):
            store.tokens()
    with pytest.raises(DataDirectoryError, match="is damaged"):
        start(settings)
    file.unlink()  # its loss locks everyone out
    with start(settings) as running:
        client = Client(running.targets[0], token=made["token"])
        with client, pytest.raises(Unauthenticated):
            client.get("q")


@pytest.mark.parametrize(
    "bad", ["--expires=soon", "--expires=2001-01-01", "--scope=root", "--tenant=a b"]
)
def test_bad_options_are_named(bad: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["token", "create", "--data-dir", str(tmp_path), bad])
    assert result.exit_code == 2
    assert not (tmp_path / NAME).exists()


class Silent:
    """A gateway whose sequencer answers once, and then no more."""

    def __init__(self, held: list[Token]) -> None:
        self.now = 1_000_000
        self._reply: TokensReply | None = TokensReply(0, 0, np.frombuffer(encode(held), np.uint8))

    def clock_ms(self) -> int:
        return self.now

    never_blocks = False
    sharers = 1

    def tell_congestion(self, *_: object) -> None:
        """There is none."""

    def tokens(self, *_: object) -> Future[TokensReply]:
        found: Future[TokensReply] = Future()
        if self._reply is not None:
            found.set_result(self._reply)
            self._reply = None
        return found


def test_a_dispatcher_that_hears_nothing_of_tokens_refuses_them() -> None:
    made = make(bytes(40), "", frozenset({AccessScope.SUBSCRIBE}), 0)
    gateway: Any = Silent([made.token])
    server = serve(gateway, "127.0.0.1", 0, PortSecurity(auth=True))
    target = f"127.0.0.1:{server.port}"
    ask = ("/ps2stream.v1.PubSub/Deliver", True, True, made.text)
    bad_request = code_of(target, *ask)
    assert bad_request == grpc.StatusCode.INVALID_ARGUMENT
    gateway.now += 61_000
    assert code_of(target, *ask) == grpc.StatusCode.UNAVAILABLE
    server.stop(0)


def test_a_service_that_nobody_can_call_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(runtime="local", port=0, workers=1, auth=True, data_dir=tmp_path)
    with start(settings):
        assert "nobody can call" in caplog.text
        assert "token create --data-dir" in caplog.text


@pytest.mark.takes_turns
def test_strangers_hold_no_thread(guarded: RunningService, admin: Client) -> None:
    """Calls that never send their message: refused at once, or few and ended soon; they keep
    nobody else out."""
    hold = threading.Event()
    with grpc.insecure_channel(guarded.targets[0]) as channel:

        def silent(path: str) -> Any:
            call: Any = channel.stream_unary(path)
            return call.future(iter(hold.wait, True))

        for _ in range(3):
            refused = silent("/ps2stream.v1.PubSub/GetQuery")
            assert refused.exception(timeout=60).code() == grpc.StatusCode.UNAUTHENTICATED
        checks = [silent("/grpc.health.v1.Health/Check") for _ in range(auth.OPEN_CALLS + 3)]
        ended = threading.Event()
        for call in checks:
            call.add_done_callback(lambda _: ended.set())
        assert ended.wait(60)  # there were too many
        check = code_of(guarded.targets[0], "/grpc.health.v1.Health/Check", False, False, None)
        assert check is None
        codes = {check.exception(timeout=30).code() for check in checks}
        assert codes == {grpc.StatusCode.CANCELLED}
        hold.set()


def test_logs_hold_no_tokens(
    guarded: RunningService, root_token: str, caplog: pytest.LogCaptureFixture
) -> None:
    secret = root_token.split("_")[2]
    with caplog.at_level(logging.DEBUG), Client(guarded.targets[0], token=root_token) as client:
        made = client.create_token(scopes=["publish"])[1]
        with pytest.raises(PermissionDenied) as denied:
            client.get("q")
        client.revoke_token(made.split("_")[1])
        with Client(guarded.targets[0], token=made) as gone, pytest.raises(Unauthenticated) as no:
            gone.publish([])
    for text in (caplog.text, str(denied.value), str(no.value), repr(client)):
        assert secret not in text
        assert made.split("_")[2] not in text
