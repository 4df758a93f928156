"""Workloads changed so that an object has a given number of matches."""

from __future__ import annotations

from collections.abc import Callable

from ps2stream.benchmarks.post_batches import BATCH, PostBatches
from ps2stream.benchmarks.predicates import QueryPredicates
from ps2stream.benchmarks.query_tags import query_rows, tags_of
from ps2stream.benchmarks.workload import Workload
from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.protocol.frame import I64, U64
from ps2stream.workers.indexes import INDEXES

_TUNED_ON = 100_000  # queries
_TUNED_WITH = 4096  # objects
_STEPS = 9  # of a bisection
_ALL = 0.999  # of the pairs of an object and a query


def matches_per_object(load: Workload, analyzer: Analyzer, objects: tuple[I64, U64]) -> float:
    """Estimates the matches per object on the first 100,000 queries and 4,096 objects."""
    n = min(load.start, _TUNED_ON)
    rows = query_rows(load, analyzer, Frequencies.of(load.counts, analyzer), 0, n)
    index = INDEXES["gi2-radix"](load.grid)
    index.insert(*tags_of(rows, load.grid))
    batches, count = PostBatches(load.posts, *objects), 0
    used = min(_TUNED_WITH // BATCH, len(batches))
    for k in range(used):
        count += len(index.match(n, *batches[k]).row)
    return count / (used * BATCH) * (load.start / n)


def tune_workload(
    load: Workload, mo: float, analyzer: Analyzer, objects: tuple[I64, U64]
) -> tuple[Workload, dict[str, float]]:
    """Changes the workload by bisection so that an object has about `mo` matches; returns it and
    the factors.

    First the sides of the squares change, by a factor within 1/4 and 4; if that is not enough,
    the keyword skew changes too (`Workload.scaled`), within -1 and 2.
    """

    def bisect(low: float, high: float, at: Callable[[float], Workload]) -> float:
        return _bisect_powers(
            low, high, lambda power: matches_per_object(at(power), analyzer, objects) < mo
        )

    side, skew = 2.0 ** bisect(-2, 2, lambda power: load.scaled(2.0**power)), 1.0
    if not 0.26 < side < 3.9:
        skew = bisect(-1, 2, lambda power: load.scaled(side, power))
    return load.scaled(side, skew), {"side_factor": side, "keyword_skew": skew}


def _bisect_powers(low: float, high: float, is_too_low: Callable[[float], bool]) -> float:
    """Returns where between low and high `is_too_low` changes."""
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if is_too_low(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def widen_workload(
    load: Workload, predicates: QueryPredicates, analyzer: Analyzer, objects: tuple[I64, U64]
) -> tuple[Workload, float]:
    """Makes regions larger, so that an object has as many matches with these predicates as it has
    without; returns the workload and the factor of their sides, at most 16."""
    share, mo = predicates.estimate_share(), matches_per_object(load, analyzer, objects)
    if share > _ALL:
        return load, 1.0

    def has_too_few(power: float) -> bool:
        return share * matches_per_object(load.widened(2.0**power), analyzer, objects) < mo

    side = 2.0 ** _bisect_powers(0, 4, has_too_few)
    return load.widened(side), side
