"""Which phases of Algorithm 1 acted on a sample: a part of the plan's `made`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class DecidedNodes(NamedTuple):
    """The end of the first phase. alike, apart: nodes of Ns and of Nt; numbers: parts of each, by
    dynamic programming, () if it was not asked; told_apart: whether it makes a difference later in
    which of the two a node is."""

    alike: int
    apart: int
    numbers: tuple[int, ...]
    told_apart: bool


def describe_phases(
    similarity: float, delta: float, nodes: DecidedNodes, divided: int, by_text: int
) -> dict[str, Any]:
    """Returns the phases as JSON-able data. similarity: the root's; divided: the leaves that were
    divided to balance; by_text: leaves that are parts of a text split.

    `acted` says where the outcome could have been another one: the first phase has drawn a line, or
    put the root where it is divided by text alone; dynamic programming had more nodes than one to
    divide the number among; balancing has divided a leaf.
    """
    count = nodes.alike + nodes.apart
    return {
        "similarity": similarity,
        "delta": delta,
        "alike": nodes.alike,
        "apart": nodes.apart,
        "parts": list(nodes.numbers),
        "divided": divided,
        "text_parts": by_text,
        "acted": {
            "similarity": count > 1 or (nodes.told_apart and nodes.apart > 0),
            "numbers": 1 < count == len(nodes.numbers),
            "balance": divided > 0,
        },
    }


def list_phases(phases: Mapping[str, Any]) -> list[str]:
    """Returns what `plan show` says of phases: one line each."""
    acted, count = phases["acted"], phases["alike"] + phases["apart"]
    above = "above" if phases["similarity"] > phases["delta"] else "at most"
    root = f"root {phases['similarity']:.3g}, {above} delta = {phases['delta']:g}"
    sets = f"Ns {phases['alike']:,}, Nt {phases['apart']:,}"
    parts = ", ".join(map(str, phases["parts"]))
    if acted["numbers"]:
        numbers = f"acted: parts {parts}"
    else:
        numbers = "did not act: " + ("one node" if count == 1 else "enough nodes")
    divided = f"acted: {phases['divided']:,} leaves divided"
    balanced = divided if acted["balance"] else "did not act"
    return [
        f"similarity  {_say(acted['similarity'])}: {root}; {sets}",
        f"numbers     {numbers}",
        f"balance     {balanced}; {phases['text_parts']:,} parts by text",
    ]


def _say(acted: bool) -> str:
    return "acted" if acted else "did not act"
