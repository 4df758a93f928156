"""What is written from something else is up to date: python scripts/chart.py write"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import yaml

from scripts import chart
from tests.helm.conftest import Loader


def test_written_files_are_up_to_date() -> None:
    for path, text in chart.written().items():
        assert path.read_text("utf-8") == text, f"{path.name}: run scripts/chart.py write"


def test_the_goldens_are_up_to_date() -> None:
    made = chart.goldens()
    assert len(made) == 3
    for path, text in made.items():
        assert path.read_text("utf-8") == text, f"{path.name}: run scripts/chart.py write"


def test_helm_has_nothing_to_say_against_it() -> None:
    assert chart.problems() == []


def test_values_yaml_says_what_the_schema_does() -> None:
    read = yaml.load((chart.CHART / "values.yaml").read_text("utf-8"), Loader)
    for path in chart.leaves(chart.schema()):
        found = read
        for name in path:
            found = found[name]
        assert found == chart.described(path)["default"], path


def test_the_release_is_that_of_the_package(root: Path) -> None:
    made = yaml.load((chart.CHART / "Chart.yaml").read_text("utf-8"), Loader)
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert made["version"] == made["appVersion"] == project["version"]
    ray = json.loads(json.dumps(chart.described(("ray", "version"))["default"]))
    assert f"\nray=={ray}\n" in (root / "requirements.txt").read_text("utf-8")
