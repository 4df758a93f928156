"""What is built, and from what, fits together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.kubernetes import node
from tests.kubernetes.programs import GO, KUBERNETES, GoProgram, go_programs, missing_programs


def test_all_modules_of_kubernetes_have_its_version() -> None:
    text = (GO / "kubernetes" / "go.mod").read_text("utf-8")
    assert f"k8s.io/kubernetes {KUBERNETES}\n" in text
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) (\S+)$", text, re.MULTILINE)
    assert len(replaced) > 20
    minor = KUBERNETES.removeprefix("v1")
    assert {(name, version) for name, _, version in replaced} == {
        (name, f"v0{minor}") for _, name, _ in replaced
    }


@pytest.mark.parametrize("program", go_programs(), ids=lambda program: program.name)
def test_each_program_is_one_of_a_locked_module(program: GoProgram) -> None:
    assert (program.module / "go.sum").stat().st_size
    if program.package.startswith("."):
        assert (program.module / program.package / "main.go").exists()
    elif program.package.startswith("k8s.io/kubernetes"):
        assert f'_ "{program.package}"' in (program.module / "tools.go").read_text("utf-8")
    else:
        assert program.package in (program.module / "go.mod").read_text("utf-8")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = [line.split(" ")[0] for line in missing_programs()]
    assert {"go", "buildah", "mmdebstrap", "ip"} <= set(found)


def test_a_node_joins_the_control_groups_that_it_mounts() -> None:
    script = node.SCRIPT.read_text("utf-8")
    mounted = re.search(r"^for controller in (.*); do$", script, re.MULTILINE)
    assert mounted is not None
    assert {*mounted[1].split(), "systemd"} == set(node.CONTROLLERS)


def test_the_addons_are_where_nodes_look_for_them() -> None:
    found = list(yaml.safe_load_all((GO.parent / "addons.yaml").read_text("utf-8")))
    [dns] = [each for each in found if each["metadata"]["name"] == "kube-dns"]
    assert dns["spec"]["clusterIP"] in node.KUBELET["clusterDNS"]
