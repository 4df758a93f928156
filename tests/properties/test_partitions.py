"""Under the plan of every algorithm an object and the queries that it matches meet."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import Stemmer

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.literals import WatchedLiterals
from ps2stream.language.object_terms import find_terms
from ps2stream.language.query_rows import build_rows
from ps2stream.planner.adjust.adjustment import LoadAdjustment, PartMove
from ps2stream.planner.adjust.apply import apply
from ps2stream.planner.algorithms import ALGORITHMS
from ps2stream.planner.job import PlanJob, plan_of
from ps2stream.planner.partition import PartitionOptions
from ps2stream.planner.sample import PlannerSample, posts, take
from ps2stream.planner.updates import of_records
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.opaque import split_opaque
from ps2stream.routing.leaves import Moved, holders
from ps2stream.routing.plan import RoutingPlan
from ps2stream.space.grid import Grid
from ps2stream.space.regions import Rect, Region, World
from tests import naive
from tests.naive_predicates import Scalar
from tests.sim.hostile import some_expression
from tests.sim.interleavings import ANALYSIS, LATS, SPOTS, WORDS, run, some_region
from tests.support.attributes import opaque_column
from tests.support.grids import with_lines

SETTINGS = {"plain": ANALYSIS, "stemmed": dataclasses.replace(ANALYSIS, stemmer="english")}


def seeds(count: int) -> pytest.MarkDecorator:
    """Every other seed with each analysis: none is played twice."""
    cases = [(["plain", "stemmed"][seed % 2], seed) for seed in range(count)]
    return pytest.mark.parametrize(("analysis", "seed"), cases, indirect=["analysis"])


@pytest.fixture
def analysis(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Analysis]:
    """Of the service, and of the oracle."""
    found = SETTINGS[request.param]
    if found.stemmer is not None:
        stem: Callable[[str], str] = Stemmer.Stemmer(found.stemmer).stemWord

        def analysed(text: str) -> tuple[tuple[str, ...], frozenset[str]]:
            sequence, side = naive.words(text)
            return tuple(map(stem, sequence)), frozenset(map(stem, side))

        monkeypatch.setattr(naive, "analysed", analysed)
    naive.parsed.cache_clear()
    yield found
    naive.parsed.cache_clear()


ATTRIBUTES: dict[str, list[Scalar]] = {
    "source": ["usgs", "usgs", "usgs", "noaa"], "mag": [1, 2, 2, 2.5, 3], "new": [True, False]
}  # fmt: skip
PREDICATES = [
    *('source = "usgs"', 'source = "noaa"', 'source IN ("noaa", "x")', "mag > 2", "mag = 2"),
    *("mag EXISTS", "mag != 3", "new = true", 'source = "unseen"', "other = 1"),
]


def some_posts(rng: random.Random, count: int, words: Sequence[str] = WORDS) -> list[naive.Obj]:
    """Half of them at the few spots where everything happens."""
    return [
        naive.Obj(
            rng.choice([rng.choice(SPOTS), rng.uniform(-180, 180)]),
            rng.choice([rng.choice(LATS), rng.uniform(-90, 90)]),
            " ".join(rng.choices(words, k=rng.randrange(6))),
            {n: rng.choice(values) for n, values in ATTRIBUTES.items() if rng.random() < 0.6},
        )
        for _ in range(count)
    ]


def some_queries(
    rng: random.Random, count: int, words: Sequence[str] = WORDS
) -> list[tuple[str, Region]]:
    """Every tenth without words; small boxes too, so that cells differ."""
    found: list[tuple[str, Region]] = []
    for _ in range(count):
        region = some_region(rng)
        if rng.random() < 0.5:
            lon, lat = rng.uniform(-180, 170), rng.uniform(-90, 80)
            region = Rect(lon, lat, lon + rng.uniform(0, 10), lat + rng.uniform(0, 10))
        wordless = rng.random() < 0.1 and not isinstance(region, World)
        found.append(
            ("" if wordless else some_expression(rng, words, predicates=PREDICATES), region)
        )
    return found


def attribute_messages(objects: Sequence[naive.Obj]) -> list[bytes]:
    off, data = opaque_column([o.attributes for o in objects])
    columns = split_opaque(off, data, len(objects))
    whole = columns.attributes.tobytes()
    return [whole[a:b] for a, b in itertools.pairwise(columns.attributes_off.tolist())]


def some_sample(rng: random.Random, analysis: Analysis, grid: Grid) -> PlannerSample:
    """It has not seen all words."""
    words = rng.sample(WORDS, 8)
    objects = some_posts(rng, 150, words)
    batch = posts(
        np.array([o.lon for o in objects]),
        np.array([o.lat for o in objects]),
        [o.text for o in objects],
        attributes=attribute_messages(objects),
    )
    records: list[tuple[str, dict[str, Any]]] = []
    for i, (expression, region) in enumerate(some_queries(rng, 60, words)):
        known = {"id": f"q{i}", "expression": expression, "region": region.to_json()}
        records.append((f"query {i}", known | {"op": "live"}))
    return take(lambda: [batch], [of_records(records)], analysis, grid, rows=True)


def learnt(name: str, rng: random.Random, analysis: Analysis) -> RoutingPlan:
    """What an algorithm makes of a random sample, as the service reads it from a file: made
    under another salt than the service's."""
    grid = Grid(rng.choice([0, 4, 9]), rng.choice([0, 3, 8]), max_cells=rng.choice([1, 4, 64]))
    grid = rng.choice([grid, with_lines(rng, grid)])
    load = rng.choice(["cells", "definition1"])
    job = PlanJob(
        workers=rng.randint(1, 5),
        algorithm=name,
        options=PartitionOptions(load=load),  # type: ignore[arg-type]
        stemmer=analysis.stemmer,
    )
    assert job.analysis.salt != analysis.salt
    plan = plan_of(some_sample(rng, job.analysis, grid), job)
    return RoutingPlan.from_dict(json.loads(json.dumps(plan.to_dict())), analysis)


@seeds(2)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_object_and_a_query_that_it_matches_meet(
    name: str, seed: int, analysis: Analysis
) -> None:
    """At a worker that gets the object and holds the query under one of its units."""
    rng = random.Random(f"{name} {seed}")
    plan, analyzer = learnt(name, rng, analysis), Analyzer(analysis)
    queries, objects = some_queries(rng, 80), some_posts(rng, 80)
    gridt = Gridt(plan.compile(analyzer), plan.grid)
    off, source = strings_to_column([expression for expression, _ in queries])
    compiled = compile_column(off, source, analyzer, Frequencies.of(plan.frequencies, analyzer))
    ids = strings_to_column([f"q{i}" for i in range(len(queries))])
    rows = build_rows(ids, compiled, [region for _, region in queries])
    tags = gridt.expand(rows)
    gridt.insert(tags)
    lon, lat = np.array([o.lon for o in objects]), np.array([o.lat for o in objects])
    texts, literals = strings_to_column([o.text for o in objects]), WatchedLiterals.of(rows).view()
    opaque = opaque_column([o.attributes for o in objects])
    term_off, term = find_terms(analyzer, texts, opaque, literals)
    shares, _ = gridt.route(lon, lat, term_off, term)
    gets: list[set[int]] = [set() for _ in objects]
    for share in shares:
        for row in share.row.tolist():
            gets[row].add(share.worker)
    at = [set(column.tolist()) for column in cells_of(plan.grid, lon, lat)]
    met = 0
    for i, (expression, region) in enumerate(queries):
        query = naive.Query(f"q{i}", "s", expression, region.to_json())
        held = range(int(tags.off[i]), int(tags.off[i + 1]))
        for j, obj in enumerate(objects):
            if not naive.matches(query, obj):
                continue
            terms = set(term[term_off[j] : term_off[j + 1]].tolist())
            assert any(
                int(tags.cell[k]) in at[j]
                and int(tags.term[k]) in terms
                and int(tags.worker[k]) in gets[j]
                for k in held
            ), (query, obj)
            met += 1
    assert met


def cells_of(grid: Grid, lon: Any, lat: Any) -> Any:
    """The cells of each point, one a level, uint32[n, levels]."""
    return np.stack([grid.cells(lon, lat, level) for level in range(grid.levels)], axis=1)


@pytest.mark.takes_turns
@seeds(2)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_pipeline_delivers_what_brute_force_finds(
    name: str, seed: int, analysis: Analysis
) -> None:
    """With inserts, deletes and restarts, half of them under a plan of another algorithm."""
    names = [name] * len(ALGORITHMS) + [*ALGORITHMS]
    run(10_000 + seed, 100, lambda rng: learnt(rng.choice(names), rng, analysis), restarts=1.0)


def adjusted(plan: RoutingPlan, rng: random.Random, analyzer: Analyzer) -> RoutingPlan:
    """After some adjustments where things happen: parts of cells moved, split and merged."""
    lon, lat = np.array(rng.choices(SPOTS, k=6)), np.array(rng.choices(LATS, k=6))
    terms = sorted({term for word in WORDS for term in analyzer.tokens(word)})
    for _ in range(4):
        moves, held, h1 = [], holders(plan.leaves), plan.compile(analyzer)
        for cell in set(plan.grid.cells(lon, lat, 0).tolist()):
            owner = h1.owners(np.full(len(terms), cell, np.uint32), analyzer.hash_terms(terms))
            source, target = rng.choice(held[plan.cells[cell]]), rng.randrange(plan.workers)
            own = [t for t, w in zip(terms, owner.tolist(), strict=True) if w == source]
            some = tuple(rng.sample(own, len(own) // 2)) if rng.random() < 0.5 else None
            moves.append(PartMove(cell, source, target, 1, 1.0, some or None))
        plan = apply(plan, LoadAdjustment(plan.version, tuple(moves), (), ()))
    return RoutingPlan.from_dict(json.loads(json.dumps(plan.to_dict())), analyzer.analysis)


@pytest.mark.takes_turns
@seeds(6)
def test_the_pipeline_delivers_the_same_under_adjusted_plans(seed: int, analysis: Analysis) -> None:
    analyzer = Analyzer(analysis)

    def some_plan(rng: random.Random) -> RoutingPlan:
        return adjusted(learnt(rng.choice([*ALGORITHMS]), rng, analysis), rng, analyzer)

    plan = some_plan(random.Random(seed))
    assert plan.workers == 1 or any(isinstance(leaf, Moved) for leaf in plan.leaves)
    run(20_000 + seed, 100, some_plan, restarts=1.0)
