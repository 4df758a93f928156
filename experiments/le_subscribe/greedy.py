"""Static clustering: tables chosen greedily by the cost model (algorithms.md 3.3).

The unit of cost is one check of a subscription, that of space a word of four bytes. The search
stops before it would exceed the bound. Groups have at most three attributes, each in an equality
of at least one in a hundred subscriptions. From more than SAMPLE subscriptions it draws as many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

from ps2stream.experiments.le_subscribe.greedy_kernels import lower_costs, rate_groups
from ps2stream.experiments.le_subscribe.layout import (
    FIRST_TABLE,
    MAX_TABLES,
    REPAIR_SLOTS,
    SelectivityColumns,
)
from ps2stream.experiments.le_subscribe.repair_kernels import SEEN
from ps2stream.experiments.le_subscribe.rows import ATTRIBUTES, EQ, SubscriptionRows
from ps2stream.experiments.le_subscribe.selectivity import find_shares
from ps2stream.protocol.frame import row_of

SAMPLE = 200_000
Schema = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ClusterCosts:
    """K_r, C_h and K_h, in checks; words of a table, of an access predicate and of a reference to
    a predicate (K_space)."""

    retrieve: float = 2.0
    probe: float = 60.0
    attribute: float = 5.0
    table_words: float = 64.0
    entry_words: float = 32.0
    reference_words: float = 1.0


@dataclasses.dataclass(frozen=True)
class GreedyStep:
    """A table that was chosen: its attributes, the checks an event that it saves after its own
    cost, and the words that it takes."""

    schema: Schema
    benefit: float
    words: float


def choose_tables(
    rows: SubscriptionRows,
    known: SelectivityColumns,
    max_words: float = float("inf"),
    costs: ClusterCosts | None = None,
    seed: int = 1,
) -> list[GreedyStep]:
    """Returns the tables of several attributes, in the order in which they were chosen.
    max_words: bound of the space of tables and clusters together."""
    costs = costs or ClusterCosts()
    total, kept = rows.size, _draw_sample(rows, seed)
    scale = total / max(kept.size, 1)
    off, attribute, share = _take_equalities(kept, known)
    row = row_of(off)
    cost = np.ones(kept.size)
    np.minimum.at(cost, row, share)
    seen = np.bincount(np.unique(row * ATTRIBUTES + attribute) % ATTRIBUTES, minlength=ATTRIBUTES)
    wide = np.flatnonzero(seen >= SEEN * max(kept.size, 1))
    allowed = np.uint64(sum(1 << a for a in wide.tolist()))
    values = [len(np.unique(kept.value[(kept.attribute == a) & (kept.operator == EQ)]))
              for a in range(ATTRIBUTES)]  # fmt: skip
    words = costs.reference_words * float(total * np.diff(kept.off).mean() if kept.size else 0)
    out: list[GreedyStep] = []
    chosen: set[int] = set()
    scratch = np.full(ATTRIBUTES, -1.0)
    while len(out) < MAX_TABLES - FIRST_TABLE:
        groups = np.zeros(REPAIR_SLOTS, np.uint64)
        benefit, members = np.zeros(REPAIR_SLOTS), np.zeros(REPAIR_SLOTS, np.int64)
        rate_groups(off, attribute, share, allowed, cost, groups, benefit, members, scratch)
        best: tuple[float, GreedyStep, int] | None = None
        for slot in np.flatnonzero(groups):
            mask = int(groups[slot])
            if mask in chosen:
                continue
            schema = tuple(a for a in range(ATTRIBUTES) if mask >> a & 1)
            own = costs.retrieve + float(np.prod(known.presence[list(schema)])) * (
                costs.probe + costs.attribute * len(schema)
            )
            gain = float(benefit[slot]) * scale - own
            # Every subscription that moves there has one reference less for each attribute but
            # the one that its access predicate had before.
            inside = float(members[slot]) * scale
            entries = min(float(np.prod([values[a] for a in schema])), inside)
            more = costs.table_words + costs.entry_words * entries
            more -= costs.reference_words * inside * (len(schema) - 1)
            if gain <= 0 or words + more > max_words:
                continue
            rate = gain / more if more > 0 else float("inf")
            step = GreedyStep(schema, gain, more)
            if best is None or (rate, gain, -mask) > (best[0], best[1].benefit, -best[2]):
                best = (rate, step, mask)
        if best is None:
            break
        out.append(best[1])
        chosen.add(best[2])
        words += best[1].words
        lower_costs(off, attribute, share, np.uint64(best[2]), cost, scratch)
    return out


def count_checks(
    subscriptions: Mapping[Schema, int],
    values: Mapping[int, int],
    tables: Sequence[Schema],
    event: Schema,
) -> tuple[int, Fraction]:
    """Returns (look-ups, checks) of an event that has these attributes.

    subscriptions: how many have equalities of exactly these attributes; values: of each attribute,
    all equally likely. Subscriptions are divided evenly among the tables whose access predicates
    the fewest events satisfy, as in example 3.1 of the paper.
    """
    checks = Fraction(0)
    for having, count in subscriptions.items():
        inside = [t for t in tables if set(t) <= set(having)]
        share = {t: Fraction(1, int(np.prod([values[a] for a in t]))) for t in inside}
        least = [t for t in inside if share[t] == min(share.values())]
        for table in least:
            if set(table) <= set(event):
                checks += Fraction(count, len(least)) * share[table]
    return sum(set(table) <= set(event) for table in tables), checks


def make_example() -> tuple[dict[Schema, int], dict[int, int]]:
    """Returns the subscriptions and values of example 3.1."""
    subsets = [s for n in (1, 2, 3) for s in combinations(range(3), n)]
    return dict.fromkeys(subsets, 1_000_000), dict.fromkeys(range(3), 100)


def _draw_sample(rows: SubscriptionRows, seed: int) -> SubscriptionRows:
    """Returns SAMPLE of the subscriptions, or all if they are no more."""
    if rows.size <= SAMPLE:
        return rows
    chosen = np.sort(np.random.default_rng([seed, 7]).choice(rows.size, SAMPLE, replace=False))
    size = np.diff(rows.off)[chosen]
    off = np.r_[0, np.cumsum(size)]
    at = np.arange(off[-1]) + np.repeat(rows.off[chosen] - off[:-1], size)
    return SubscriptionRows(off, rows.attribute[at], rows.operator[at], rows.value[at])


def _take_equalities(rows: SubscriptionRows, known: SelectivityColumns) -> tuple[
    np.ndarray[tuple[int], np.dtype[np.int64]],
    np.ndarray[tuple[int], np.dtype[np.int64]],
    np.ndarray[tuple[int], np.dtype[np.float64]],
]:  # fmt: skip
    """Returns (offsets, attributes, shares of events) of the equalities of each row."""
    equal = rows.operator == EQ
    count = np.bincount(row_of(rows.off)[equal], minlength=rows.size)
    attribute, value = rows.attribute[equal].astype(np.int64), rows.value[equal]
    share = np.empty(len(value))
    find_shares(known, attribute, value, share)
    return np.r_[0, np.cumsum(count)], attribute, share
