"""What every pod and every object of a release keeps to."""

from __future__ import annotations

import re

import yaml

from ps2stream.cluster.ray_environment import SETTINGS
from tests.helm.conftest import Manifest, case, manifests, of_kind, pods, references, with_value

STORES = {"dispatcher", "merger", "sequencer", "controller"}
"""Roles that open the database."""
CALLERS = {"dispatcher", "controller", "planner", "pipeline", "test"}
"""Whose probes, or who themselves, call the service."""


def test_there_are_pods_of_every_role(rendered: list[Manifest]) -> None:
    found = {pod.role for pod in pods(rendered)}
    assert {"head", "dispatcher", "worker", "merger", "sequencer", "controller"} <= found


def test_nobody_is_root_or_becomes_it(rendered: list[Manifest]) -> None:
    for pod in pods(rendered):
        of_pod = pod.spec["securityContext"]
        assert of_pod["runAsNonRoot"] is True
        assert of_pod["runAsUser"] == of_pod["runAsGroup"] == of_pod["fsGroup"] == 10001
        assert of_pod["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.spec.keys()
        for container in pod.containers():
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_volumes_are_scratch_secrets_and_settings(rendered: list[Manifest]) -> None:
    for pod in pods(rendered):
        volumes = {volume["name"]: volume for volume in pod.spec["volumes"]}
        for volume in volumes.values():
            [kind] = volume.keys() - {"name"}
            if kind == "persistentVolumeClaim":  # where the pipeline is; the archive
                named = (pod.role, volume["name"])
                assert pod.role == "pipeline" or named == ("dispatcher", "archive"), pod.owner
            else:
                assert kind in ("emptyDir", "secret", "configMap"), pod.owner
            if kind == "emptyDir":
                assert "sizeLimit" in volume["emptyDir"]
            if kind == "secret":
                assert volume["secret"]["defaultMode"] == 0o440
        for container in pod.containers():
            for mount in container["volumeMounts"]:
                written = volumes[mount["name"]].keys() & {"emptyDir", "persistentVolumeClaim"}
                assert written or mount["readOnly"], (pod.owner, mount)


def test_no_pod_speaks_to_the_cluster(rendered: list[Manifest]) -> None:
    kinds = {each["kind"] for each in rendered}
    assert not kinds & {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "Secret"}
    [account] = of_kind(rendered, "ServiceAccount")
    assert account["automountServiceAccountToken"] is False
    for pod in pods(rendered):
        assert pod.spec["automountServiceAccountToken"] is False
        assert pod.spec["serviceAccountName"] == account["metadata"]["name"]


def test_every_container_asks_for_resources(rendered: list[Manifest]) -> None:
    for pod in pods(rendered):
        for container in pod.containers():
            requests, limits = (container["resources"][k] for k in ("requests", "limits"))
            assert {"cpu", "memory"} <= requests.keys(), pod.owner
            assert "memory" in limits


def test_images_say_which(rendered: list[Manifest]) -> None:
    for pod in pods(rendered):
        for container in pod.containers():
            image = container["image"]
            assert re.search(r":[A-Za-z0-9][A-Za-z0-9._-]*(@sha256:[0-9a-f]{64})?$", image)
            assert ":latest" not in image
            assert ("/ps2stream-spark:" in image) == (pod.role in {"planner", "pipeline"})


def test_no_secret_stands_in_a_manifest(rendered: list[Manifest]) -> None:
    text = yaml.safe_dump_all(rendered)
    assert not re.search(r"ps2s_[0-9a-f]|BEGIN [A-Z ]*KEY|://[^/@\s]+:[^/@\s]+@", text)
    for pod in pods(rendered):
        for container in pod.containers():
            for variable in container.get("env", ()):
                if re.search("TOKEN|PASSWORD|SECRET|_URL", variable["name"]):
                    assert "secretKeyRef" in variable["valueFrom"], variable


def test_only_who_needs_a_secret_has_it() -> None:
    logs = {"url": "kafka://k:9093/x", "configSecret": {"name": "ps2stream-kafka"}}
    values = with_value(case("production"), ("logs",), logs)
    [cluster_token, database, kafka, tls, tokens] = [
        "ps2stream", "ps2stream-database", "ps2stream-kafka", "ps2stream-tls", "ps2stream-tokens",
    ]  # fmt: skip
    for pod in pods(manifests(values)):
        wanted = set()
        if pod.role in STORES:
            wanted |= {database, kafka}
        if pod.role in CALLERS:
            wanted.add(tls)
        if pod.role in {"planner", "pipeline", "test"}:
            wanted.add(tokens)
        if pod.role == "controller":
            wanted |= {tokens, cluster_token}
        if pod.role == "pipeline":
            wanted.add("feed")
        assert references(pod.spec) == wanted, pod.role
        private = [v for v in pod.spec["volumes"] if v["name"] == "tls"]
        assert bool(private) == (pod.role in {"dispatcher", "controller"})


def test_rays_processes_ask_for_a_token(rendered: list[Manifest]) -> None:
    [cluster] = of_kind(rendered, "RayCluster")
    assert cluster["spec"]["authOptions"]["mode"] == "token"
    named = cluster["spec"]["authOptions"].get("secretName", cluster["metadata"]["name"])
    controller = of_kind(rendered, "Deployment")[0]
    [container] = controller["spec"]["template"]["spec"]["containers"]
    environment = {each["name"]: each for each in container["env"]}
    assert environment["RAY_AUTH_MODE"]["value"] == "token"
    assert environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {
        "name": named,
        "key": "auth_token",
    }


def test_ray_is_started_as_the_service_would(rendered: list[Manifest]) -> None:
    for pod in pods(rendered):
        if pod.role in {"planner", "pipeline", "test"}:
            continue
        environment = {each["name"]: each.get("value") for each in pod.spec["containers"][0]["env"]}
        assert environment.items() >= SETTINGS.items(), pod.role


def test_rays_dashboard_is_off_and_nothing_scales_by_itself(rendered: list[Manifest]) -> None:
    [cluster] = of_kind(rendered, "RayCluster")
    spec = cluster["spec"]
    assert spec["enableInTreeAutoscaling"] is False
    assert spec["headGroupSpec"]["rayStartParams"]["include-dashboard"] == "false"
    for group in spec["workerGroupSpecs"]:
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]


def test_each_role_has_its_units(rendered: list[Manifest]) -> None:
    [cluster] = of_kind(rendered, "RayCluster")
    offered: dict[str, int] = {}
    assert cluster["spec"]["headGroupSpec"]["resources"] == {"CPU": "0"}
    for group in cluster["spec"]["workerGroupSpecs"]:
        assert group["resources"].pop("CPU") == "0"
        for name, amount in group["resources"].items():
            assert amount == "1"
            offered[name] = offered.get(name, 0) + group["replicas"]
    [settings] = [
        each for each in of_kind(rendered, "ConfigMap") if "ps2stream.toml" in each["data"]
    ]
    said = dict(re.findall(r"^(\w+) = (\d+)$", settings["data"]["ps2stream.toml"], re.MULTILINE))
    assert offered == {
        "ps2stream-dispatcher": int(said["dispatchers"]),
        "ps2stream-worker": int(said["workers"]),
        "ps2stream-merger": int(said["mergers"]),
        "ps2stream-sequencer": 1,
        "ps2stream-controller": 1,
    }


def test_two_releases_do_not_collide() -> None:
    names, selectors = [], []
    for name in ("ps2stream", "b", "a-release-of-which-the-name-is-quite-long-1",
                 "a-release-of-which-the-name-is-quite-long-2"):  # fmt: skip
        values = with_value(case("production"), ("podDisruptionBudgets", "singletons"), True)
        found = manifests(values, name)
        names += [(each["kind"], each["metadata"]["name"]) for each in found]
        assert all(len(each["metadata"]["name"]) < 54 for each in found)
        [service] = of_kind(found, "Service")
        selectors.append(service["spec"]["selector"])
        mine = {pod.labels["app.kubernetes.io/instance"] for pod in pods(found)}
        assert mine == {name}
        for policy in of_kind(found, "NetworkPolicy"):
            labels = policy["spec"]["podSelector"]["matchLabels"]
            assert labels["app.kubernetes.io/instance"] == name
        [cluster] = of_kind(found, "RayCluster")
        controller = of_kind(found, "Deployment")[0]
        command = controller["spec"]["template"]["spec"]["containers"][0]["command"]
        assert f"{cluster['metadata']['name']}-head-svc:6379" in command
        assert re.fullmatch("[a-z]([-a-z0-9]{0,51}[a-z0-9])?", cluster["metadata"]["name"])
    assert len(names) == len(set(names))
    assert all(selectors.count(each) == 1 for each in selectors)
