"""What KubeRay's own code makes of the cluster. Compiling it takes minutes: make chart."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.helm.conftest import Manifest, of_kind

if not os.environ.get("KUBERAY"):
    pytest.skip("KubeRay's own code is compiled by: make chart", allow_module_level=True)
if shutil.which("go") is None:
    pytest.skip("there is no Go here, which compiles it (golang.org)", allow_module_level=True)


@pytest.fixture(scope="session")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that prints the pods and the service of a RayCluster, or why there are none."""
    program = tmp_path_factory.mktemp("kuberay") / "pods"
    folder = Path(__file__).parent / "kuberay"
    subprocess.run(["go", "build", "-o", program, "."], cwd=folder, check=True)
    return program


@pytest.fixture
def made(operator: Path, rendered: list[Manifest]) -> dict[str, Any]:
    [cluster] = of_kind(rendered, "RayCluster")
    done = subprocess.run(
        [operator], input=yaml.safe_dump(cluster), text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def command(pod: Any) -> list[str]:
    """The words of `ray start`."""
    [text] = pod["spec"]["containers"][0]["args"]
    return shlex.split(text.split(";", 1)[1])


def test_ray_is_started_with_the_units_of_each_role(made: dict[str, Any]) -> None:
    found = {}
    for pod in made["pods"]:
        words = command(pod)
        assert words[:2] == ["ray", "start"]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        assert options["--num-cpus"] == "0"
        role = pod["metadata"]["labels"]["app.kubernetes.io/component"]
        found[role] = json.loads(options.get("--resources", "{}"))
    assert found == {
        "head": {},
        "dispatcher": {"ps2stream-dispatcher": 1},
        "worker": {"ps2stream-worker": 1},
        "merger": {"ps2stream-merger": 1},
        "sequencer": {"ps2stream-sequencer": 1, "ps2stream-controller": 1},
    }


def test_what_it_puts_into_pods_keeps_to_the_rules(made: dict[str, Any]) -> None:
    for pod in made["pods"]:
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        for container in [*spec.get("initContainers", ()), *spec["containers"]]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
        [main] = spec["containers"]
        environment = {each["name"]: each for each in main["env"]}
        assert environment["RAY_AUTH_MODE"]["value"] == "token"
        assert environment["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"]["key"] == "auth_token"
        assert main["livenessProbe"]["httpGet"]["path"] == "/api/healthz"
        assert "readinessProbe" in main
        assert [each["name"] for each in main["volumeMounts"]].count("shared-memory") == 1


def test_the_heads_service_finds_the_head(made: dict[str, Any]) -> None:
    head, *others = made["pods"]
    selector = made["service"]["spec"]["selector"]
    assert selector.items() <= head["metadata"]["labels"].items()
    assert not any(selector.items() <= pod["metadata"]["labels"].items() for pod in others)
    assert made["service"]["metadata"]["name"] == "ps2stream-head-svc"
