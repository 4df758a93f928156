"""Who reaches whom: the policies, evaluated as Kubernetes does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.helm.conftest import Manifest, case, manifests, of_kind, pods, with_value

GRPC, METRICS = 7077, 8080
OWN = ["planner", "pipeline", "test"]
SERVICE = ["head", "dispatcher", "worker", "merger", "sequencer", "controller"]
OTHERS: dict[str, tuple[str, dict[str, str]]] = {
    "client": ("apps", {"ps2stream-client": "true"}),
    "stranger": ("streams", {"app": "other"}),
    "prometheus": ("monitoring", {"app": "prometheus"}),
    "dns": ("kube-system", {"k8s-app": "kube-dns"}),
    "redis": ("redis", {"app": "redis"}),
    "executor": ("spark", {"spark-role": "executor"}),
    "other release": ("streams", {
        "app.kubernetes.io/instance": "other", "app.kubernetes.io/part-of": "ps2stream",
        "app.kubernetes.io/component": "dispatcher",
    }),
}  # fmt: skip
"""Pods beside the release: namespace and labels."""


def selects(selector: Any, labels: dict[str, str]) -> bool:
    """Whether a label selector does."""
    fits = all(labels.get(k) == v for k, v in (selector.get("matchLabels") or {}).items())
    for each in selector.get("matchExpressions") or ():
        assert each["operator"] == "In"
        fits = fits and labels.get(each["key"]) in each["values"]
    return fits


class Network:
    """The pods of a release and some beside it, under its policies."""

    def __init__(self, found: list[Manifest]) -> None:
        self._policies = [each["spec"] for each in of_kind(found, "NetworkPolicy")]
        self._pods = {pod.role: ("streams", dict(pod.labels)) for pod in pods(found)} | OTHERS

    def allows(self, source: str, target: str, port: int, protocol: str = "TCP") -> bool:
        """Whether a connection comes to be: out of the one, into the other."""
        return self._one("egress", source, target, port, protocol) and self._one(
            "ingress", target, source, port, protocol
        )

    def _one(self, way: str, of: str, peer: str, port: int, protocol: str) -> bool:
        namespace, labels = self._pods[of]
        mine = [
            each
            for each in self._policies
            if namespace == "streams"
            and selects(each["podSelector"], labels)
            and way.capitalize() in each["policyTypes"]
        ]
        if not mine:
            return True
        rules = [rule for each in mine for rule in each.get(way, ())]
        return any(self._rule(rule, way, peer, port, protocol) for rule in rules)

    def _rule(self, rule: Any, way: str, peer: str, port: int, protocol: str) -> bool:
        ports, peers = rule.get("ports"), rule.get("from" if way == "ingress" else "to")
        if ports and not any((p["port"], p["protocol"]) == (port, protocol) for p in ports):
            return False
        namespace, labels = self._pods[peer]
        for each in peers or ():
            there = {"kubernetes.io/metadata.name": namespace}
            if "ipBlock" in each:
                continue
            near = (
                selects(each["namespaceSelector"], there)
                if "namespaceSelector" in each
                else namespace == "streams"
            )
            if near and selects(each.get("podSelector", {}), labels):
                return True
        return not peers


@pytest.fixture(scope="module")
def network() -> Network:
    values = with_value(case("production"), ("networkPolicy", "clients"), [{
        "namespaceSelector": {}, "podSelector": {"matchLabels": {"ps2stream-client": "true"}},
    }])  # fmt: skip
    return Network(manifests(values))


def ports() -> Iterator[int]:
    yield from (GRPC, METRICS, 6379, 8265, 10001, 20000, 20999, 52365, 7078, 22)


def test_clients_reach_the_grpc_port_and_nothing_else(network: Network) -> None:
    for source in ("client", *OWN):
        for target in [*SERVICE, *OWN]:
            for port in ports():
                wanted = target == "dispatcher" and port == GRPC
                assert network.allows(source, target, port) == wanted, (source, target, port)


def test_strangers_and_other_releases_reach_nothing(network: Network) -> None:
    for source in ("stranger", "other release", "dns"):
        for target in [*SERVICE, *OWN]:
            assert not any(network.allows(source, target, port) for port in ports())


def test_the_service_is_open_to_itself(network: Network) -> None:
    for source in SERVICE:
        for target in SERVICE:
            assert all(network.allows(source, target, port) for port in ports())
        for target in (*OWN, "other release", "stranger", "client"):
            assert not any(network.allows(source, target, port) for port in ports())


def test_prometheus_reaches_the_metrics_and_nothing_else(network: Network) -> None:
    for target in [*SERVICE, *OWN]:
        for port in ports():
            scraped = {*SERVICE, "pipeline"} - {"controller"}
            wanted = port == METRICS and target in scraped
            assert network.allows("prometheus", target, port) == wanted, (target, port)


def test_all_ask_dns_and_only_stores_the_database(network: Network) -> None:
    for source in [*SERVICE, *OWN]:
        assert network.allows(source, "dns", 53, "UDP")
        assert not network.allows(source, "dns", 443)
    anywhere = Network(manifests(with_value(case("dev"), ("networkPolicy", "database"), [])))
    for source in SERVICE:
        stores = source in ("dispatcher", "merger", "sequencer", "controller")
        assert anywhere.allows(source, "stranger", 5432) == stores
    logs = {"url": "kafka://k:9093/x", "configSecret": {"name": "kafka"}}
    kafka = Network(manifests(with_value(case("dev"), ("logs",), logs)))
    for source in SERVICE:
        stores = source in ("dispatcher", "merger", "sequencer", "controller")
        assert kafka.allows(source, "stranger", 9093) == stores
        assert not network.allows(source, "stranger", 9093)


@pytest.mark.parametrize("driver", ["planner", "pipeline"])
def test_spark_and_its_drivers_reach_each_other(network: Network, driver: str) -> None:
    assert network.allows(driver, "executor", 7077)
    found = {port for port in (*ports(), 7079) if network.allows("executor", driver, port)}
    assert found == {7078, 7079}
    assert not any(
        network.allows("executor", target, port) for target in SERVICE for port in ports()
    )


def test_the_pipeline_alone_reaches_its_source() -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "redis"}}}]
    found = Network(manifests(with_value(case("production"), ("networkPolicy", "source"), peers)))
    for source in [*SERVICE, *OWN]:
        assert found.allows(source, "redis", 9092) == (source == "pipeline"), source


def test_the_head_alone_reaches_redis(network: Network) -> None:
    others = Network(manifests(case("tenants")))
    for source in [*SERVICE, "planner", "test"]:
        assert others.allows(source, "redis", 6379) == (source == "head"), source
        assert not network.allows(source, "redis", 6379)


def test_without_policies_there_are_none() -> None:
    found = manifests(with_value(case("dev"), ("networkPolicy", "enabled"), False))
    assert of_kind(found, "NetworkPolicy") == []


def test_a_budget_keeps_all_but_one() -> None:
    for name in ("dev", "production", "tenants"):
        found = manifests(case(name))
        replicas = {"head": 1, "controller": 1}
        [cluster] = of_kind(found, "RayCluster")
        for group in cluster["spec"]["workerGroupSpecs"]:
            replicas[group["groupName"]] = group["replicas"]
        budgets = {}
        for budget in of_kind(found, "PodDisruptionBudget"):
            spec = budget["spec"]
            role = spec["selector"]["matchLabels"]["app.kubernetes.io/component"]
            assert isinstance(spec["minAvailable"], int)  # KubeRay's pods have no scale
            assert "maxUnavailable" not in spec
            budgets[role] = spec["minAvailable"]
        singletons = name == "tenants"
        assert budgets == {
            role: max(1, count - 1) for role, count in replicas.items() if count > 1 or singletons
        }
