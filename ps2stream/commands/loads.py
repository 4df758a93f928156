"""Loads and migrations as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ps2stream.commands.output import printable

Answer = Mapping[str, Any]
WHY = {
    "split": "the part has more load than the two workers differ by, so some of its terms migrate",
    "merge": "the target has another part of the cell",
}


def format_loads(answer: Answer) -> str:
    """Formats the answer of Client.load."""
    how = "coexists, for new queries" if answer["coexisting"] else "is to follow"
    following = answer["following_version"]
    to = f"; version {following} {how}" if following else ""
    lines = [f"plan       version {answer['plan_version']}{to}"]
    hot = format_replicated(answer["replicated"])
    if answer["hot_balance"] is not None:
        lines.append(f"objects    most over mean {answer['hot_balance']:.2f} in the last seconds")
    if not answer["workers"]:
        wait = f"not known yet: no complete period of {answer['period_s']:g} s has passed"
        return "\n".join([*lines, f"loads      {wait}", *hot])
    adjusts = "adjusted automatically above" if answer["automatic"] else "wanted: at most"
    literally = format_ratio(answer["balance_definition1"])
    lines += [
        f"balance    {format_ratio(answer['balance'])}, {adjusts} {answer['sigma']:g}",
        f"           by Definition 1 {literally}",
        f"period     {answer['period_s']:g} s, {answer['periods']} seen",
        "",
    ]
    workers = [
        (
            str(w["worker"]), format_work(w["load_us"]), f"{w['busy']:.1%}", f"{w['objects']:,.0f}",
            f"{w['checks']:,.0f}", f"{w['inserts']:,.0f}", f"{w['deletes']:,.0f}",
            f"{w['postings']:,.0f}", format_size(w["bytes"]),
        )
        for w in answer["workers"]
    ]  # fmt: skip
    head = (
        "worker", "load", "busy", "objects", "checks", "inserts", "deletes", "postings", "bytes",
    )  # fmt: skip
    lines += format_table(head, workers)
    loads = {w["worker"]: w["load_us"] for w in answer["workers"]}
    hottest = [
        (
            str(p["worker"]), format_work(p["load_us"]), f"{p['load_us'] / loads[p['worker']]:.1%}",
            f"{p['objects']:,.0f}", f"{p['postings']:,.0f}", format_size(p["bytes"]), format_box(p),
        )
        for p in answer["hottest"]
    ]  # fmt: skip
    names = ("worker", "load", "of its", "objects", "postings", "bytes", "place (degrees)")
    return "\n".join([*lines, *(["", *format_table(names, hottest)] if hottest else []), *hot])


def format_replicated(units: Sequence[Answer]) -> list[str]:
    """Formats the replicated and sharded units of GetLoadResponse as a table, after an empty line;
    no lines if there are none."""
    rows = [
        (
            "-" if unit["share"] is None else f"{unit['share']:.1%}",
            "sharded" if unit["sharded"] else "replicated",
            list_workers(unit["workers"]),
            "all terms" if unit["term"] is None else printable(unit["term"]) or "any text",
            "everywhere" if unit["cell"] is None else format_box(unit),
        )
        for unit in units
    ]
    head = ("of the objects", "how", "workers", "term", "place (degrees)")
    return ["", *format_table(head, rows)] if rows else []


def list_workers(workers: Sequence[int]) -> str:
    """Formats the numbers of workers, runs of at least three as their ends: 0-3, 7."""
    runs: list[list[int]] = []
    for worker in sorted(workers):
        if runs and worker == runs[-1][-1] + 1:
            runs[-1].append(worker)
        else:
            runs.append([worker])
    parts = [[f"{r[0]}-{r[-1]}"] if len(r) > 2 else list(map(str, r)) for r in runs]
    return ", ".join(part for run in parts for part in run)


def format_adjustment(answer: Answer) -> str:
    """Formats the answer of Client.rebalance."""
    before, after = format_ratio(answer["balance_before"]), format_ratio(answer["balance_after"])
    parts = answer["migrations"]
    if not parts:
        under = answer["balance_before"] is not None and answer["balance_before"] <= answer["sigma"]
        why = "the load is balanced" if under else "no part is worth migrating"
        return f"nothing migrates: {why}; balance {before}, wanted: at most {answer['sigma']:g}"
    rows = [
        (
            m["kind"], f"{m['source']} -> {m['target']}", format_work(m["load_us"]),
            format_size(m["bytes"]), f"{len(m['terms'])} terms" if m["terms"] else "all",
            format_box(m),
        )
        for m in parts
    ]  # fmt: skip
    head = ("what", "workers", "load", "bytes", "terms", "place (degrees)")
    slowest = [format_work(max(answer[name])) for name in ("before_us", "after_us")]
    total = (
        f"{len(rows)} parts, {format_size(answer['bytes'])}; "
        f"balance {before} -> {after} predicted, "
        f"the most loaded worker's work {slowest[0]} -> {slowest[1]} a period"
    )
    reasons = [f"{kind}: {WHY[kind]}" for kind in WHY if any(m["kind"] == kind for m in parts)]
    return "\n".join([*format_table(head, rows), *reasons, "", total])


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Returns lines with aligned columns, the first `left` of them to the left."""
    wide = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(
            cell.ljust(n) if column < left else cell.rjust(n)
            for column, (cell, n) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]


def format_ratio(value: float | None) -> str:
    return "without bound" if value is None else f"{value:.2f}"


def format_work(microseconds: float) -> str:
    """Formats a time in milliseconds."""
    return f"{microseconds / 1000:,.1f} ms"


def format_size(count: int) -> str:
    """Formats a number of bytes."""
    return f"{count:,} B" if count < 10_000 else f"{count / 1024:,.0f} KiB"


def format_box(place: Answer) -> str:
    west, south, east, north = (place[side] for side in ("west", "south", "east", "north"))
    return f"{west:g}..{east:g} E, {south:g}..{north:g} N"
