"""The JSON of a file of migration steps: a format version, a checksum, and the steps.

The format is one that a plan file does not have, so older versions refuse the file by that. Each
step has a plan that follows the one of the step before; the frequencies of the plan in force, which
are many, are there once, and apply to each step that has none of its own. As with plan files,
reading it needs no library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ps2stream.errors import PlanError
from ps2stream.routing.plan_document import compute_checksum, compute_route

STEPS_FORMAT = "steps-1"
_FIELDS = {"base_version", "base_route", "frequencies", "steps", "made"}


def is_steps_file(path: str | Path) -> bool:
    """Returns whether a file has migration steps; False for one that cannot be read."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and str(document.get("format", "")).startswith("steps-")


def write_steps(migration: dict[str, Any], path: str | Path) -> None:
    """Writes migration steps as JSON."""
    document = {
        "format": STEPS_FORMAT, "checksum": compute_checksum(migration), "migration": migration,
    }  # fmt: skip
    Path(path).write_text(json.dumps(document) + "\n", encoding="utf-8")


def read_steps(path: str | Path) -> dict[str, Any]:
    """Returns the migration steps of a file as JSON has them: base_version and base_route of the
    plan that they begin at, steps, each with queries and bytes as predicted, loads and plan, and
    made. Each plan has its frequencies. Raises PlanError if the file is unreadable, damaged, of a
    newer format, or if a step does not follow the one before."""
    where = f"migration steps {path}"
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{where}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise PlanError(f"{where}: not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != STEPS_FORMAT:
        found = document.get("format") if isinstance(document, dict) else None
        raise PlanError(f"{where}: format {found!r}; this version reads {STEPS_FORMAT!r}")
    migration = document.get("migration")
    if not isinstance(migration, dict) or document.get("checksum") != compute_checksum(migration):
        raise PlanError(f"{where}: damaged: the checksum does not match the content")
    if set(migration) != _FIELDS or not migration["steps"]:
        raise PlanError(f"{where}: expected the fields {', '.join(sorted(_FIELDS))}, and steps")
    return complete_steps(migration, where)


def complete_steps(migration: dict[str, Any], where: str = "migration steps") -> dict[str, Any]:
    """Returns migration steps in JSON in which each plan has its frequencies. Raises PlanError if a
    step does not follow the one before."""
    version, steps = migration["base_version"], []
    for number, step in enumerate(migration["steps"], 1):
        body = {"frequencies": migration["frequencies"]} | step["plan"]
        if (body["base_version"], body["version"]) != (version, version + 1):
            raise PlanError(f"{where}: step {number} does not follow plan version {version}")
        steps.append(step | {"plan": body})
        version += 1
    return migration | {"steps": steps}


def find_reached_step(migration: dict[str, Any], running: dict[str, Any]) -> int | None:
    """Returns how many steps the plan that runs, in JSON, has behind it; None if it is neither the
    plan that the steps begin at nor that of any step."""
    reached = running["version"] - migration["base_version"]
    if not 0 <= reached <= len(migration["steps"]):
        return None
    if reached == 0:
        route = migration["base_route"]
    else:
        route = compute_route(migration["steps"][reached - 1]["plan"])
    return reached if compute_route(running) == route else None
