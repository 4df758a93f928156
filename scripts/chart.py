"""Writes and checks the Helm chart. `python scripts/chart.py write` renews the files that are
generated, `check` lints and renders the chart, and packages it into build/.

values.schema.json describes the values: values.yaml and the chart's README are generated from it.
The alerts of files/ are those of `ps2stream dashboards`, and its dashboard is a link to theirs.
The value files of tests/helm/cases have what they render to beside them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import helm_python
import yaml

from ps2stream.observability.alerts import rules

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "ps2stream"
CASES = sorted((ROOT / "tests" / "helm" / "cases").glob("*.values.yaml"))
NAMESPACE = "streams"
HEAD = "# Written by scripts/chart.py from values.schema.json, which describes each value.\n"
README = """\
# The chart ps2stream

Runs PS2Stream on Kubernetes, on a RayCluster of the KubeRay operator (1.6 or newer, installed
apart). docs/cluster.md of the repository leads from an empty cluster to a published object.

This page is written by scripts/chart.py from values.schema.json.

| value | default | what |
|---|---|---|
"""


def schema() -> dict[str, Any]:
    """Returns values.schema.json."""
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    return found


def leaves(of: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yields the path of each value that has a default."""
    for name, value in of["properties"].items():
        if "default" in value:
            yield (*path, name)
        else:
            yield from leaves(value, (*path, name))


def described(path: tuple[str, ...]) -> dict[str, Any]:
    """Returns the description of a value in the schema."""
    found = schema()
    for name in path:
        found = found["properties"][name]
    return found


def _render_lines(of: Mapping[str, Any], depth: int = 0) -> Iterator[str]:
    pad = "  " * depth
    for name, value in of["properties"].items():
        if not depth:
            yield ""
        if "description" in value:
            yield f"{pad}# {value['description']}"
        if "default" in value:
            yield f"{pad}{name}: {json.dumps(value['default'])}"
        else:
            yield f"{pad}{name}:"
            yield from _render_lines(value, depth + 1)


def _render_row(path: tuple[str, ...]) -> str:
    found = described(path)
    return f"| `{'.'.join(path)}` | `{json.dumps(found['default'])}` | {found['description']} |\n"


def render(
    values: Mapping[str, Any], name: str = "ps2stream", namespace: str = NAMESPACE
) -> dict[str, str]:
    """Returns the rendered text of each file of the chart that is not empty. Raises HelmError."""
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(chart.merge_values(dict(values)))
        found = chart.render(dict(values), name=name, namespace=namespace, is_install=True)
    return {path.split("/", 1)[1]: text for path, text in sorted(found.items()) if text.strip()}


def values_of(case: Path) -> dict[str, Any]:
    """Returns the content of a value file."""
    found: dict[str, Any] = yaml.safe_load(case.read_text("utf-8"))
    return found


def golden(case: Path) -> str:
    """Returns what a value file renders to, without empty lines, and without monitoring.yaml,
    which holds files that are generated themselves."""
    out = ""
    for path, text in render(values_of(case)).items():
        if path != "templates/monitoring.yaml":
            lines = [line.rstrip() for line in text.splitlines() if line.strip()]
            out += "\n".join([f"--- # {path}", *lines, ""])
    return out


def written() -> dict[Path, str]:
    """Returns each generated file with its content."""
    found = schema()
    return {
        CHART / "values.yaml": HEAD + "\n".join(_render_lines(found)) + "\n",
        CHART / "README.md": README + "".join(map(_render_row, leaves(found))),
        CHART / "files" / "ps2stream.rules.yml": rules(),
    }


def goldens() -> dict[Path, str]:
    """Returns the golden file of each value file with its content."""
    return {case.with_name(case.name.replace("values", "golden")): golden(case) for case in CASES}


def problems() -> list[str]:
    """Returns what Helm's linter reports, warnings included."""
    found: list[str] = []
    for case in CASES:
        report = helm_python.lint(CHART, values_of(case), strict=True, namespace=NAMESPACE)
        found += [f"{case.name}: {error}" for error in report["errors"]]
        found += [
            f"{case.name}: {each['path']}: {each['error']}"
            for each in report["messages"]
            if each["severity"] > 1
        ]
    return found


def main(what: str) -> int:
    """Runs one of the two commands; returns the exit code."""
    if what == "write":
        for make in (written, goldens):
            for path, text in make().items():
                path.write_text(text, "utf-8")
                sys.stdout.write(f"{path.relative_to(ROOT)}\n")
        return 0
    found = problems()
    sys.stdout.writelines(f"{problem}\n" for problem in found)
    if found:
        return 1
    for case in CASES:
        sys.stdout.write(f"{case.name}: {len(render(values_of(case)))} files\n")
    (ROOT / "build").mkdir(exist_ok=True)
    sys.stdout.write(f"{helm_python.package(CHART, destination=ROOT / 'build')}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
