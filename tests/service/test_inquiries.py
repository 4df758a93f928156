"""Why an object matches, and what a query would cost: against brute force, on hostile input."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from ps2stream.cli import main
from ps2stream.client import requests
from ps2stream.client.client import Client
from ps2stream.client.requests import Query
from ps2stream.cluster.service import start
from ps2stream.commands.inquiries import format_explanation
from ps2stream.config import Settings
from ps2stream.dispatcher.estimates import estimate_query, search_sample
from ps2stream.dispatcher.explanations import ExpandedQuery
from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.errors import FailedPrecondition, InvalidArgument, NotFound
from ps2stream.language.analyzer import Analyzer, Frequencies
from ps2stream.language.expression import compile_column
from ps2stream.language.query_rows import build_rows
from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.rows import QueryRows
from ps2stream.routing.costs import Costs
from ps2stream.service.explanation import region_test
from ps2stream.service.inquiry_calls import NEWEST, answer_of, interval
from ps2stream.space.regions import Circle, Rect, Region, World
from ps2stream.v1 import explain_pb2
from ps2stream.workers.gi2 import GI2
from tests import naive
from tests.sim.hostile import ANALYSIS, some_expression, some_object, some_plan, some_region

PRICES = Costs(1.0, 10.0, 0.0, 0.0)


def expanded(gridt: Gridt, query: QueryRows) -> ExpandedQuery:
    groups = gridt.h1.groups
    return ExpandedQuery(query, gridt.expand(query), gridt.workers, gridt.grid, 0, groups)


def some_query(rng: random.Random) -> tuple[str, Region]:
    expression = some_expression(rng) if rng.random() < 0.85 else ""
    region = some_region(rng)
    if not expression and isinstance(region, World):
        region = Circle(0.0, 0.0, 900.0)
    return expression, region


def in_truth(expression: str, region: Region, thing: tuple[str, float, float]) -> bool:
    text, lon, lat = thing
    query = naive.Query("q", "s", expression, region.to_json())
    return naive.matches(query, naive.Obj(lon, lat, text))


@pytest.mark.takes_turns
@pytest.mark.parametrize("seed", range(4))
def test_an_explanation_is_true(seed: int, tmp_path: Path) -> None:
    """The verdict is that of the definition, and the worker named the one that owns the unit."""
    rng = random.Random(seed)
    plan = some_plan(rng)
    yes = no = replicated = 0
    settings = Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=plan.workers,
        data_dir=tmp_path / "d",
    )
    with start(settings, plan) as service, Client(service.targets[0]) as client:
        queries = {f"q{i}": some_query(rng) for i in range(25)}
        for id, (expression, region) in queries.items():
            client.insert(id, expression, region)
        for thing in [some_object(rng) for _ in range(8)]:
            _, lon, lat = thing
            for id, (expression, region) in queries.items():
                told = client.explain(id, thing_of(thing))
                assert told["matches"] == in_truth(expression, region, thing), (told, thing)
                lacks = (told["text"] is not None and not told["text"]["holds"]) or (
                    not told["region"]["inside"]
                )
                assert told["matches"] != lacks
                assert "bug" not in told["reason"]
                assert told["query"]["id"] == id
                # The same query as if it were inserted now.
                more = client.explain(("", expression, region), thing_of(thing))
                assert more | {"query": told["query"], "query_lsn": told["query_lsn"]} == told
                assert more["query"] == told["query"] | {"id": "", "session": ""}
                assert more["query_lsn"] == 0
                assert told["postings"] == told["cells"] * len(told["units"]) > 0
                yes, no = yes + told["matches"], no + (not told["matches"])
                replicated += any(unit["workers"] or unit["sharded"] for unit in told["units"])
                if told["matches"]:
                    [unit] = [u for u in told["units"] if u["decides"]]
                    assert unit["posted"]
                    assert unit["in_object"]
                    assert told["worker"] == (None if unit["workers"] else unit["worker"])
                    sought = [owners(u) for u in told["units"] if u["posted"] and u["in_object"]]
                    alone = {workers[0] for workers in sought if len(workers) == 1}
                    groups = {workers for workers in sought if not alone & {*workers}}
                    alone |= {
                        w for u in told["units"] if u["posted"] and u["in_object"]
                        for w in u["sharded"]
                    }  # fmt: skip
                    groups = {workers for workers in groups if not alone & {*workers}}
                    assert set(told["sent_to"]) == alone
                    assert {tuple(g["workers"]) for g in told["sent_to_one_of"]} == groups
                    assert unit["west"] <= (lon if lon < 180 else -180.0) or abs(lat) == 90
                else:
                    assert told["worker"] is None
                    looked = (
                        "looks at it in cell"
                        if any((unit := u)["decides"] and u["workers"] for u in told["units"])
                        else f"worker {unit['worker']}"
                        if any((unit := u)["decides"] for u in told["units"])
                        else "no worker looks at it"
                    )
                    assert looked in told["reason"]
    assert yes > 10
    assert no > 50
    assert replicated or all(unit.term is None for unit in plan.replicas)


def owners(unit: dict[str, Any]) -> tuple[int, ...]:
    """The workers that own a unit of an explanation."""
    return tuple(unit["workers"] or [unit["worker"]])


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    settings = Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        data_dir=tmp_path_factory.mktemp("quiet"),
    )
    with start(settings) as service, Client(service.targets[0]) as client:
        yield client


def thing_of(thing: tuple[str, float, float]) -> dict[str, Any]:
    text, lon, lat = thing
    return {"text": text, "lon": lon, "lat": lat}


def explain(quiet: Client, folder: Path, *arguments: str) -> Result:
    """Runs `ps2stream explain` about a post in (0, 0)."""
    file = folder / "post.jsonl"
    file.write_text('{"lon": 0, "lat": 0, "text": "a flood"}')
    more = ("--object", str(file), "--server", quiet.target, "--json")
    return CliRunner().invoke(main, ["explain", *arguments, *more])


def test_the_command_explains_a_query_that_is_not_inserted(quiet: Client, tmp_path: Path) -> None:
    for area, matches in ((("--circle", "0,0,5"), True), (("--rect", "1,1,2,2"), False)):
        answer = json.loads(explain(quiet, tmp_path, "flood", *area).stdout)
        assert (answer["matches"], answer["query_lsn"]) == (matches, 0)
        assert "not inserted, level" in format_explanation(answer)
        assert json.loads(explain(quiet, tmp_path, *area).stdout)["matches"] == matches
    assert not list(quiet.list())
    for arguments, words in (
        ((), "give the id of a live query, or EXPRESSION or an area"),
        (("",), "give the id of a live query, or EXPRESSION or an area"),
        (("flood", "--query", "x"), "cannot be combined"),
        (("--query", "x", "--circle", "0,0,5"), "cannot be combined"),
        (("flood AND",), "query.expression"),
    ):
        refused = explain(quiet, tmp_path, *arguments)
        assert (refused.exit_code, words in refused.stderr) == (2, True), refused.stderr


def test_each_predicate_is_shown_with_the_value_that_it_met(quiet: Client) -> None:
    post = {"lon": 0, "lat": 0, "text": "x", "attributes": {"mag": "5", "deep": True}}
    shown = format_explanation(
        quiet.explain(Query("q", "mag >= 5 AND NOT deep = 1 AND (at > 2026-01-01 OR x)"), post)
    ).splitlines()
    for line in (
        '  no     mag >= 5  (mag is "5", a text, which is not compared with a number)',
        "  no       deep = 1  (deep is true, true or false, which is not compared with a number)",
        "  no       at > 2026-01-01  (the object has no attribute at)",
        "  yes      x",
    ):
        assert line in shown


def test_what_cannot_be_answered(quiet: Client) -> None:
    with pytest.raises(NotFound, match="there is no query 'nobody'"):
        quiet.explain("nobody", {"lon": 0, "lat": 0, "text": ""})
    with pytest.raises(InvalidArgument, match="query_id"):
        quiet.explain("", {"lon": 0, "lat": 0, "text": ""})
    with pytest.raises(InvalidArgument, match=r"object\.lat"):
        quiet.explain("nobody", {"lon": 0, "lat": 91, "text": ""})
    with pytest.raises(InvalidArgument, match=r"query\.expression"):
        quiet.explain(("", "a AND"), {"lon": 0, "lat": 0, "text": ""})
    both = requests.explain_request("nobody", {"lon": 0, "lat": 0, "text": ""})
    both.query.expression = "flood"
    with pytest.raises(InvalidArgument, match="query: is given with query_id"):
        quiet._call_rpc("ExplainMatch", both, explain_pb2.ExplainMatchResponse)
    with pytest.raises(InvalidArgument, match=r"query\.expression"):
        quiet.price("a AND")
    with pytest.raises(InvalidArgument, match="needs an expression or a region"):
        quiet.price()
    with pytest.raises(FailedPrecondition, match="no sample of recent objects"):
        quiet.price("flood")


def test_a_price_comes_of_what_was_published(quiet: Client) -> None:
    rows = [{"lon": 1.0, "lat": 1.0, "text": "flood" if i % 4 == 0 else "calm"} for i in range(400)]
    quiet.publish(rows)
    told = quiet.price("flood", Circle(1.0, 1.0, 5.0))
    assert (told["matched"], told["sampled"]) == (100, 400)
    assert told["matches_low"] < told["matches_per_second"] < told["matches_high"]
    assert told["matches_per_second"] == pytest.approx(told["objects_per_second"] / 4)
    assert sum(w["postings"] for w in told["workers"]) == told["postings"] == told["cells"]
    assert told["copies_per_second"] == told["matches_per_second"]
    nothing = quiet.price("storm")
    assert (nothing["matched"], nothing["load_share"], nothing["matches_low"]) == (0, 0, 0)
    assert nothing["matches_high"] > 0


def test_of_many_terms_all_count_and_the_first_are_told(quiet: Client) -> None:
    quiet.insert("late", "word1400")
    text = " ".join(f"word{i}" for i in range(1500))
    told = quiet.explain("late", {"lon": 0, "lat": 0, "text": text})
    assert told["matches"]
    assert told["terms"] == [f"word{i}" for i in range(1000)]
    quiet.delete("late")


@pytest.mark.parametrize("seed", range(12))
def test_a_price_is_that_of_counting_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    plan, analyzer = some_plan(rng), Analyzer(ANALYSIS)
    gridt = Gridt(plan.compile(analyzer), plan.grid)
    empty = Gridt(plan.compile(analyzer), plan.grid)
    of_others = [some_query(rng) for _ in range(6)]
    gridt.insert(gridt.expand(rows_of(of_others, analyzer)))
    things = [some_object(rng) for _ in range(60)]
    weight = np.array([rng.choice([1.0, 2.0]) for _ in things])
    unsearched = sample_of(things, weight, analyzer)
    for query in (some_query(rng) for _ in range(12)):
        row = rows_of([query], analyzer)
        sample = search_sample(unsearched, row, analyzer)
        price = estimate_query(expanded(empty, row), GI2, PRICES, sample, 15_000)
        beside = estimate_query(expanded(gridt, row), GI2, PRICES, sample, 15_000)
        answer = answer_of(price)
        assert answer_of(beside).SerializeToString() == answer.SerializeToString()
        matched = [i for i, thing in enumerate(things) if in_truth(*query, thing)]
        assert price.matched.tolist() == matched
        assert price.matches_per_second == pytest.approx(weight[matched].sum() / 10)
        tags = empty.expand(row)
        empty.insert(tags)
        copies = np.zeros(empty.workers)
        for i, worker in sent(empty, sample):
            copies[worker] += weight[i] / 10
        checks = empty.candidates(*where(sample))
        empty.retire(tags)
        if plan.replicas:  # of a group an object goes to one, who by the estimate is any
            assert price.copies.sum() >= copies.sum() * (1 - 1e-9)
            assert (price.copies >= 0).all()
            assert (price.checks.sum() > 0) == (checks.sum() > 0)
            assert not ((copies > 0) & (price.copies == 0)).any()
        else:
            assert price.copies.tolist() == pytest.approx(copies.tolist())
            assert (price.checks > 0).tolist() == (checks > 0).tolist()
        assert (weight == 1).any()
        assert price.load.tolist() == pytest.approx((price.checks + 10 * price.copies).tolist())
        assert answer.postings == len(tags.cell)
        assert answer.load_share == pytest.approx(price.load.sum() / 1e6)


def rows_of(queries: list[tuple[str, Region]], analyzer: Analyzer) -> QueryRows:
    ids = strings_to_column([f"q{i}" for i in range(len(queries))])
    frequencies = Frequencies.of({}, analyzer)
    compiled = compile_column(*strings_to_column([e for e, _ in queries]), analyzer, frequencies)
    rows = build_rows(ids, compiled, [region for _, region in queries])
    return rows.replace(handle=np.full(len(queries), NEWEST))


def sample_of(
    things: list[tuple[str, float, float]], weight: np.ndarray, analyzer: Analyzer
) -> ObjectSample:
    """These, accepted at 5 s."""
    n = len(things)
    text = strings_to_column([t for t, _, _ in things])
    none = np.zeros(n + 1, np.int64)
    lon, lat = (np.array([t[k] for t in things]) for k in (1, 2))
    accepted = np.full(n, 5000)
    terms = analyzer.analyse(*text)
    return ObjectSample(
        none, np.zeros(0, np.uint8), accepted, lon, lat, *text, *terms, weight, accepted, 0
    )


def where(sample: ObjectSample) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return sample.lon, sample.lat, sample.term_off, sample.term


def sent(gridt: Gridt, sample: ObjectSample) -> set[tuple[int, int]]:
    """(object, worker)."""
    shares, _ = gridt.route(*where(sample))
    return {(int(i), share.worker) for share in shares for i in share.row}


def test_bounds_hold_the_estimate_however_the_rows_weigh() -> None:
    analyzer = Analyzer(ANALYSIS)
    plan = some_plan(random.Random(2))
    gridt = Gridt(plan.compile(analyzer), plan.grid)
    things = [("flood" if i < 20 else "calm", 1.0, 1.0) for i in range(500)]
    sample = sample_of(things, np.array([64.0] * 20 + [1.0] * 480), analyzer)
    row = rows_of([("flood", World())], analyzer)
    told = answer_of(estimate_query(expanded(gridt, row), GI2, Costs(), sample, 15_000))
    assert told.matches_low < told.matches_per_second < told.matches_high
    # 20 rows say little, whatever they stand for.
    assert told.matches_high - told.matches_low > 0.2 * told.objects_per_second


def test_a_price_is_of_the_time_that_the_sample_tells_of() -> None:
    analyzer = Analyzer(ANALYSIS)
    plan = some_plan(random.Random(2))
    gridt = Gridt(plan.compile(analyzer), plan.grid)
    sample = sample_of([("flood", 1.0, 1.0)], np.ones(1), analyzer)._replace(since=1000)
    row = rows_of([("flood", World())], analyzer)
    # The one object since 1 s came at 5 s.
    price = estimate_query(expanded(gridt, row), GI2, Costs(), sample, 11_000)
    assert price.window_s == 10
    assert price.matches_per_second == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("region", "lon", "lat", "detail"),
    [
        (Rect(8.1234567, 47, 9, 48), 8.1234566, 47.5,
         "(8.1234566, 47.5) lies west or east of 8.1234567..9 E, 47..48 N"),
        (Circle(0, 0, 30), 0.0, 0.26979611, "is 30.00000009"),
        (Circle(0, 0, 30), 0.0, 0.26979601, "is 29.99998"),
        (Circle(0, 0, 30), 0.0, 0.2, "is 22.239 km from (0, 0), the radius 30 km"),
    ],
)  # fmt: skip
def test_a_border_is_told_with_the_digits_it_takes(
    region: Region, lon: float, lat: float, detail: str
) -> None:
    assert detail in region_test(region, lon, lat).detail


def test_the_interval_holds_the_truth() -> None:
    rng = np.random.default_rng(1)
    for share in (0.01, 0.1, 0.5, 0.99):
        found = rng.binomial(500, share, 400)
        inside = [low <= share <= high for low, high in (interval(k / 500, 500) for k in found)]
        assert 0.9 <= np.mean(inside) <= 1
    assert interval(0, 100)[0] == 0
    assert 0 < interval(0, 100)[1] < 0.05
    assert interval(1, 100)[1] == 1
