"""A routing plan as a file: JSON with a format version and a checksum."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.leaves import Moved
from ps2stream.routing.plan import RoutingPlan

FORMAT = 2
"""Format 1 has no moved leaves. A plan without such leaves is written as format 1, so that older
versions can read it."""


def save_plan(plan: RoutingPlan, path: str | Path) -> None:
    """Writes the plan as JSON with its format version and checksum."""
    body = plan.to_dict()
    format = FORMAT if any(isinstance(leaf, Moved) for leaf in plan.leaves) else 1
    document = {"format": format, "checksum": _compute_checksum(body), "plan": body}
    # A run of cells is on one line, to be easier to read.
    text = re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", json.dumps(document, indent=1))
    Path(path).write_text(text + "\n", encoding="utf-8")


def load_plan(
    path: str | Path, analysis: Analysis | None = None, workers: int | None = None
) -> RoutingPlan:
    """Reads a plan, to be used under the service's `analysis` (RoutingPlan.from_dict).

    Raises PlanError if the file is unreadable, damaged, of a newer format, not a plan, or made
    for another analysis or another number of `workers`. A file without a checksum was written by
    hand.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"plan {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise PlanError(f"plan {path}: not JSON: {error}") from None
    if not isinstance(document, dict) or "format" not in document:
        raise PlanError(f"plan {path}: not a plan: it has no field 'format'")
    if document["format"] not in range(1, FORMAT + 1):
        raise PlanError(
            f"plan {path}: format {document['format']!r}; this version reads 1 to {FORMAT}"
        )
    if unknown := sorted(set(document) - {"format", "checksum", "plan"}):
        raise PlanError(f"plan {path}: unknown field {unknown[0]!r}")
    body = document.get("plan")
    if not isinstance(body, dict):
        raise PlanError(f"plan {path}: the field 'plan' is missing")
    if "checksum" in document and document["checksum"] != _compute_checksum(body):
        raise PlanError(f"plan {path}: damaged: the checksum does not match the content")
    try:
        plan = RoutingPlan.from_dict(body, analysis)
        plan.check(plan.analysis, workers)
    except PlanError as error:
        raise PlanError(f"{error} (in {path})") from None
    return plan


def _compute_checksum(body: Mapping[str, Any]) -> str:
    raw = json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")
    return "sha256:" + hashlib.sha256(raw).hexdigest()
