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
"""1: without moved leaves. A plan that has none is written so, for older readers too."""


def save_plan(plan: RoutingPlan, path: str | Path) -> None:
    """Write the plan as JSON with its format version and checksum."""
    body = plan.to_dict()
    format = FORMAT if any(isinstance(leaf, Moved) for leaf in plan.leaves) else 1
    document = {"format": format, "checksum": _checksum(body), "plan": body}
    # A run of cells on one line, for the eye.
    text = re.sub(r"\[\s+(\d+),\s+(\d+)\s+\]", r"[\1, \2]", json.dumps(document, indent=1))
    Path(path).write_text(text + "\n", encoding="utf-8")


def load_plan(
    path: str | Path, analysis: Analysis | None = None, workers: int | None = None
) -> RoutingPlan:
    """Read a plan, to be used under the service's `analysis` (RoutingPlan.from_dict).

    Raises PlanError: unreadable, damaged, newer, not a plan, made for another analysis or
    another number of `workers`. A file without a checksum is one written by hand.
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
    if "checksum" in document and document["checksum"] != _checksum(body):
        raise PlanError(f"plan {path}: damaged: the checksum does not fit the content")
    try:
        plan = RoutingPlan.from_dict(body, analysis)
        plan.check(plan.analysis, workers)
    except PlanError as error:
        raise PlanError(f"{error} (in {path})") from None
    return plan


def _checksum(body: Mapping[str, Any]) -> str:
    raw = json.dumps(body, sort_keys=True, separators=(",", ":")).encode("ascii")
    return "sha256:" + hashlib.sha256(raw).hexdigest()
