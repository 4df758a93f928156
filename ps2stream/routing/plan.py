"""RoutingPlan: an immutable, versioned value that says which worker owns which unit.

A plan is a file (plan_file.py). It carries term *strings*, which are hashed with the
service's salt when the plan is compiled, and the settings of the text analysis that made
these strings, without the salt: the salt stays with the data, and a plan may serve
several services (docs/decisions/0004-plans-carry-a-mark-of-the-salt.md).
Every error in a plan raises PlanError with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from ps2stream.errors import PlanError, Ps2StreamError
from ps2stream.language.analyzer import TOP, Analysis, Analyzer
from ps2stream.language.expression import hash_literals, watch_literals
from ps2stream.language.pairs import is_pair, split_pair
from ps2stream.language.predicates import (
    COMPARED,
    EQUAL,
    EXISTS,
    is_predicate,
    predicate_of,
    predicate_text,
)
from ps2stream.language.tokenizer import VERSION, unicode_version
from ps2stream.protocol.frame import F64, U32, U64, row_of, strings_to_column
from ps2stream.routing.h1 import H1, HashedLeaf, HashedReplica
from ps2stream.routing.leaves import (
    Leaf,
    Moved,
    Space,
    Text,
    check_leaf,
    leaf_from_dict,
    leaf_to_dict,
    whole,
)
from ps2stream.routing.plan_document import compute_route
from ps2stream.routing.replicas import (
    ReplicatedUnit,
    check_replicas,
    unit_from_dict,
    unit_to_dict,
)
from ps2stream.routing.unit_kernels import FIRST_GROUP
from ps2stream.space.grid import Grid
from ps2stream.space.kdt_tree import flatten, kd_tree

__all__ = [
    "MAX_WORKERS",
    "TOP_TERM",
    "Leaf",
    "Moved",
    "RoutingPlan",
    "Space",
    "Text",
    "built_in_plan",
    "hash_units",
    "text_plan",
]

TOP_TERM = ""
"""The pseudo-term of queries without words, as it is written in plans and tables."""
MAX_WORKERS = FIRST_GROUP
_FIELDS = frozenset(
    (
        "version", "base_version", "workers", "analysis", "grid", "leaves", "cells",
        "frequencies", "made", "replicas",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class RoutingPlan:
    """A plan: who owns which unit.

    cells: the leaf number of each base-level cell, row-major, uint32[rows * columns].
    frequencies: how many objects of a sample hold a term; absent terms are the rarest.
    base_version: the version from which this plan was derived, 0 for none. made: how the
    planner made it, for people; the service ignores it. replicas: hot units that several workers
    own together, whatever the leaves say; an adjustment makes them, no planner does."""

    workers: int
    analysis: Analysis
    grid: Grid
    leaves: tuple[Leaf, ...]
    cells: U32
    frequencies: Mapping[str, int] = field(default_factory=dict)
    version: int = 1
    base_version: int = 0
    made: Mapping[str, Any] = field(default_factory=dict)
    replicas: tuple[ReplicatedUnit, ...] = ()

    def __post_init__(self) -> None:
        cells = np.array(self.cells, np.uint32)
        cells.setflags(write=False)
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "leaves", tuple(self.leaves))
        object.__setattr__(self, "frequencies", MappingProxyType(dict(self.frequencies)))
        object.__setattr__(self, "made", MappingProxyType(dict(self.made)))
        if not 1 <= self.workers <= MAX_WORKERS:
            raise PlanError(f"plan: expected 1 to {MAX_WORKERS} workers, got {self.workers}")
        if not self.version > self.base_version >= 0:
            raise PlanError(
                f"plan: version {self.version} does not follow its base {self.base_version}"
            )
        if len(cells) != (want := _count_cells(self.grid)):
            raise PlanError(f"plan: {len(cells)} cells are mapped, but the grid has {want}")
        if len(cells) and int(cells.max()) >= len(self.leaves):
            raise PlanError(
                f"plan: a cell names leaf {cells.max()}, but there are {len(self.leaves)} leaves"
            )
        for number in range(len(self.leaves)):
            check_leaf(self.leaves, number, self.workers)
        object.__setattr__(self, "replicas", tuple(self.replicas))
        check_replicas(self.replicas, self.workers, self.grid)

    def check(self, analysis: Analysis, workers: int | None = None) -> None:
        """Raises PlanError unless this plan fits a service with this analysis, and, when
        given, this number of workers."""
        if analysis.fingerprint() != self.analysis.fingerprint():
            _check_settings(_describe_analysis(self.analysis), analysis)
            raise PlanError("plan: its terms are hashed with another salt than the service's")
        if workers is not None and workers != self.workers:
            raise PlanError(f"plan: made for {self.workers} workers; this service has {workers}")

    @property
    def route(self) -> int:
        """The number by which objects are sent: a hash of all that decides who owns which unit,
        so plans that assign units alike have the same."""
        return compute_route(self.to_dict())

    def compile(self, analyzer: Analyzer) -> H1:
        """Returns H1 with the terms hashed by `analyzer`. Raises PlanError if the analysis is
        another, and for a listed term that the analysis never yields (`Flood` instead of
        `flood`)."""
        self.check(analyzer.analysis)
        return H1(
            self.workers,
            self.cells,
            [_hash_leaf(number, leaf, analyzer) for number, leaf in enumerate(self.leaves)],
            _hash_replicas(self.replicas, analyzer),
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns a JSON-ready dict, with cells as runs [count, leaf] and the analysis without its
        salt."""
        return {
            "version": self.version,
            "base_version": self.base_version,
            "workers": self.workers,
            "analysis": _describe_analysis(self.analysis),
            "grid": self.grid.to_dict(),
            "leaves": [leaf_to_dict(leaf) for leaf in self.leaves],
            "cells": _encode_runs(self.cells),
            "frequencies": dict(self.frequencies),
        } | self._describe_optional()

    def _describe_optional(self) -> dict[str, Any]:
        """Returns the fields that are left out while empty."""
        replicas = [unit_to_dict(unit) for unit in self.replicas]
        made = dict(self.made)
        return ({"made": made} if made else {}) | ({"replicas": replicas} if replicas else {})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], analysis: Analysis | None = None) -> RoutingPlan:
        """Reads what `to_dict` returns. The settings in `data` must agree with the service's
        `analysis`; without it, these settings and salt 0 are used. Raises PlanError."""
        if unknown := sorted(set(data) - _FIELDS):
            raise PlanError(f"plan: unknown field {unknown[0]!r}")
        try:
            grid = Grid.from_dict(data["grid"])
            settings = data["analysis"]
            if analysis is None:
                own = {"salt": 0, "regex_unicode": unicode_version(), "version": VERSION}
                analysis = Analysis.from_dict(own | dict(settings))
            _check_settings(settings, analysis)
            return cls(
                workers=whole(data["workers"]),
                analysis=analysis,
                grid=grid,
                leaves=tuple(leaf_from_dict(leaf) for leaf in data["leaves"]),
                cells=_decode_runs(data["cells"], _count_cells(grid)),
                frequencies={
                    str(t): _read_frequency(n) for t, n in data.get("frequencies", {}).items()
                },
                version=whole(data.get("version", 1)),
                base_version=whole(data.get("base_version", 0)),
                made=data.get("made", {}),
                replicas=tuple(unit_from_dict(unit) for unit in data.get("replicas", ())),
            )
        except PlanError:
            raise
        except KeyError as error:
            raise PlanError(f"plan: the field {error} is missing") from None
        except (TypeError, ValueError, AttributeError, IndexError, Ps2StreamError) as error:
            raise PlanError(f"plan: {error}") from None


def built_in_plan(
    analysis: Analysis,
    grid: Grid,
    workers: int,
    sample: tuple[F64, F64] | None = None,
    frequencies: Mapping[str, int] | None = None,
) -> RoutingPlan:
    """Returns the plan to start with: a kd-tree by median load over a sample (lon, lat in degrees,
    float64[n] each), or equal blocks of the grid if there is no sample. A rectangle that no line
    divides evenly (a hot cell) is divided by text."""
    rows, columns = 1 << grid.lat_bits, 1 << grid.lon_bits
    load = np.zeros(rows * columns, np.float64)
    if sample is not None and len(sample[0]):
        load += np.bincount(grid.cells(sample[0], sample[1], 0), minlength=rows * columns)
    cells, parts = flatten(kd_tree(load.reshape(rows, columns), workers), rows, columns)
    leaves = tuple(
        Space(part.workers[0]) if len(part.workers) == 1 else Text(part.workers) for part in parts
    )
    return RoutingPlan(workers, analysis, grid, leaves, cells, frequencies or {})


def text_plan(
    analysis: Analysis,
    grid: Grid,
    workers: int,
    terms: Mapping[str, int] | None = None,
) -> RoutingPlan:
    """Returns a plan of one text leaf everywhere: listed terms belong to their workers, all others
    are divided by hash."""
    leaf = Text(tuple(range(workers)), terms or {})
    cells = np.zeros(_count_cells(grid), np.uint32)
    return RoutingPlan(workers, analysis, grid, (leaf,), cells, {})


def hash_units(analyzer: Analyzer, terms: Sequence[str]) -> U64:
    """Returns the hashes of posting terms, phrases and prefixes among them, uint64[n]; the hash of
    TOP_TERM is TOP."""
    top = np.fromiter((term == TOP_TERM for term in terms), np.bool_, len(terms))
    return np.where(top, TOP, np.asarray(hash_literals(analyzer, terms), np.uint64))


def _count_cells(grid: Grid) -> int:
    return 1 << (grid.lon_bits + grid.lat_bits)


def _describe_analysis(analysis: Analysis) -> dict[str, Any]:
    return {name: value for name, value in analysis.to_dict().items() if name != "salt"}


def _check_settings(settings: Mapping[str, Any], analysis: Analysis) -> None:
    if not isinstance(settings, Mapping):
        raise PlanError(f"plan: the field 'analysis' must contain the settings, got {settings!r}")
    ours = analysis.to_dict()
    for name in ("stemmer", "stop_words"):
        if name not in settings:
            raise PlanError(f"plan: the field 'analysis' lacks {name!r}")
    for name, value in settings.items():
        if name not in ours or value != ours[name]:
            raise PlanError(
                f"plan: made for a text analysis with {name} = {value!r}; "
                f"this service has {ours.get(name)!r}"
            )


def _is_attribute_unit(number: int, term: str) -> bool:
    """Returns whether a term of a leaf is a predicate, as `unit_text` names it, or a pair. Raises
    PlanError for one that cannot be read."""
    if is_pair(term):
        try:
            split_pair(term)
        except ValueError as error:
            raise PlanError(f"plan: leaf {number} lists {error}") from None
        return True
    if not is_predicate(term):
        return False
    try:
        predicate = predicate_of(term)
    except ValueError as error:
        raise PlanError(f"plan: leaf {number} lists {term!r}, whose value {error}") from None
    is_unit = predicate.op in ((EXISTS, COMPARED) if predicate.value is None else (EQUAL,))
    return is_unit and predicate_text(predicate) == term


def _hash_leaf(number: int, leaf: Leaf, analyzer: Analyzer) -> HashedLeaf:
    if isinstance(leaf, Space):
        return HashedLeaf((leaf.worker,))
    terms = list(leaf.terms)
    itself = np.array([_is_attribute_unit(number, term) for term in terms], np.bool_)
    hashes = hash_units(analyzer, terms)
    # The analysis must yield the term itself, beside TOP, or no object would ever have it.
    texts = strings_to_column([term.strip('"*') for term in terms])
    off, found = analyzer.analyse(*texts, literals=watch_literals(analyzer, terms).view())
    row = row_of(off)
    itself[row[found == hashes[row]]] = True
    if len(strange := np.flatnonzero(~itself)):
        term = terms[strange[0]]
        raise PlanError(
            f"plan: leaf {number} lists {term!r}, which the text analysis turns into "
            f"{analyzer.tokens(term)}"
        )
    owner = np.fromiter(leaf.terms.values(), np.uint16, len(terms))
    if isinstance(leaf, Moved):
        return HashedLeaf((), hashes, owner, leaf.base, tuple(leaf.to.items()))
    return HashedLeaf(leaf.workers, hashes, owner)


def _hash_replicas(replicas: Sequence[ReplicatedUnit], analyzer: Analyzer) -> list[HashedReplica]:
    named = [unit.term for unit in replicas if unit.term is not None]
    hashes = iter(hash_units(analyzer, named))
    return [
        HashedReplica(
            unit.cell, None if unit.term is None else next(hashes), unit.workers, unit.sharded
        )
        for unit in replicas
    ]


def _read_frequency(value: object) -> int:
    if (number := whole(value)) < 0:
        raise PlanError(f"plan: a frequency must be at least 0, got {number}")
    return number


def _encode_runs(cells: U32) -> list[list[int]]:
    first = np.flatnonzero(np.r_[True, cells[1:] != cells[:-1]]) if len(cells) else cells[:0]
    return np.stack([np.diff(np.r_[first, len(cells)]), cells[first]], axis=1).tolist()  # type: ignore[no-any-return]


def _decode_runs(runs: Sequence[Sequence[int]], cells: int) -> U32:
    count = [whole(run[0]) for run in runs]
    leaf = [whole(run[1]) for run in runs]
    # This check comes before the array is made: a hand-written count may be anything.
    if any(c < 1 for c in count) or sum(count) != cells:
        raise PlanError(f"plan: the runs of cells must add up to the {cells} of the grid")
    if any(not 0 <= n < 2**32 for n in leaf):
        raise PlanError("plan: a cell names a leaf that does not exist")
    return np.repeat(np.array(leaf, np.uint32), count)
