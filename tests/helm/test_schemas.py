"""Every object is one that Kubernetes and KubeRay take."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.helm.conftest import Loader, Manifest, of_kind, pods

VERSIONS = ("1.27", "1.37")
CUSTOM = {"RayCluster", "Certificate", "PodMonitor", "PrometheusRule"}
MODULE = "github.com/ray-project/kuberay/ray-operator"


@cache
def operator() -> Path:
    """KubeRay's module, as go.mod says which and go.sum what."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no Go here, which fetches KubeRay's schema (golang.org)")
    folder = Path(__file__).parent / "kuberay"
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | {"GOFLAGS": "-mod=mod"},
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"KubeRay's schema cannot be fetched: {done.stderr.strip()[-200:]}")
    return Path(json.loads(done.stdout)["Dir"])


def strict(schema: Any) -> Any:
    """A schema of a custom resource as JSON schema that refuses unknown keys, which a cluster
    would drop without a word."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    told = "additionalProperties", "x-kubernetes-preserve-unknown-fields"
    if isinstance(schema.get("properties"), dict) and not schema.keys() & set(told):
        made["additionalProperties"] = False
    if schema.get("x-kubernetes-int-or-string") is True:
        made["type"] = ["integer", "string"]
    return made


@pytest.fixture(scope="module")
def raycluster() -> jsonschema.Draft7Validator:
    crd = operator() / "config" / "crd" / "bases" / "ray.io_rayclusters.yaml"
    versions = yaml.load(crd.read_text("utf-8"), Loader)["spec"]["versions"]
    [schema] = [v["schema"]["openAPIV3Schema"] for v in versions if v["name"] == "v1"]
    schema["properties"].pop("metadata")
    made = strict(schema)
    made["properties"]["metadata"] = {"type": "object"}
    for group in _templates(made):  # a template's labels are its own
        group["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft7Validator(made)


def _templates(schema: Any) -> list[Any]:
    spec = schema["properties"]["spec"]["properties"]
    groups = spec["headGroupSpec"], spec["workerGroupSpecs"]["items"]
    return [group["properties"]["template"] for group in groups]


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_every_object(rendered: list[Manifest], version: str) -> None:
    checked = 0
    for each in rendered:
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, version, strict=True)
            checked += 1
    assert checked > 8


def test_kubernetes_takes_the_templates_of_rays_pods(rendered: list[Manifest]) -> None:
    found = [pod for pod in pods(rendered) if pod.owner.startswith("RayCluster")]
    assert len(found) == 5
    for pod in found:
        template = {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": pod.role},
            "template": {"metadata": {"labels": pod.labels}, "spec": pod.spec},
        }
        kubernetes_validate.validate(template, VERSIONS[0], strict=True)


def test_the_check_is_strict(rendered: list[Manifest]) -> None:
    [service] = of_kind(rendered, "Service")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            service | {"spec": service["spec"] | {"portss": []}}, VERSIONS[0], strict=True
        )


def test_kuberay_takes_the_cluster(
    rendered: list[Manifest], raycluster: jsonschema.Draft7Validator
) -> None:
    [cluster] = of_kind(rendered, "RayCluster")
    assert [error.message for error in raycluster.iter_errors(cluster)] == []
    spec = cluster["spec"]
    for wrong in ({"autoscaling": False}, {"headGroupSpec": {"rayStartParams": {"a": 1}}}):
        assert list(raycluster.iter_errors(cluster | {"spec": spec | wrong}))
