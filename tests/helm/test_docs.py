"""What docs/cluster.md says to do, so far as it can be done without a cluster."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from cryptography import x509

from ps2stream.protocol.tokens import made_elsewhere
from ps2stream.security import AccessScope
from scripts import chart
from tests.helm.conftest import Loader, case, manifests, of_kind, references


@pytest.fixture(scope="module")
def text(root: Path) -> str:
    return (root / "docs" / "cluster.md").read_text("utf-8")


def block(text: str, language: str, word: str) -> str:
    """The one code block that has this word."""
    found = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    [one] = [each for each in found if word in each]
    return str(one)


def test_the_values_render_and_name_the_secrets_that_are_made(text: str) -> None:
    found = manifests(yaml.load(block(text, "yaml", "repository:"), Loader))
    made = set(re.findall(r"create secret generic (\S+)", text))
    [cluster] = of_kind(found, "RayCluster")
    assert references(found) == made | {cluster["metadata"]["name"]}  # KubeRay makes that one
    [service] = of_kind(found, "Service")
    assert f"service/{service['metadata']['name']} 7077" in text


def test_secrets_are_made_as_it_says(text: str, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here (Debian: apt-get install openssl)")
    commands = block(text, "sh", "openssl req")
    subprocess.run(["sh", "-euc", commands], cwd=tmp_path, check=True, capture_output=True)
    folder = tmp_path / "secrets"
    for name in ("admin", "test"):
        made_elsewhere((folder / name).read_text(), "", frozenset({AccessScope.ADMIN}), 0)
    context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    made = x509.load_pem_x509_certificate((folder / "tls.crt").read_bytes())
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    made.verify_directly_issued_by(authority)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["ps2stream.streams.svc", "localhost"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_the_profile_for_development_names_the_secrets_that_its_command_makes(root: Path) -> None:
    script = (root / "examples" / "kubernetes" / "develop.sh").read_text("utf-8")
    made = set(re.findall(r"^ +put_secret (\S+)", script, re.MULTILINE))
    found = manifests(case("dev"))
    [cluster] = of_kind(found, "RayCluster")
    assert references(found) == made | {cluster["metadata"]["name"]}  # KubeRay makes that one
    assert f"helm/{chart.CHART.name}/values-dev.yaml" in script
    assert chart.values_of(chart.CHART / "values-dev.yaml") == case("dev")


def test_the_image_with_kernels_is_made_as_it_says(text: str, root: Path) -> None:
    file = root / "tests" / "kubernetes" / "images" / "kernels.Dockerfile"
    [run] = re.findall(r"^RUN .*?[^\\]$", file.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    shown = block(text, "dockerfile", "/opt/kernels")
    assert " ".join(run.replace("\\\n", "").split()) in " ".join(shown.replace("\\\n", "").split())


def test_the_example_is_one_that_kubernetes_takes(root: Path) -> None:
    file = root / "examples" / "kubernetes" / "postgres.yaml"
    found = list(yaml.load_all(file.read_text("utf-8"), Loader))
    assert len(found) == 3
    for each in found:
        kubernetes_validate.validate(each, "1.27", strict=True)


def test_ports_are_those_of_the_values(text: str) -> None:
    for path, shown in (
        (("service", "port"), "7077"), (("ray", "linkPorts"), "20000-20999"),
        (("ray", "metricsPort"), "8080"), (("networkPolicy", "databasePort"), "5432"),
        (("networkPolicy", "tracesPort"), "4318"),
    ):  # fmt: skip
        assert str(chart.described(path)["default"]) == shown
        assert shown in text
