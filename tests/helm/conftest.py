"""What the chart renders to, by case and as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

pytest.importorskip("helm_python", reason="there is no Helm here: pip install helm-python-sdk")

from scripts import chart

Manifest = dict[str, Any]
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Pod(NamedTuple):
    """A template of pods: which object has it, its labels, its spec."""

    owner: str
    labels: Mapping[str, str]
    spec: Manifest

    @property
    def role(self) -> str:
        return self.labels["app.kubernetes.io/component"]

    def containers(self) -> list[Manifest]:
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]


def manifests(values: Mapping[str, Any], name: str = "ps2stream") -> list[Manifest]:
    """All objects of a release."""
    texts = [text for path, text in chart.render(values, name).items() if path.endswith(".yaml")]
    return [found for text in texts for found in yaml.load_all(text, Loader) if found]


def of_kind(found: list[Manifest], kind: str) -> list[Manifest]:
    return [each for each in found if each["kind"] == kind]


def pods(found: list[Manifest]) -> Iterator[Pod]:
    """Every template of pods."""
    for each in found:
        owner = f"{each['kind']} {each['metadata']['name']}"
        spec = each.get("spec", {})
        match each["kind"]:
            case "RayCluster":
                head, groups = spec["headGroupSpec"], spec["workerGroupSpecs"]
                templates = [head["template"], *(group["template"] for group in groups)]
            case "CronJob":
                templates = [spec["jobTemplate"]["spec"]["template"]]
            case "Pod":
                templates = [each]
            case _:
                templates = [spec["template"]] if "template" in spec else []
        for template in templates:
            yield Pod(owner, template["metadata"]["labels"], template["spec"])


def with_value(values: Mapping[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A copy in which the value at `path` is another."""
    made = deepcopy(dict(values))
    inner = made
    for name in path[:-1]:
        inner = inner.setdefault(name, {})
    inner[path[-1]] = value
    return made


@cache
def case(name: str) -> dict[str, Any]:
    """A value file, which nobody changes."""
    [found] = [each for each in chart.CASES if each.name.startswith(f"{name}.")]
    return chart.values_of(found)


@pytest.fixture(scope="session", params=chart.CASES, ids=lambda path: path.name.split(".")[0])
def rendered(request: pytest.FixtureRequest) -> list[Manifest]:
    file: Path = request.param
    return manifests(chart.values_of(file))


def references(of: Any) -> set[str]:
    """Names of all Secrets that are read."""
    found: set[str] = set()
    if isinstance(of, dict):
        if "secretName" in of:
            found.add(of["secretName"])
        for reference in ("secretKeyRef", "secretRef"):
            if reference in of:
                found.add(of[reference]["name"])
        for value in of.values():
            found |= references(value)
    if isinstance(of, list):
        for value in of:
            found |= references(value)
    return found
