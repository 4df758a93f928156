"""What tests of migration plans share: queries, a sample of them, plans, and a naive twin."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.planner.migrate.queries import ListedQuery, of_queries, rows_of
from ps2stream.planner.sample import posts, take
from ps2stream.planner.statistics import Statistics
from ps2stream.planner.updates import of_records
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.plan import RoutingPlan
from ps2stream.routing.tags import QueryTagger
from ps2stream.space.grid import Grid

GRID = Grid(4, 3)
ANALYSIS = Analysis(salt=0)
WORDS = ["flood", "river", "creek", "storm", "fire", "dam"]


def some_queries(seed: int, n: int = 150) -> list[ListedQuery]:
    """Queries of all forms and shapes; most are small and lie where the objects are."""
    rng = random.Random(seed)
    found = []
    for number in range(n):
        words = rng.sample(WORDS, 3)
        expression = rng.choice(
            ["{0}", "{0} AND {1}", "{0} OR {1}", '"{0} {1}"', "{0} AND NOT {2}", "({0}  or {1})"]
        ).format(*words)
        lon, lat = rng.gauss(0, 50), rng.gauss(0, 25)
        lon, lat = max(min(lon, 150), -170), max(min(lat, 70), -80)
        rect = {"rect": [lon, lat, lon + rng.uniform(0, 25), lat + rng.uniform(0, 15)]}
        circle = {"circle": [lon, lat, rng.uniform(1, 500)]}
        region = rng.choice([rect, rect, circle, None] if number % 10 == 0 else [rect, circle])
        found.append(ListedQuery(f"q{number}", expression, region))
    return found


def sampled(seed: int, queries: Sequence[ListedQuery], n: int = 300) -> Statistics:
    """The statistics of these queries, and of objects around them."""
    rng = np.random.default_rng(seed)
    lon, lat = rng.normal(0, 40, n).clip(-179, 179), rng.normal(0, 20, n).clip(-89, 89)
    text = [" ".join(rng.choice(WORDS, 3)) for _ in range(n)]
    records = [("query", {"id": q.id, "expression": q.expression, "region": q.region})
               for q in queries]  # fmt: skip
    batch = posts(lon, lat, text)
    return take(lambda: [batch], [of_records(records)], ANALYSIS, GRID).stats


def batches(queries: Sequence[ListedQuery], size: int = 40) -> list[Any]:
    """The queries as batches of LIVE."""
    return [of_queries(queries[at : at + size]) for at in range(0, len(queries), size)]


def all_rows(queries: Sequence[ListedQuery], plan: RoutingPlan) -> QueryRows:
    """The rows of all queries, posted by the plan's frequencies."""
    analyzer = Analyzer(plan.analysis)
    known = Frequencies.of(plan.frequencies, analyzer)
    return rows_of(of_queries(queries), analyzer, known)


def fetched_naively(
    queries: Sequence[ListedQuery], old: RoutingPlan, new: RoutingPlan
) -> dict[int, tuple[int, int]]:
    """The queries and bytes that each worker fetches for the new plan, posting by posting."""
    rows = all_rows(queries, old)
    analyzer = Analyzer(old.analysis)
    held: list[dict[int, set[tuple[int, int, int]]]] = []
    for plan in (old, new):
        shares = QueryTagger(plan.compile(analyzer), plan.grid).split(
            QueryTagger(plan.compile(analyzer), plan.grid).expand(rows)
        )
        held.append({})
        for worker, share in enumerate(shares):
            of_row = np.repeat(share.row, np.diff(share.off))
            held[-1][worker] = set(zip(of_row.tolist(), share.cell.tolist(), share.term.tolist(),
                                       strict=True))  # fmt: skip
    out = {}
    for worker, units in held[1].items():
        gained = units - held[0].get(worker, set())
        if not gained:
            continue
        whole = sum(
            rows.take(np.array([row])).nbytes - 6 * 8 for row in {row for row, *_ in gained}
        )
        fetched = {row for row, *_ in gained}
        out[worker] = (len(fetched), whole + 8 * len(fetched) + 12 * len(gained))
    return out


def written(plan: RoutingPlan) -> dict[str, Any]:
    """The plan as JSON has it."""
    found: dict[str, Any] = json.loads(json.dumps(plan.to_dict()))
    return found
