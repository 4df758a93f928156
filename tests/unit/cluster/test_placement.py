"""Where actors go, and what hosts offer."""

from __future__ import annotations

import math
import os
import stat
import sys
import threading
from concurrent import futures
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from ps2stream.cluster import ray_environment
from ps2stream.cluster.actor_home import ActorHome
from ps2stream.cluster.placement import ClusterPlacement
from ps2stream.cluster.ray_node import LEAST_PORTS, OWN_PORTS, words
from ps2stream.cluster.roles import PLENTY, ROLES, resources, units
from ps2stream.cluster.running_service import ports, target
from ps2stream.cluster.shell import LanSettings
from ps2stream.config import Settings, load
from ps2stream.errors import FailedPrecondition, InvalidArgument, Unavailable
from ps2stream.protocol.addresses import Address

LAN = LanSettings(range(0), 20, as_json=False)
HERE, THERE = "aa", "bb"
WORKER = Address("worker", 0)


def cluster(wait_s: float = 0.0, **offered: dict[str, int]) -> ClusterPlacement:
    """Hosts by name, each with the units it offers."""
    nodes: list[dict[str, Any]] = [
        {"NodeID": name, "Alive": True, "Resources": resources(of)} for name, of in offered.items()
    ]
    total: dict[str, float] = {}
    for node in nodes:
        for name, n in node["Resources"].items():
            total[name] = total.get(name, 0.0) + n
    context = SimpleNamespace(get_node_id=lambda: HERE)
    ray: Any = SimpleNamespace(
        nodes=lambda: nodes,
        available_resources=lambda: total,
        get_runtime_context=lambda: context,
    )
    return ClusterPlacement(ray, LAN, wait_s)


def home(node: str) -> ActorHome:
    return ActorHome(node, f"10.0.0.{len(node)}", "")


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (None, dict.fromkeys(ROLES, PLENTY)),
        ("none", {}),
        ("worker=4,dispatcher=1", {"worker": 4, "dispatcher": 1}),
        (" worker , merger=0 ", {"worker": PLENTY, "merger": 0}),
    ],
)
def test_what_a_host_offers(spec: str | None, found: dict[str, int]) -> None:
    assert units(spec) == found


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("wroker", "'wroker' is not a role; expected some of dispatcher, worker"),
        ("", "'' is not a role"),
        ("none,worker", "'none' is not a role"),
        ("worker=", "worker=: expected a number"),
        ("worker=-1", "worker=-1: expected a number from 0"),
        ("worker=٣", "expected a number"),
        ("worker=10001", "expected a number from 0 to 10000"),
        ("worker,worker=2", "worker is named twice"),
    ],
)
def test_what_offers_nothing_says_why(spec: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        units(spec)


def test_ray_is_told_units_by_role_and_ports_in_order() -> None:
    told = words({"ps2stream-worker": 4}, node_ip="10.0.0.7", ports=range(0), metrics_port=0)
    assert '--resources={"ps2stream-worker": 4}' in told
    assert "--node-ip-address=10.0.0.7" in told
    assert not [word for word in told if "port" in word]
    given = range(30000, 30000 + LEAST_PORTS)
    told = words({}, node_ip=None, ports=given, metrics_port=9100)
    chosen = {
        word.partition("=")[0]: int(word.partition("=")[2]) for word in told if "port" in word
    }
    assert chosen["--metrics-export-port"] == 9100
    assert chosen["--node-manager-port"] == 30000
    assert chosen["--min-worker-port"] == 30000 + len(OWN_PORTS)
    assert chosen["--max-worker-port"] == given[-1]


def test_an_actor_takes_a_unit_wherever_there_is_one() -> None:
    hosts = cluster(aa=units(None), bb={"worker": 1}, cc={"merger": 1})
    found = hosts.options(WORKER, hosts.find_hosts(WORKER, {}, lambda _: 0.0))
    assert found == {"resources": {"ps2stream-worker": 1}, "scheduling_strategy": "SPREAD"}


def test_who_has_no_place_is_told_so_and_its_own_unit_is_free_again() -> None:
    hosts = cluster(aa={"worker": 1}, bb={"merger": 5})
    homes = {WORKER: home(HERE)}
    assert hosts.find_hosts(WORKER, homes, lambda _: 0.0) == [HERE]
    with pytest.raises(
        Unavailable, match=r"worker-1 cannot be placed: .* unit of ps2stream-worker"
    ):
        hosts.find_hosts(Address("worker", 1), homes, lambda _: 0.0)


def test_a_host_whose_units_are_taken_is_not_chosen_though_ray_counts_them_as_free() -> None:
    hosts = cluster(aa={"worker": 1}, bb={"worker": 2})
    found = hosts.find_hosts(Address("worker", 1), {WORKER: home(HERE)}, lambda _: 0.0)
    assert found == [THERE]
    chosen = hosts.options(Address("worker", 1), found)
    assert chosen["label_selector"] == {"ray.io/node-id": f"in({THERE})"}


def test_hosts_with_fewer_actors_come_first() -> None:
    hosts = cluster(aa=units(None), bb=units(None), cc={"merger": 1})
    homes = {Address("merger", 0): home(HERE), Address("worker", 1): home(THERE)}
    assert hosts.find_hosts(WORKER, homes, lambda _: 0.0) == [HERE, THERE]
    homes[Address("worker", 2)] = home(HERE)
    assert hosts.find_hosts(WORKER, homes, lambda _: 0.0) == [THERE, HERE]


def test_an_actor_goes_where_its_hosts_are_less_crowded_and_there_is_room() -> None:
    hosts = cluster(aa=units(None), bb={"worker": 1, "merger": 2})
    merger, dispatcher = Address("merger", 0), Address("dispatcher", 0)
    homes = {WORKER: home(HERE), merger: home(HERE)}
    assert hosts.find_move(THERE, homes) == WORKER
    homes[WORKER] = home(THERE)
    assert hosts.find_move(THERE, homes) is None, "one more here is no crowd"
    homes |= {Address("worker", i): home(HERE) for i in (1, 2, 3)}
    assert hosts.find_move(THERE, homes) == merger, "there is no room for another worker"
    homes |= {merger: home(THERE), dispatcher: home(HERE)}
    assert hosts.find_move(THERE, homes) is None, "dispatchers find no room at all"
    assert hosts.find_move(HERE, homes) is None


def test_every_live_host_that_offers_something_may_have_standbys() -> None:
    hosts = cluster(bb={"worker": 1}, aa={"merger": 2}, cc={})
    assert hosts.list_hosts() == [HERE, THERE]


def test_a_host_none_of_whose_actors_answers_is_left_out_if_another_has_room() -> None:
    merger = Address("merger", 0)
    homes = {WORKER: home(THERE), merger: home(THERE)}
    silence = {WORKER: 9.0, merger: 0.1}
    hosts = cluster(aa=units(None), bb=units(None))
    assert hosts.find_hosts(WORKER, homes, silence.__getitem__) == [HERE, THERE]
    silence[merger] = math.inf
    assert hosts.find_hosts(WORKER, homes, silence.__getitem__) == [HERE]
    narrow = cluster(aa={"merger": 1}, bb=units(None))
    assert narrow.find_hosts(WORKER, homes, silence.__getitem__) == [THERE]


def test_the_host_that_serves_is_never_left_out() -> None:
    hosts = cluster(aa=units(None), bb=units(None))
    found = hosts.find_hosts(WORKER, {WORKER: home(HERE)}, lambda _: math.inf)
    assert found == [HERE, THERE]


def test_what_is_lacking_is_said_within_a_bounded_time() -> None:
    wanted = [*(Address("worker", i) for i in range(3)), Address("sequencer", 0)]
    with pytest.raises(Unavailable, match=r"2 of ps2stream-worker, 1 of ps2stream-sequencer"):
        cluster(aa={"worker": 1}).await_room(wanted, threading.Event())
    cluster(aa={"worker": 1, "sequencer": 1}, bb={"worker": 2}).await_room(
        wanted, threading.Event()
    )


def test_who_is_asked_to_stop_waits_for_no_host() -> None:
    asked = threading.Event()
    asked.set()
    with pytest.raises(Unavailable, match="the service was stopped"):
        cluster(wait_s=math.inf).await_room([WORKER], asked)


def test_clients_are_told_hosts_that_they_can_reach() -> None:
    there = ActorHome(THERE, "10.0.0.8", "")
    assert target("0.0.0.0", 7077, there) == "10.0.0.8:7077"
    assert target("0.0.0.0", 7077, None) == "0.0.0.0:7077"
    assert target("::", 7077, there._replace(host="fd00::8")) == "[fd00::8]:7077"
    assert target("127.0.0.1", 7077, there) == "127.0.0.1:7077"
    assert target("localhost", 7077, there) == "localhost:7077"


MANY = {"ray_address": "auto", "database_url": "postgresql://h/d"}


def test_dispatchers_have_consecutive_ports_or_the_same_one() -> None:
    given = MANY | {"dispatchers": 3, "port": 7100}
    assert ports(Settings(**given)) == [7100, 7101, 7102]
    assert ports(Settings(**given, dispatcher_ports="same")) == [7100] * 3
    assert ports(Settings(port=0, dispatchers=2)) == [0, 0]


@pytest.mark.parametrize(
    ("given", "field", "why"),
    [
        ({"ray_address": "auto"}, "ray_address", "needs database_url"),
        (MANY | {"runtime": "local"}, "ray_address", "needs the runtime ray"),
        (MANY | {"replan_s": 5.0}, "replan_s", "`ps2stream replan` from a timer"),
        (MANY | {"ray_address": "somewhere"}, "ray_address", "pattern"),
        (MANY | {"link_ports": "2-1"}, "link_ports", "must be LOW-HIGH within 1 to 65535, got 2-1"),
        (MANY | {"link_ports": "1-70000"}, "link_ports", "must be LOW-HIGH"),
        (
            {"dispatcher_ports": "same", "dispatchers": 2},
            "dispatcher_ports",
            "one dispatcher per host",
        ),
        ({"dispatcher_ports": "same", "port": 0}, "dispatcher_ports", "needs a fixed port"),
    ],
)
def test_settings_that_make_no_cluster_are_refused(
    given: dict[str, Any], field: str, why: str
) -> None:
    with pytest.raises(InvalidArgument, match=why) as found:
        load(given, environ={})
    assert [violation.field for violation in found.value.violations] == [field]


def test_a_token_is_made_once_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    environ = {ray_environment.TOKEN_PATH: str(tmp_path / "new" / "token")}
    with pytest.raises(FailedPrecondition, match="share a token, but none was found"):
        ray_environment.prepare(dict(environ), joins=True)
    path = ray_environment.provide(environ)
    assert path == tmp_path / "new" / "token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token := path.read_text()) == 64
    assert ray_environment.provide(environ) is None
    assert path.read_text() == token
    told = dict(environ)
    ray_environment.prepare(told, joins=True)
    assert told[ray_environment.MODE] == "token"
    assert ray_environment.TOKEN not in told
    assert ray_environment.provide({ray_environment.TOKEN: "given"}) is None
    path.chmod(0o644)
    with pytest.raises(FailedPrecondition, match=r"can read the hosts' token; run chmod 600"):
        ray_environment.prepare(dict(environ), joins=True)
    path.chmod(0o440)  # as Kubernetes mounts a Secret for a group
    ray_environment.prepare(dict(environ), joins=True)
    path.chmod(0o600)
    path.write_text("")
    with pytest.raises(FailedPrecondition, match="contains no token"):
        ray_environment.prepare(dict(environ), joins=True)


def test_hosts_that_ask_for_no_token_make_no_cluster() -> None:
    open_to_all = {**os.environ, ray_environment.MODE: "disabled"}
    with pytest.raises(FailedPrecondition, match="could run code on all hosts"):
        ray_environment.prepare(open_to_all, joins=True)


@pytest.mark.parametrize("asks", [True, False])
def test_a_cluster_is_asked_something_without_a_token(asks: bool) -> None:
    def answer(_: bytes, context: grpc.ServicerContext) -> bytes:
        if asks:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "a token is missing")
        return b""

    method: Any = grpc.unary_unary_rpc_method_handler(answer)
    of = grpc.method_handlers_generic_handler("ray.rpc.NodeInfoGcsService", {"CheckAlive": method})
    server = grpc.server(futures.ThreadPoolExecutor(1), handlers=[of])
    where = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        if asks:
            ray_environment.check_guarded(where)
        else:
            with pytest.raises(
                FailedPrecondition, match=f"the Ray cluster at {where} requires no token"
            ):
                ray_environment.check_guarded(where)
    finally:
        server.stop(0).wait()
    with pytest.raises(Unavailable, match="cannot find out whether"):
        ray_environment.check_guarded(where)
