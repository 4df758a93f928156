"""Tenants: two of them, with the same names, see nothing of each other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from ps2stream.client.answers import WatchReport
from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import AlreadyExists, InvalidArgument, NotFound, ResourceExhausted
from ps2stream.protocol.tokens import make
from ps2stream.security import AccessScope, TenantQuota
from ps2stream.space.regions import Rect
from ps2stream.store.tokens import FileTokenStore
from ps2stream.v1 import explain_pb2, object_pb2, pubsub_pb2

ALL = frozenset(AccessScope)
TENANTS = ("acme", "zeta", "small", "")
STORM = {"lon": 0.0, "lat": 0.0, "text": "storm"}


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = Path(tmp_path_factory.mktemp("tenants"))
    made = {t: make(bytes([i]) * 40, t, ALL, 0) for i, t in enumerate(TENANTS)}
    with FileTokenStore(folder) as store:
        store.keep_tokens([m.token for m in made.values()])
    return folder, {tenant: m.text for tenant, m in made.items()}


@pytest.fixture(scope="module")
def shared(secrets: tuple[Path, dict[str, str]]) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local", port=0, workers=2, mergers=2, auth=True, data_dir=secrets[0],
        quotas={
            "small": TenantQuota(queries=3, sessions=2, streams=1, objects_per_s=10),
            "default": TenantQuota(bytes_per_s=1_000_000),
        },
    )  # fmt: skip
    with start(settings) as running:
        yield running


@pytest.fixture
def clients(shared: RunningService, secrets: tuple[Path, dict[str, str]]) -> Iterator[list[Client]]:
    made = [Client(shared.targets[0], token=secrets[1][t], timeout=90) for t in TENANTS]
    yield made
    for client in made:
        client.close()


def test_the_same_names_are_different_things(clients: list[Client]) -> None:
    for client, words in zip(clients, ("storm", "flood", "fire", "storm OR flood"), strict=True):
        client.insert("q", words, session="s")
        client.insert("q", words, session="s")
        with pytest.raises(AlreadyExists):
            client.insert("q", "other", session="s")
    texts = ("storm", "flood", "fire")
    streams = [client.subscribe("s") for client in clients]
    clients[0].publish([{"lon": 0.0, "lat": 0.0, "text": text, "id": text} for text in texts])
    found = []
    for stream, count in zip(streams, (1, 1, 1, 2), strict=True):
        matches = iter(stream)
        found.append([next(matches) for _ in range(count)])
        stream.close()
    assert [[m.text for m in each] for each in found] == [
        ["storm"], ["flood"], ["fire"], ["storm", "flood"],
    ]  # fmt: skip
    assert {m.query_id for each in found for m in each} == {"q"}
    acme, zeta, small, nobody = clients
    assert [acme.get("q").expression, zeta.get("q").expression] == ["storm", "flood"]
    for client in clients:
        assert [(q.id, q.session) for q in client.list()] == [("q", "s")]
        assert [q.id for q in client.list("s")] == ["q"]
    acme.delete("q")
    assert zeta.get("q").expression == "flood"
    for client in (zeta, small, nobody):
        assert [q.id for q in client.list()] == ["q"]
        client.delete("q")


def answers(client: Client, name: str) -> list[object]:
    """All that a client can ask about a name."""
    said: list[object] = []
    for ask in (client.get, client.delete):
        try:
            ask(name)
        except NotFound as error:
            said.append(str(error))
    refused: list[object] = []
    said.append(client.delete_many([name], refused=refused))  # type: ignore[arg-type]
    said += [str(r) for r in refused]
    said += [list(client.list("hidden")), list(client.list(name))]
    request = pubsub_pb2.ListQueriesRequest(session="hidden", page_token="1")
    said.append(client._call_rpc("ListQueries", request, pubsub_pb2.ListQueriesResponse).total_live)
    return said


def test_what_belongs_to_another_is_not_there(clients: list[Client]) -> None:
    acme, zeta, _, nobody = clients
    for intruder in (zeta, nobody):
        before = answers(intruder, "secret")
        acme.insert("secret", "storm", session="hidden")
        assert answers(intruder, "secret") == before
        assert before[0] == "there is no query 'secret'"
        acme.delete("secret")


def test_an_explanation_is_of_the_tenants_own_query(clients: list[Client]) -> None:
    acme, zeta, _, plain = clients
    acme.insert("theirs", "storm", session="s")
    told = acme.explain("theirs", STORM)
    assert (told["matches"], told["query"]["id"], told["query"]["session"]) == (True, "theirs", "s")
    for other in (zeta, plain):
        with pytest.raises(NotFound) as known:
            other.explain("theirs", STORM)
        with pytest.raises(NotFound) as unknown:
            other.explain("nobodys", STORM)
        assert str(known.value).replace("theirs", "nobodys") == str(unknown.value)
        with pytest.raises(InvalidArgument, match="NUL"):
            other.explain("acme\0theirs", STORM)
    acme.delete("theirs")
    with pytest.raises(NotFound):
        acme.explain("theirs", STORM)


def test_answers_are_equal_whatever_others_listen_for(
    clients: list[Client], shared: RunningService, secrets: tuple[Path, dict[str, str]]
) -> None:
    """The same bytes of ExplainMatch before and after another tenant's queries, which send the
    same object elsewhere, too."""
    acme, zeta, _, _ = clients
    acme.insert("mine", "storm", Rect(-1, -1, 1, 1), session="s")
    things = [object_pb2.Object(lon=0, lat=0, text=t) for t in ("storm", "calm sea", "storm sea")]
    path, token = "/ps2stream.v1.PubSub/ExplainMatch", secrets[1]["acme"]
    with grpc.insecure_channel(shared.targets[0]) as channel:
        explain: Any = channel.unary_unary(path)

        def explained() -> list[bytes]:
            requests = [
                explain_pb2.ExplainMatchRequest(query_id="mine", object=thing) for thing in things
            ]
            metadata = [("authorization", f"Bearer {token}")]
            return [explain(r.SerializeToString(), 60, metadata) for r in requests]

        before = explained()
        for i, word in enumerate(("storm", "sea", "calm", "", "calm OR sea OR storm")):
            zeta.insert(f"theirs{i}", word, Rect(-2, -2, 2, 2), session="s")
        assert explained() == before
    assert {len(explain_pb2.ExplainMatchResponse.FromString(b).sent_to) for b in before} == {0, 1}
    acme.delete("mine")
    for i in range(5):
        zeta.delete(f"theirs{i}")


def test_producers_of_one_name_are_different_ones(clients: list[Client]) -> None:
    batches = [[STORM | {"text": text}] for text in ("one", "two", "three", "four")]
    receipts = [
        client.publish(batch, producer="p", seq=1)
        for client, batch in zip(clients, batches, strict=True)
    ]
    assert len({receipt.first_offset for receipt in receipts}) == len(clients)
    for client, batch, first in zip(clients, batches, receipts, strict=True):
        assert client.publish(batch, producer="p", seq=1) == first
        with pytest.raises(AlreadyExists, match="producer 'p' was published"):
            client.publish([STORM], producer="p", seq=1)


@pytest.mark.parametrize(("scopes", "expected"), [({AccessScope.SUBSCRIBE}, 3), (ALL, 6)])
def test_only_operators_see_how_many_matches_others_have(
    clients: list[Client], scopes: set[AccessScope], expected: int
) -> None:
    acme, zeta, _, _ = clients
    _, secret = acme.create_token("acme", scopes)
    for client in (acme, zeta):
        client.insert("hail", "hail", session="s")
    with Client(acme.target, token=secret, timeout=90) as watcher:
        stream = watcher.watch()
        next(stream)
        zeta.publish([STORM | {"text": "hail"}] * 3)
        seen: list[WatchReport] = []
        while sum(len(w.matches) for w in seen) < 3 or sum(w.matched for w in seen) < expected:
            seen.append(next(stream))
        seen += [next(stream) for _ in range(2)]
        assert sum(w.matched for w in seen) == expected
    for client in (acme, zeta):
        client.delete("hail")


def test_a_name_cannot_be_made_to_look_like_anothers(clients: list[Client]) -> None:
    acme, zeta, _, nobody = clients
    acme.insert("mine", "storm", session="mine")
    for client in (zeta, nobody):
        for name in ("acme\0mine", "\0mine", "mine\0"):
            calls: list[Callable[[], object]] = [
                partial(client.get, name),
                partial(client.delete, name),
                partial(client.insert, name, "storm"),
                partial(client.insert, "q", "storm", session=name),
                partial(next, client.list(name)),
                partial(client.subscribe, name),
                partial(client.delete_many, [name]),
                partial(client.insert_many, [(name, "storm")]),
                partial(client.insert_many, [("q", "storm")], session=name),
            ]
            for call in calls:
                with pytest.raises(InvalidArgument, match="contains a NUL character"):
                    call()
        # Neither by a name that looks like a prefix of the other's.
        assert list(client.list("acme")) == []
    acme.delete("mine")


def test_bulk_inserts_and_pages_are_the_tenants_own(clients: list[Client]) -> None:
    acme, zeta, _, nobody = clients
    many = [(f"q{i}", "storm" if i % 2 else "flood") for i in range(300)]
    for client in (acme, zeta, nobody):
        assert all(client.insert_many(many, session="bulk"))
    for client in (acme, zeta, nobody):
        assert [q.id for q in client.list(page_size=7)] == [id_ for id_, _ in many]
    assert all(acme.delete_many([id_ for id_, _ in many]))
    assert list(acme.list()) == []
    assert len(list(zeta.list())) == len(list(nobody.list())) == 300
    request = pubsub_pb2.ListQueriesRequest(page_size=1)
    totals = [
        c._call_rpc("ListQueries", request, pubsub_pb2.ListQueriesResponse).total_live
        for c in (acme, zeta, nobody)
    ]
    assert totals == [0, 300, 300]
    assert zeta.status()["live_queries"] == 600  # an admin's: the whole service
    for client in (zeta, nobody):
        client.delete_many([id_ for id_, _ in many])


def test_the_planner_is_told_everybodys_queries(clients: list[Client]) -> None:
    for client, words in zip(clients, ("one", "two", "three", "four"), strict=True):
        client.insert("planned", words, session="s")
    try:
        found = [q for q in clients[3].list_all(page_size=2) if q.id == "planned"]
        assert [q.expression for q in found] == ["one", "two", "three", "four"]
        with pytest.raises(InvalidArgument, match="page_size"):
            next(clients[3].list_all(page_size=-1))
    finally:
        for client in clients:
            client.delete("planned")


def test_quotas_on_what_a_tenant_has(
    shared: RunningService, clients: list[Client], secrets: tuple[Path, dict[str, str]]
) -> None:
    acme, _, small, _ = clients
    with Client(shared.targets[0], token=secrets[1]["small"], timeout=2.0) as hasty:
        for id_ in ("a", "b", "c"):
            small.insert(id_, "storm", session="s")
        small.insert("a", "storm", session="s")  # a repeat takes no room
        with pytest.raises(
            ResourceExhausted, match=r"the tenant has 3 live queries, .* \(queries\)"
        ):
            hasty.insert("d", "storm", session="s")
        refused: list[object] = []
        lsns = hasty.insert_many(
            [("b", "storm"), ("d", "storm")],
            session="s",
            refused=refused,  # type: ignore[arg-type]
        )
        assert (lsns[0] > 0, lsns[1]) == (True, 0)
        assert "3 live queries" in str(refused)
        hasty.delete("c")
        hasty.insert("d", "storm", session="s")
        hasty.delete("d")
        hasty.insert("e", "storm", session="t2")
        hasty.delete("e")
        with pytest.raises(ResourceExhausted, match=r"the tenant has 2 sessions, .* \(sessions\)"):
            hasty.insert("f", "storm", session="third")
        with pytest.raises(ResourceExhausted, match=r"the tenant has 2 sessions, .* \(sessions\)"):
            hasty.subscribe("third")
        with hasty.subscribe("s"), pytest.raises(ResourceExhausted, match="quota streams"):
            hasty.subscribe("t2")
        acme.insert("d", "storm", session="third")
        acme.delete("d")
        small.delete_many(["a", "b"])


def refusal(target: str, token: str) -> str:
    """What a publication is refused with at its first attempt; clients try again."""
    batch = object_pb2.ObjectBatch(objects=[object_pb2.Object(lon=0.0, lat=0.0, text="storm")])
    data = pubsub_pb2.PublishRequest(batch=batch).SerializeToString()
    with grpc.insecure_channel(target) as channel:
        call: Any = channel.unary_unary("/ps2stream.v1.PubSub/Publish")
        with pytest.raises(grpc.RpcError) as caught:
            call(data, metadata=[("authorization", f"Bearer {token}")], timeout=60)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    return str(caught.value.details())


def test_quotas_on_what_a_tenant_publishes(
    shared: RunningService, clients: list[Client], secrets: tuple[Path, dict[str, str]]
) -> None:
    target, tokens = shared.targets[0], secrets[1]
    _, zeta, small, _ = clients
    small.publish([STORM] * 600)  # a minute's worth, so that the next ones wait
    assert re.search(r"10 is .* quota \(objects_per_s\)", refusal(target, tokens["small"]))
    (receipt,) = small.publish_stream([[STORM]])
    assert (receipt.accepted, 0 < receipt.retry_after_ms <= 60_000) == (0, True)
    large = [STORM | {"text": "storm " * 9000}] * 70
    zeta.publish(large)
    found = refusal(target, tokens["zeta"])
    assert re.search(r"1000000 is .* quota \(bytes_per_s\)", found)
    assert clients[0].publish([STORM] * 60).accepted == 60
