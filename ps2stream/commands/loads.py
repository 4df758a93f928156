"""Loads and moves as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Told = Mapping[str, Any]
WHY = {
    "split": "the part has more to do than the two workers differ by, so some of its terms go",
    "merge": "the target has another part of the cell",
}


def loads_shown(told: Told) -> str:
    """What Client.load says."""
    how = "coexists, for new queries" if told["coexisting"] else "is to follow"
    to = f"; version {told['moving_to']} {how}" if told["moving_to"] else ""
    lines = [f"plan       version {told['plan_version']}{to}"]
    if not told["workers"]:
        wait = f"not known yet: no whole period of {told['period_s']:g} s has passed"
        return "\n".join([*lines, f"loads      {wait}"])
    adjusts = "adjusted by itself above" if told["automatic"] else "wanted: at most"
    literally = ratio(told["balance_definition1"])
    lines += [
        f"balance    {ratio(told['balance'])}, {adjusts} {told['sigma']:g}",
        f"           by Definition 1 {literally}",
        f"period     {told['period_s']:g} s, {told['periods']} seen",
        "",
    ]
    workers = [
        (
            str(w["worker"]), work(w["load_us"]), f"{w['busy']:.1%}", f"{w['objects']:,.0f}",
            f"{w['checks']:,.0f}", f"{w['inserts']:,.0f}", f"{w['deletes']:,.0f}",
            f"{w['queries']:,.0f}", size(w["bytes"]),
        )
        for w in told["workers"]
    ]  # fmt: skip
    head = (
        "worker", "load", "busy", "objects", "checks", "inserts", "deletes", "postings", "bytes",
    )  # fmt: skip
    lines += table(head, workers)
    loads = {w["worker"]: w["load_us"] for w in told["workers"]}
    hottest = [
        (
            str(p["worker"]), work(p["load_us"]), f"{p['load_us'] / loads[p['worker']]:.1%}",
            f"{p['objects']:,.0f}", f"{p['queries']:,.0f}", size(p["bytes"]), box(p),
        )
        for p in told["hottest"]
    ]  # fmt: skip
    names = ("worker", "load", "of its", "objects", "postings", "bytes", "place (degrees)")
    return "\n".join([*lines, "", *table(names, hottest)] if hottest else lines)


def moves_shown(told: Told) -> str:
    """What Client.rebalance says."""
    before, after = ratio(told["balance_before"]), ratio(told["balance_after"])
    if not told["moves"]:
        under = told["balance_before"] is not None and told["balance_before"] <= told["sigma"]
        why = "it is balanced" if under else "no part is worth moving"
        return f"nothing moves: {why}; balance {before}, wanted: at most {told['sigma']:g}"
    rows = [
        (
            m["kind"], f"{m['source']} -> {m['target']}", work(m["load_us"]), size(m["bytes"]),
            f"{len(m['terms'])} terms" if m["terms"] else "all", box(m),
        )
        for m in told["moves"]
    ]  # fmt: skip
    head = ("what", "workers", "load", "bytes", "terms", "place (degrees)")
    slowest = [work(max(told[name])) for name in ("before_us", "after_us")]
    all_in_all = (
        f"{len(rows)} parts, {size(told['bytes'])}; balance {before} -> {after} predicted, the "
        f"most loaded worker's work {slowest[0]} -> {slowest[1]} a period"
    )
    reasons = [
        f"{kind}: {WHY[kind]}" for kind in WHY if any(m["kind"] == kind for m in told["moves"])
    ]
    return "\n".join([*table(head, rows), *reasons, "", all_in_all])


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 0) -> list[str]:
    """Lines with aligned columns, the first `left` of them to the left."""
    wide = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return [
        "  ".join(
            cell.ljust(n) if column < left else cell.rjust(n)
            for column, (cell, n) in enumerate(zip(row, wide, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]


def ratio(value: float | None) -> str:
    return "without bound" if value is None else f"{value:.2f}"


def work(microseconds: float) -> str:
    """A time."""
    return f"{microseconds / 1000:,.1f} ms"


def size(count: int) -> str:
    """Bytes."""
    return f"{count:,} B" if count < 10_000 else f"{count / 1024:,.0f} KiB"


def box(place: Told) -> str:
    west, south, east, north = (place[side] for side in ("west", "south", "east", "north"))
    return f"{west:g}..{east:g} E, {south:g}..{north:g} N"
