"""A routing plan as a file, which plan_document.py describes."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ps2stream.errors import PlanError
from ps2stream.language.analyzer import Analysis
from ps2stream.routing.leaves import Moved
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.plan_document import FORMAT, compute_checksum, read_document


def save_plan(plan: RoutingPlan, path: str | Path) -> None:
    """Writes the plan as JSON with its format version and checksum."""
    body = plan.to_dict()
    format = 2 if any(isinstance(leaf, Moved) for leaf in plan.leaves) else 1
    format = 3 if plan.replicas else format
    format = FORMAT if any(unit.sharded for unit in plan.replicas) else format
    document = {"format": format, "checksum": compute_checksum(body), "plan": body}
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
    body = read_document(path)
    try:
        plan = RoutingPlan.from_dict(body, analysis)
        plan.check(plan.analysis, workers)
    except PlanError as error:
        raise PlanError(f"{error} (in {path})") from None
    return plan
