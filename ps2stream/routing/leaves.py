"""Leaves of a plan: how the terms of some cells are divided among workers.

The planner makes space and text leaves, each for many cells. An adjustment at run time migrates
parts of single cells. The new leaf of such a cell says "as leaf b, but for these", which takes a
few words however many terms b lists. So plans stay small after thousands of migrations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ps2stream.errors import PlanError


@dataclass(frozen=True, slots=True)
class Space:
    """A leaf whose worker owns all terms of its cells."""

    worker: int


@dataclass(frozen=True, slots=True)
class Text:
    """A leaf that divides terms: a listed term belongs to the worker it is listed with, any other
    to a hash over `workers`."""

    workers: tuple[int, ...]
    terms: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "terms", MappingProxyType(dict(self.terms)))


@dataclass(frozen=True, slots=True)
class Moved:
    """A leaf that differs from leaf number `base`, a space or a text leaf, because parts migrated.

    A listed term belongs to the worker it is listed with. Any other term belongs to worker w by
    leaf `base`: if `to` names w, it now belongs to `to[w]`, else it stays with w."""

    base: int
    to: Mapping[int, int] = field(default_factory=dict)
    terms: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", MappingProxyType(dict(self.to)))
        object.__setattr__(self, "terms", MappingProxyType(dict(self.terms)))


Leaf = Space | Text | Moved


def holders(leaves: Sequence[Leaf]) -> list[tuple[int, ...]]:
    """Returns for each leaf the workers that can own a term by it, each once."""
    plain = [() if isinstance(leaf, Moved) else _list_workers(leaf) for leaf in leaves]
    out = []
    for leaf, named in zip(leaves, plain, strict=True):
        if isinstance(leaf, Moved):
            below = (leaf.to.get(w, w) for w in plain[leaf.base])
            named = tuple(dict.fromkeys((*below, *leaf.terms.values())))
        out.append(named)
    return out


def _list_workers(leaf: Space | Text) -> tuple[int, ...]:
    if isinstance(leaf, Space):
        return (leaf.worker,)
    return tuple(dict.fromkeys((*leaf.workers, *leaf.terms.values())))


def check_leaf(leaves: Sequence[Leaf], number: int, workers: int) -> None:
    """Raises PlanError unless a leaf names only workers 0..workers - 1, and its base, if it has
    one, is a space or a text leaf."""
    leaf = leaves[number]
    if isinstance(leaf, Space):
        named = [leaf.worker]
    elif isinstance(leaf, Text):
        if not leaf.workers:
            raise PlanError(f"plan: text leaf {number} has no workers for its other terms")
        named = [*leaf.workers, *leaf.terms.values()]
    else:
        named = [*leaf.to, *leaf.to.values(), *leaf.terms.values()]
        if not 0 <= leaf.base < len(leaves):
            raise PlanError(
                f"plan: leaf {number} is based on leaf {leaf.base}, but there are {len(leaves)} "
                "leaves"
            )
        if isinstance(leaves[leaf.base], Moved):
            raise PlanError(
                f"plan: leaf {number} is based on leaf {leaf.base}, which is neither a space nor "
                "a text leaf"
            )
    for worker in named:
        if not 0 <= worker < workers:
            raise PlanError(
                f"plan: leaf {number} names worker {worker}, but there are {workers} workers"
            )


def leaf_to_dict(leaf: Leaf) -> dict[str, Any]:
    """Returns a JSON-ready dict."""
    if isinstance(leaf, Space):
        return {"worker": leaf.worker}
    if isinstance(leaf, Text):
        return {"workers": list(leaf.workers), "terms": dict(leaf.terms)}
    return {
        "base": leaf.base,
        "to": [list(pair) for pair in leaf.to.items()],
        "terms": dict(leaf.terms),
    }


def leaf_from_dict(data: Mapping[str, Any]) -> Leaf:
    """Reads what `leaf_to_dict` returns. Raises PlanError."""
    if not isinstance(data, Mapping):
        raise PlanError(f"plan: {data!r} is not a leaf")
    if "worker" in data:
        known = {"worker"}
    else:
        known = {"base", "to", "terms"} if "base" in data else {"workers", "terms"}
    if unknown := sorted(set(data) - known):
        raise PlanError(f"plan: a leaf has the unknown field {unknown[0]!r}")
    if "worker" in data:
        return Space(whole(data["worker"]))
    terms = {str(term): whole(worker) for term, worker in data.get("terms", {}).items()}
    if "base" in data:
        pairs = [(whole(old), whole(new)) for old, new in data.get("to", ())]
        if len(to := dict(pairs)) < len(pairs):
            raise PlanError(f"plan: a leaf moves a worker's part twice: {pairs}")
        return Moved(whole(data["base"]), to, terms)
    return Text(tuple(whole(w) for w in data["workers"]), terms)


def whole(value: object) -> int:
    """Checks that a value of a plan is an integer of 64 bits and returns it. Raises PlanError."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise PlanError(f"plan: {value!r} must be a whole number")
    if abs(value) >= 1 << 63:
        raise PlanError(f"plan: {value} is out of range")
    return value
