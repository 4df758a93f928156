"""`ps2stream config`."""

from __future__ import annotations

import json
from typing import Any

import click

from ps2stream.commands.output import CommandOutput, json_option, pass_output

DIALECT = "https://json-schema.org/draft/2020-12/schema"


@click.group()
def config() -> None:
    """Work with the settings file of `serve`."""


@config.command()
@json_option
@pass_output
def schema(output: CommandOutput) -> None:
    """Print a JSON Schema of the settings file.

    Editors use it to complete and check the file, and a deployment can validate a file before
    it is rolled out. docs/configuration.md shows both.

      ps2stream config schema > ps2stream.schema.json
    """
    click.echo(json.dumps(settings_schema(), indent=None if output.json else 2))


def settings_schema() -> dict[str, Any]:
    """Returns the JSON schema of a TOML file of settings. Only `serve` checks what concerns
    several settings at once, like TLS off loopback."""
    from ps2stream.config import Settings

    found: dict[str, Any] = _without_null(Settings.model_json_schema())
    return {"$schema": DIALECT, "title": "Settings of PS2Stream"} | found


def _without_null(schema: Any) -> Any:
    """Rewrites a schema for TOML, which has no null: a setting is absent instead."""
    if isinstance(schema, list):
        return [_without_null(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = dict(schema)
    if kept.get("default", ...) is None:
        del kept["default"]
    if "patternProperties" in kept:  # otherwise names outside the pattern may have any value
        kept["additionalProperties"] = False
    if isinstance(kept.get("title"), str):  # pydantic's titles repeat the names
        del kept["title"]
    choices = kept.pop("anyOf", None)
    found = {name: _without_null(value) for name, value in kept.items()}
    if choices is not None:
        (one,) = (choice for choice in choices if choice != {"type": "null"})
        found |= _without_null(one)
    return found
