"""`ps2stream config schema` against the settings themselves, and against every example."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from ps2stream.cli import main
from ps2stream.config import Settings
from ps2stream.connectors.pipeline_config import build_job


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    found = CliRunner().invoke(main, ["config", "schema"])
    assert found.exit_code == 0, found.output
    printed: dict[str, Any] = json.loads(found.stdout)
    Draft202012Validator.check_schema(printed)
    return printed


def taken(values: dict[str, Any]) -> bool:
    """Whether each setting is fine by itself."""
    try:
        Settings(**values)
    except ValidationError as error:
        return not any(found["loc"] for found in error.errors())
    return True


def candidates(of: dict[str, Any]) -> Iterator[Any]:
    """Values at and beyond the bounds of one setting, and of other types."""
    yield from ([], {}, "no such word", -(10**12), 10**12)
    yield from of.get("enum", ())
    for bound, beyond in (("minimum", -1), ("maximum", 1), ("exclusiveMinimum", 1)):
        if bound in of:
            yield from (of[bound], of[bound] + beyond)
    if "default" in of:
        yield of["default"]
    if "pattern" in of:
        yield from ("auto", "host:1", "host", "1-2", "lower_1", "Upper")


def test_the_schema_and_the_settings_take_the_same_values(schema: dict[str, Any]) -> None:
    validator = Draft202012Validator(schema)
    assert schema["properties"].keys() == Settings.model_fields.keys()
    # Forms beyond the schema's means, which validators of these settings check.
    looser = {"database_url", "trace_endpoint"}
    seen = {True: 0, False: 0}
    for name, of in schema["properties"].items():
        for value in candidates(of):
            values = {name: value}
            if name in looser and isinstance(value, str):
                continue
            told = validator.is_valid(values)
            assert told == taken(values), values
            seen[told] += 1
    assert min(seen.values()) > len(Settings.model_fields)


def test_tables_are_checked_as_the_settings_check_them(schema: dict[str, Any]) -> None:
    validator = Draft202012Validator(schema)
    for text, good in (
        ("[quotas.default]\nqueries = 5", True),
        ("[quotas.acme]\nqueries = 0", False),
        ("[quotas.acme]\nquery = 1", False),
        ('[quotas."a b"]\nqueries = 1', False),
        ('[identities.feed]\nscopes = ["publish"]', True),
        ("[identities.feed]\nscopes = []", False),
        ('[identities.feed]\nscopes = ["write"]', False),
        ('[identities.feed]\ntenant = "acme"', False),
        ("prot = 1", False),
    ):
        values = tomllib.loads(text)
        assert validator.is_valid(values) == taken(values) == good, text


def test_every_example_is_valid(schema: dict[str, Any], root: Path) -> None:
    validator = Draft202012Validator(schema)
    blocks: dict[str, str] = {}
    for page in (*root.glob("*.md"), *root.glob("docs/**/*.md")):
        found = re.findall(r"```toml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
        blocks |= {f"{page.name} {at}": text for at, text in enumerate(found)}
    for case in root.glob("tests/helm/cases/*.golden.yaml"):
        (part,) = (p for p in case.read_text("utf-8").split("\n---") if "ps2stream.toml: |" in p)
        text = part.partition("\n")[2].partition("ps2stream.toml: |\n")[2]
        blocks[case.name] = "\n".join(line for line in text.splitlines() if line.startswith("    "))
    assert len(blocks) > 5
    for where, text in blocks.items():
        values = tomllib.loads(text)
        if "source" in values:  # a pipeline's declaration
            assert build_job(values).name, where
            continue
        validator.validate(values)
        assert taken(values), where
