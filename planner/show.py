"""A plan as text for people: what each worker has, what was predicted, and a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ps2stream.errors import PlanError
from ps2stream.language.predicates import is_predicate
from ps2stream.planner.phases import list_phases
from ps2stream.protocol.frame import I64
from ps2stream.routing.leaves import holders
from ps2stream.routing.plan import Leaf, RoutingPlan, Space
from ps2stream.routing.plan_file import load_plan
from ps2stream.routing.replicas import describe_unit, unit_to_dict


class ResultEmitter(Protocol):
    """A receiver of results (commands.output.Output)."""

    def emit(self, value: dict[str, Any], line: str | None = None) -> None:
        """Writes one result: as JSON, or as the line."""


def show(
    path: str,
    output: ResultEmitter,
    png: str | None = None,
    objects: Sequence[str] = (),
    queries: Sequence[str] = (),
    outlines: str | None = None,
) -> None:
    """Prints the plan of a file, and draws it into `png`: over the `outlines` of a GeoJSON file,
    with the density of the objects and queries of these files. Raises PlanError for a bad plan,
    InvalidArgument for other bad files, and for a picture that cannot be written."""
    plan = load_plan(path)
    try:
        found = facts(plan)
        lines = text(found)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise PlanError(
            f"plan {path}: the field `made` does not have the form that the planner writes: "
            f"{error!r}"
        ) from None
    if png is not None:
        from ps2stream.planner.chart import draw, read_outlines, read_places

        shapes = read_outlines(outlines) if outlines is not None else []
        draw(plan, png, shapes, *read_places(objects, queries))
        found["png"] = png
        lines = text(found)
    output.emit({"plan": path, **found}, lines)


def facts(plan: RoutingPlan) -> dict[str, Any]:
    """Returns the facts of a plan; JSON-able. For each worker: leaves that are its own and that
    it shares, the cells of both, terms listed for it, and its predicted load if the plan file has
    one. replicas: the units that several workers own together, in words and as the file has
    them."""
    cells = np.bincount(plan.cells, minlength=len(plan.leaves))
    held = holders(plan.leaves)
    loads = plan.made.get("predicted", {}).get("loads", [])
    parts = [
        {"worker": w, **_describe_part(plan.leaves, held, cells, w)}
        | ({"load": loads[w]} if w < len(loads) else {})
        for w in range(plan.workers)
    ]
    made = {name: value for name, value in plan.made.items() if name != "tree"}
    return {
        "workers": plan.workers,
        "version": plan.version,
        "base_version": plan.base_version,
        "grid": plan.grid.to_dict(),
        "leaves": len(plan.leaves),
        "text_leaves": sum(not isinstance(leaf, Space) for leaf in plan.leaves),
        "frequencies": len(plan.frequencies),
        "counted_predicates": sum(map(is_predicate, plan.frequencies)),
        "parts": parts,
        "replicas": [{"unit": describe_unit(unit), **unit_to_dict(unit)} for unit in plan.replicas],
        **({"made": made} if made else {}),
    }


def _describe_part(
    leaves: Sequence[Leaf], held: Sequence[tuple[int, ...]], cells: I64, worker: int
) -> dict[str, int]:
    """Counts the leaves, cells and terms of one worker."""
    own = [n for n, leaf in enumerate(leaves) if isinstance(leaf, Space) and leaf.worker == worker]
    text = [(n, leaf) for n, leaf in enumerate(leaves) if not isinstance(leaf, Space)]
    listed = [sum(of == worker for of in leaf.terms.values()) for _, leaf in text]
    shared = [n for n, _ in text if worker in held[n]]
    return {
        "space_leaves": len(own),
        "space_cells": int(cells[own].sum()),
        "text_leaves": len(shared),
        "text_cells": int(cells[shared].sum()),
        "terms": sum(listed),
    }


def text(found: dict[str, Any]) -> str:
    """Returns the facts as lines."""
    grid, made = found["grid"], found.get("made", {})
    predicted, attributes = made.get("predicted", {}), found["counted_predicates"]
    words = found["frequencies"] - attributes
    lines = [
        f"plan        version {found['version']}, {found['workers']} workers"
        + (f", by {made['algorithm']}" if "algorithm" in made else ""),
        f"grid        {1 << grid['lon_bits']:,} x {1 << grid['lat_bits']:,} cells",
        f"leaves      {found['leaves']:,}, of them {found['text_leaves']:,} divided by text",
        f"counted     {words:,} words, {attributes:,} attributes and values, to choose postings by",
    ]
    if "salt" in made:
        lines.append(f"salt        predicted under {made['salt']}; a service hashes with its own")
    if "balance" in predicted:
        lines.append(
            f"balance     slowest over fastest {ratio(predicted['balance'])}, slowest over the "
            f"lower bound {ratio(predicted['slowest_over_bound'])} (predicted)"
        )
    else:
        lines.append("balance     unknown: the file does not say how the plan was made")
    if rest := made.get("sample", {}).get("rest"):
        lines.append(_format_rest(rest, predicted.get("loads", [])))
    lines += list_phases(made["phases"]) if "phases" in made else []
    lines += [f"warning     {line}" for line in made.get("warnings", [])]
    if "png" in found:
        lines.append(f"map         {found['png']}")
    loads, unit = scaled([part.get("load", 0.0) for part in found["parts"]])
    head = (
        "worker", "space leaves", "cells", "text leaves", "cells", "terms listed", f"load, {unit}"
    )  # fmt: skip
    rows = [
        (
            f"{p['worker']}", f"{p['space_leaves']:,}", f"{p['space_cells']:,}",
            f"{p['text_leaves']:,}", f"{p['text_cells']:,}", f"{p['terms']:,}",
            load if "load" in p else "-",
        )
        for p, load in zip(found["parts"], loads, strict=True)
    ]  # fmt: skip
    width = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines.append("")
    for row in (head, *rows):
        lines.append("  ".join(c.rjust(w) for c, w in zip(row, width, strict=True)))
    units = [
        (", ".join(map(str, r["workers"])), r["unit"] + (", sharded" if "sharded" in r else ""))
        for r in found["replicas"]
    ]
    if units:
        wide = max(len(workers) for workers, _ in (("workers", ""), *units))
        lines += ["", f"  {'workers':{wide}}  replicated or sharded unit"]
        lines += [f"  {workers:{wide}}  {unit}" for workers, unit in units]
    return "\n".join(lines)


def _format_rest(rest: dict[str, Any], loads: Sequence[float]) -> str:
    """Returns the line on the units that were summed by cell (planner/rest.py)."""
    mean = sum(loads) / max(len(loads), 1)
    share = rest["error"] / mean if mean else 0.0
    return (
        f"rest        {rest['units']:,} light units were summed by cell: the load of a worker may "
        f"differ from the predicted one by up to {share:.2%} of the mean"
    )


def scaled(loads: Sequence[float]) -> tuple[list[str], str]:
    """Returns loads in microseconds as text, and the unit in which the largest is 1 or more."""
    most = max(loads, default=0.0)
    unit, of = next((u for u in (("s", 1e6), ("ms", 1e3)) if most >= u[1]), ("us", 1.0))
    return [f"{load / of:,.2f}" for load in loads], unit


def ratio(value: float | None) -> str:
    """Returns a ratio as text; None, because JSON has no infinity, means that a worker has no
    load."""
    return "infinite" if value is None else f"{value:.2f}"
