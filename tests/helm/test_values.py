"""Values: all are described, refused when unknown or wrong, and do something."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any

import helm_python
import pytest

from ps2stream.config import Settings
from ps2stream.security import CertificateIdentity, TenantQuota
from scripts import chart
from tests.helm.conftest import case, manifests, of_kind, pods, with_value

NO_VALUE = {"global"}
"""What a parent chart says."""
OF_THE_CHART = {
    "host", "port", "database_url", "database_schema", "dispatchers", "workers", "mergers",
    "tls_cert", "tls_key", "tls_client_ca", "dispatcher_ports", "link_ports", "ray_address",
    "nodes_s", "node_ip", "niceness", "archive", "log_url", "log_config",
}  # fmt: skip
"""Settings that the chart has values of its own for, or knows."""
NOT_HERE = {
    "data_dir", "snapshot_s",  # PostgreSQL keeps it all
    "plan", "costs",  # files
    "runtime", "auth",  # Ray; and off loopback always
    "replan_s", "replan_engine", "replan_migrate",  # the CronJob plans
    "metrics_port", "dashboard_port",  # Ray's own, which KubeRay starts
}  # fmt: skip
OTHER: dict[str, Any] = {
    "image.tag": "2", "image.digest": f"sha256:{'0' * 64}", "image.pullPolicy": "Always",
    "database.url": "postgresql://other@db/x", "database.urlSecret.name": "uri",
    "logs.url": "kafka://k:1/x",
    "tls.certManager.issuerKind": "Issuer", "service.type": "NodePort",
    "planner.image": "registry:5000/spark:2", "planner.sparkMaster": "local[3]",
    "planner.schedule": "1 1 * * *", "planner.fall": "0.2",
    "planner.driverMemory": "3g", "pipeline.sparkMaster": "local[3]",
    "pipeline.driverMemory": "3g", "monitoring.interval": "1m", "settings.log_format": "text",
    "settings.adjust": "off", "settings.hot": "replicate", "settings.shed": "consensus",
    "settings.index": "gi2-radix", "ray.version": "2.61.0", "ray.sharedMemory": "1Gi",
    "ray.redis.address": "redis://redis:6379",
    "ray.temporary": "1Gi", "ray.linkPorts": "30000-30999", "tokens": [],
    "settings.identities": {"x": {"scopes": ["admin"]}}, "settings.quotas": {"x": {"queries": 1}},
}  # fmt: skip
"""Another value, where none follows from the type."""
INSTEAD: dict[str, dict[str, Any]] = {
    "database.urlSecret.key": {"database.url": "", "database.urlSecret.name": "uri"},
    "database.urlSecret.name": {"database.url": ""},
    "database.url": {},
    "logs.url": {"logs.configSecret.name": "kafka"},
    "logs.configSecret.name": {"logs.url": "kafka://k:1/x"},
    "logs.configSecret.key": {"logs.url": "kafka://k:1/x", "logs.configSecret.name": "kafka"},
    "networkPolicy.logs": {"logs.url": "kafka://k:1/x", "logs.configSecret.name": "kafka"},
    "networkPolicy.logsPort": {"logs.url": "kafka://k:1/x", "logs.configSecret.name": "kafka"},
    "tls.existingSecret": {"tls.certManager.issuer": ""},
    "tls.clientCA.name": {"tls.clientSecret": "own"},
    "tls.clientCA.key": {"tls.clientSecret": "own", "tls.clientCA.name": "ca"},
    "tls.clientSecret": {"tls.clientCA.name": "ca"},
    "tls.caKey": {},
    "tokens": {"tls.clientSecret": "own", "tls.clientCA.name": "ca",
               "settings.identities": {"x": {"scopes": ["admin"]}}},
    "settings.identities": {"tls.clientSecret": "own", "tls.clientCA.name": "ca"},
    "ray.redis.passwordSecret.name": {"ray.redis.address": "redis://redis:6379"},
    "ray.redis.passwordSecret.key": {
        "ray.redis.address": "redis://redis:6379", "ray.redis.passwordSecret.name": "redis",
    },
    "networkPolicy.redisPort": {"networkPolicy.redis": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]},
    "networkPolicy.tracesPort": {"networkPolicy.traces": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]},
}  # fmt: skip
"""What else must be said for a value to mean anything."""


def objects(of: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of an object, wherever it stands."""
    if of.get("type") == "object":
        yield path, of
    for name, value in of.items():
        if isinstance(value, dict):
            yield from objects(value, f"{path}/{name}")


def said(values: dict[str, Any]) -> str:
    """Why Helm refuses these values."""
    with pytest.raises(helm_python.HelmError) as refused:
        chart.render(values)
    return str(refused.value)


def test_unknown_keys_are_refused_everywhere() -> None:
    for path, found in objects(chart.schema()):
        if path != "/properties/global":
            assert found.get("additionalProperties") is False, path


def test_every_value_is_described() -> None:
    for path in chart.leaves(chart.schema()):
        found = chart.described(path)
        assert found.get("description", "").endswith("."), path
        assert "type" in found or "$ref" in found, path


@cache
def rendered_once() -> dict[str, str]:
    return chart.render(case("production"))


@pytest.mark.takes_turns
@pytest.mark.parametrize(
    "path", [p for p in chart.leaves(chart.schema()) if p[0] not in NO_VALUE], ids=".".join
)
def test_every_value_changes_what_is_rendered(path: tuple[str, ...]) -> None:
    values, name = case("production"), ".".join(path)
    for other, needed in INSTEAD.get(name, {}).items():
        values = with_value(values, tuple(other.split(".")), needed)
    found = chart.described(path)
    now: Any = values
    for each in path:
        now = now.get(each, {}) if isinstance(now, dict) else {}
    now = now if now != {} else found["default"]
    kinds = found["type"] if isinstance(found["type"], list) else [found["type"]]
    value: Any = OTHER.get(name)
    if value is None:
        match kinds[0]:
            case "boolean":
                value = not now
            case "integer":
                value = (now or 0) + 3
            case "number":
                value = (now or 1) + 0.5
            case "string":
                value = "another"
            case "array" if found["items"].get("$ref", "").endswith("peer"):
                value = [{"ipBlock": {"cidr": "10.7.0.0/16"}}]
            case "array" if found["items"].get("$ref", "").endswith("toleration"):
                value = [{"key": "dedicated"}]
            case "array":
                value = ["another.example.org"]
            case _ if path[-1] == "resources":
                value = {"requests": {"memory": "7Gi"}, "limits": {"memory": "7Gi"}}
            case _:
                value = {"another": "1"}
    after = chart.render(with_value(values, path, value))
    try:
        assert after != (chart.render(values) if name in INSTEAD else rendered_once())
    except helm_python.HelmError:  # it must be said
        assert value in "".join(after.values())


def scalars(of: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every scalar, with where it stands."""
    if not isinstance(of, dict | list):
        yield path, of
        return
    for name, value in of.items() if isinstance(of, dict) else enumerate(of):
        yield from scalars(value, (*path, name))


def test_names_that_look_like_numbers_stay_names() -> None:
    """YAML takes 123 for a number, and Kubernetes then refuses the object."""
    values = case("production")
    for path, value in list(scalars(values)):
        if path[-1] in ("name", "secret", "key", "issuer") and value:
            inner = values
            for each in path[:-1]:
                inner = inner[each]
            inner[path[-1]] = "123"
    values["scheduling"] = {"priorityClassName": "123"}
    values["ray"] = {"tokenSecret": "123"}
    values["image"]["pullSecrets"] = ["123"]
    found = [each for each in scalars(manifests(values, "123")) if each[1] == 123]
    assert found == []
    assert "123" in dict(scalars(manifests(values, "123"))).values()


def test_more_workers_do_not_start_the_service_anew() -> None:
    values = case("production")
    more = with_value(values, ("workers", "replicas"), 13)
    other = with_value(values, ("mergers", "replicas"), 3)
    file = "templates/controller.yaml"
    assert chart.render(more)[file] == chart.render(values)[file]
    assert chart.render(other)[file] != chart.render(values)[file]


def field_names(kind: type[CertificateIdentity | TenantQuota]) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def test_settings_are_those_of_the_service() -> None:
    offered = set(chart.schema()["properties"]["settings"]["properties"])
    assert offered <= set(Settings.model_fields)
    assert set(Settings.model_fields) - offered - OF_THE_CHART - NOT_HERE == set()
    definitions = chart.schema()["$defs"]
    assert set(definitions["quota"]["properties"]) == {
        each.name for each in dataclasses.fields(TenantQuota)
    }
    identities = chart.described(("settings", "identities"))["patternProperties"]["^.{1,256}$"]
    assert set(identities["properties"]) == {
        each.name for each in dataclasses.fields(CertificateIdentity)
    }


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("unknown", 1, "additional properties 'unknown' not allowed"),
        ("workers.unknown", 1, "/workers"),
        ("workers.resources.limits.gpu", 1, "additional properties 'gpu' not allowed"),
        ("workers.resources.limits.memory", "much", "/workers/resources/limits/memory"),
        ("workers.replicas", 0, "/workers/replicas"),
        ("workers.replicas", "two", "/workers/replicas"),
        ("image.tag", "latest", "/image/tag"),
        ("image.digest", "sha256:1", "/image/digest"),
        ("planner.image", "registry:5000/spark", "/planner/image"),
        ("planner.image", "spark:latest", "/planner/image"),
        ("database.schema", "a b", "/database/schema"),
        ("database.url", "mysql://db", "/database/url"),
        ("logs.url", "kafka://k1:9093", "/logs/url"),
        ("planner.sparkMaster", "yarn", "/planner/sparkMaster"),
        ("ray.redis.address", "redis://:secret@redis:6379", "/ray/redis/address"),
        ("settings.unknown", 1, "/settings"),
        ("settings.adjust", "always", "/settings/adjust"),
        ("settings.hot", "on", "/settings/hot"),
        ("settings.shed", "on", "/settings/shed"),
        ("settings.quotas", {"acme": {"posts": 1}}, "/settings/quotas/acme"),
        ("networkPolicy.clients", [{"podSelectors": {}}], "/networkPolicy/clients/0"),
        ("networkPolicy.clients", [{}], "/networkPolicy/clients/0"),
        ("tokens", [{"secret": "s", "key": "k", "scopes": ["root"]}], "/tokens/0/scopes"),
        ("tokens", [{"secret": "s", "key": "k", "scopes": []}], "/tokens/0/scopes"),
    ],
)
def test_the_schema_refuses(path: str, value: Any, problem: str) -> None:
    assert problem in said(with_value(case("production"), tuple(path.split(".")), value))


def test_nothing_that_must_be_said_has_a_default() -> None:
    found = said({})
    for value in (
        "image.repository", "database.url", "tls.existingSecret", "tokens",
        "planner.tokenSecret.name", "test.tokenSecret.name",
    ):  # fmt: skip
        assert f"\n  {value}" in found, value


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"database.url": "postgresql://u:secret@db/x"}, "database.url: contains a password"),
        (
            {"database.url": "postgresql://u@db/x?password=secret"},
            "database.url: contains a password",
        ),
        (
            {"database.urlSecret.name": "uri"},
            "database.url, database.urlSecret.name: set exactly one",
        ),
        (
            {"tls.existingSecret": "own"},
            "tls.existingSecret, tls.certManager.issuer: set exactly one",
        ),
        ({"logs.url": "kafka://k:1/x"}, "logs.url, logs.configSecret.name: must be set together"),
        ({"tls.clientCA.name": "ca"}, "tls.clientCA.name, tls.clientSecret: must be set together"),
        ({"tls.clientSecret": "own"}, "tls.clientCA.name, tls.clientSecret: must be set together"),
        ({"settings.identities": {"x": {"scopes": ["admin"]}}}, "settings.identities: require tls"),
        ({"tokens": []}, "tokens: name at least one Secret"),
        (
            {"planner.tokenSecret.name": ""},
            "planner.tokenSecret.name: is missing; the planner needs",
        ),
        (
            {"pipeline.tokenSecret.name": ""},
            "pipeline.tokenSecret.name: is missing; the pipeline needs",
        ),
        ({"pipeline.config": ""}, "pipeline.config: is missing; the pipeline needs"),
        ({"test.tokenSecret.name": ""}, "test.tokenSecret.name: is missing; the test needs"),
        ({"image.repository": ""}, "image.repository: is missing"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], problem: str) -> None:
    values = case("production")
    for path, value in changes.items():
        values = with_value(values, tuple(path.split(".")), value)
    found = said(values)
    assert problem in found
    assert "secret@" not in found
    assert "=secret" not in found


def test_a_test_that_passed_leaves_no_pod() -> None:
    """`helm uninstall` does not remove the pods of tests."""
    [pod] = of_kind(manifests(case("production")), "Pod")
    policy = pod["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    assert set(policy.split(",")) == {"before-hook-creation", "hook-succeeded"}


def test_the_port_of_dns_is_that_of_its_pods() -> None:
    """Policies apply once an address of a Service has become that of a pod."""
    values = with_value(case("production"), ("networkPolicy", "dnsPort"), 5353)
    [policy] = [
        each
        for each in of_kind(manifests(values), "NetworkPolicy")
        if each["metadata"]["name"] == "ps2stream-dns"
    ]
    [rule] = policy["spec"]["egress"]
    assert [each["port"] for each in rule["ports"]] == [5353, 5353]


def test_the_kernels_of_the_index_that_is_set_are_compiled() -> None:
    values = with_value(case("production"), ("settings", "index"), "gi2-radix")
    containers = [
        container
        for pod in pods(manifests(values))
        for container in pod.spec.get("initContainers", [])
        if container["name"] == "kernels"
    ]
    assert containers
    for container in containers:
        *shell, name, index = container["command"]
        assert shell[-1].endswith('exec python -m ps2stream.cluster.warm "$@"')
        assert (name, index) == ("kernels", "gi2-radix")
