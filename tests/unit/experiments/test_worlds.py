"""The experiments' arithmetic and verdicts; the commands are run in tests/service."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ps2stream.benchmarks.engine import query_rows, tags_of
from ps2stream.benchmarks.publisher import PublishInterval
from ps2stream.benchmarks.subscriber import DeliveryReceipt
from ps2stream.benchmarks.verified import verified
from ps2stream.benchmarks.workload import PostColumns, make
from ps2stream.commands.experiment import NAMES
from ps2stream.experiments import f8, f16, salb
from ps2stream.experiments.evaluate import evaluate
from ps2stream.experiments.f8 import lateness
from ps2stream.experiments.loads import measured
from ps2stream.experiments.plans import JUDGED_AT, ExperimentSettings, planned
from ps2stream.experiments.report import ExperimentReport, ReportChart, at_least, at_most, ordering
from ps2stream.experiments.suite import EXPERIMENTS
from ps2stream.experiments.topics import post_subscriptions, topic_subscriptions, topics
from ps2stream.experiments.worlds import (
    FULL,
    SYNTHETIC,
    StreamSize,
    StreamWorld,
    make_world,
    westward,
)
from ps2stream.language.analyzer import Analysis, Analyzer, Frequencies
from ps2stream.protocol.frame import F64, column_to_strings
from ps2stream.workers.gi2 import GI2


def test_an_ordering_holds_when_every_measure_says_so() -> None:
    assert ordering("a over b", {"modelled": 1.2, "kernel": 1.04}).verdict == "holds"
    assert ordering("a over b", {"modelled": 1.01, "kernel": 0.98}).verdict == "equal"
    assert ordering("a over b", {"modelled": 0.9, "kernel": 0.5}).verdict == "reversed"
    assert ordering("a over b", {"modelled": 1.2, "kernel": 0.9}).verdict == "mixed"
    assert ordering("a over b", {"modelled": 1.2, "kernel": 1.0}).verdict == "mixed"


def test_a_lost_number_is_called_lost_and_a_known_one_compared() -> None:
    assert ordering("a over b", {"modelled": 1.5}).paper == "lost"
    found = ordering("a over b", {"modelled": 1.5, "kernel": 1.2}, "30 / 20", 1.5)
    assert found.paper == "30 / 20 = 1.50x"
    assert found.measured.endswith("0.80 of the paper's ratio")


def test_goals_are_met_partly_or_missed() -> None:
    assert at_least("x", {"a": 1.3, "b": 1.4}, 1.3).verdict == "met"
    assert at_least("x", {"a": 1.3, "b": 1.2}, 1.3).verdict == "partly"
    assert at_most("x", {"a": 1.4}, 1.3, "our goal").verdict == "missed"


def test_a_report_is_written_as_json_and_png(tmp_path: Path) -> None:
    chart = ReportChart("bars", "ms", {"one": {"model": {"a": 1.0, "b": 2.0}}})
    verdicts = [ordering("a over b", {"model": 2.0})]
    rows = [
        {"name": "a", "value": 12345.6, "balance": float("inf")},
        {"name": "b", "value": 0.5, "balance": 1.0},
    ]
    report = ExperimentReport("x", "of tests", {"seed": 1}, ["a note"], ("name", "value"), rows,
        verdicts,
                    chart)  # fmt: skip
    data, picture = report.save(tmp_path / "new")
    read = json.loads(data.read_text())
    assert read["verdicts"][0]["verdict"] == "holds"
    assert read["rows"] == [rows[0] | {"balance": None}, rows[1]]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert report.text().splitlines()[2:5] == ["name   value", "   a  12,346", "   b     0.5"]


def test_every_experiment_has_a_command() -> None:
    assert tuple(EXPERIMENTS) == NAMES


def test_a_batch_waits_for_the_one_before_it() -> None:
    # Worker 0 is done 3 s after the first leaves, 2 s after the second does; then idle.
    late = lateness(np.array([[3.0, 0.5], [2.0, 0.5], [1.0, 0.0]]), np.array([9.0, 1.0, 10.0]))
    assert late.tolist() == [[3.0, 0.5], [4.0, 0.5], [1.0, 0.0]]


def test_latency_is_of_equal_batches_of_every_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[StreamSize] = []

    def worlds(settings: ExperimentSettings, groups: Sequence[str]) -> list[StreamWorld]:
        asked.append(settings.size)
        return []

    monkeypatch.setattr(f8, "make_worlds", worlds)
    f8.run(ExperimentSettings(size=FULL))
    for source in ("posts.parquet", SYNTHETIC):
        size = asked[0].of(source)
        assert size.judged / size.rounds == pytest.approx(f8.BATCH, rel=0.05)


def random_posts(
    rng: np.random.Generator, rows: int = 60, words: int = 12
) -> salb.WordPublications:
    sets = [rng.choice(words, rng.integers(0, 5), replace=False) for _ in range(rows)]
    return salb.WordPublications(np.r_[0, np.cumsum([len(s) for s in sets])], np.concatenate(sets))


@pytest.mark.parametrize("seed", range(5))
def test_loads_of_nodes_are_counted_as_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    posts, to = random_posts(rng), rng.integers(0, 4, 12)
    want = [0, 0, 0, 0]
    for i in range(len(posts.off) - 1):
        for node in {int(to[w]) for w in posts.word[posts.off[i] : posts.off[i + 1]]}:
            want[node] += 1
    assert salb.load(posts, to, 4).tolist() == want


def test_only_the_subscribed_words_are_left() -> None:
    posts = salb.WordPublications(np.array([0, 2, 3, 5]), np.array([0, 1, 2, 1, 3]))
    kept = posts.only(np.array([False, True, False, True]))
    assert (kept.off.tolist(), kept.word.tolist()) == ([0, 1, 3], [1, 1, 3])


def test_hot_words_are_cut_into_versions_and_others_are_not() -> None:
    # Word 0 stands in all of 40 posts, words 1..40 in one each: the cap for 4 nodes is 10.
    off = np.arange(0, 81, 2)
    posts = salb.WordPublications(
        off, np.stack([np.zeros(40, np.int64), 1 + np.arange(40)], 1).ravel()
    )
    learnt, held, count = salb.split_hot(posts, posts, 41, 4, np.random.default_rng(1))
    assert len(count) == 41 + 4
    for found in (learnt, held):
        assert set(found.word[::2].tolist()) == {41, 42, 43, 44}
        assert found.word[1::2].tolist() == posts.word[1::2].tolist()


def test_topics_are_words_that_occur_together() -> None:
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 6, 2000)
    rows = [g * 5 + rng.choice(5, 4, replace=False) for g in groups.tolist()]
    off = np.arange(0, 8001, 4)
    found = topics(off, np.concatenate(rows), 30)
    assert sorted(sorted(t) for t in found) == [list(range(g * 5, g * 5 + 5)) for g in range(6)]
    sub_off, word = topic_subscriptions(found, 200, rng)
    for a, b in zip(sub_off[:-1].tolist(), sub_off[1:].tolist(), strict=True):
        mine = word[a:b].tolist()
        assert 1 <= len(set(mine)) == len(mine) <= 5
        assert len({w // 5 for w in mine}) == 1


def test_a_subscription_of_a_post_has_all_its_words() -> None:
    posts = random_posts(np.random.default_rng(4))
    sets = {tuple(posts.word[a:b].tolist()) for a, b in itertools.pairwise(posts.off)}
    off, word = post_subscriptions(posts.off, posts.word, 100, np.random.default_rng(5))
    mine = {tuple(word[a:b].tolist()) for a, b in itertools.pairwise(off)}
    assert mine <= sets - {()}


def test_workers_measure_what_a_plan_is_judged_by() -> None:
    world = make_world("w", SYNTHETIC, "q3", StreamSize(2_000, 2_000, 4_000, 2), 1, westward)
    plan = planned(world, "hybrid", 4, ExperimentSettings())
    judged = evaluate(plan, world.analyzer, world.period, JUDGED_AT, 0)
    units = measured(plan, world.analyzer, world.period)

    def of(values: F64) -> list[float]:
        return [float(values[units.worker == w].sum()) for w in range(4)]

    assert of(units.inserts) == judged.inserts.tolist()
    assert of(units.deletes) == judged.deletes.tolist()
    assert of(units.checks) == pytest.approx(judged.candidates, rel=0.02)
    assert of(units.objects) == judged.objects.tolist()
    assert units.bytes.sum() > 0


def test_the_hot_spot_wanders_west() -> None:
    load = make(SYNTHETIC, "q1", 100, 10, 4_000, 1, Analyzer(Analysis(salt=1)))
    moved = westward(load)
    lon, middle = moved.posts.lon, np.median(load.posts.lon)
    assert (lon[:1000] > middle).mean() == pytest.approx(0.75, abs=0.06)
    assert (lon[-1000:] > middle).mean() == pytest.approx(0.25, abs=0.06)

    def rows(posts: PostColumns) -> list[tuple[float, float, str]]:
        texts = column_to_strings(posts.text_off, posts.text)
        return sorted(zip(posts.lon.tolist(), posts.lat.tolist(), texts, strict=True))

    assert rows(moved.posts) == rows(load.posts)


def test_a_tenth_of_the_regions_flips() -> None:
    load = make(SYNTHETIC, "q3", 2_000, 2_000, 4_000, 1, Analyzer(Analysis(salt=1)))
    flipped = load.flipping(500, first=500)
    same = flipped.kind == load.kind
    assert same[: load.start + 1_000].all()
    for first in range(load.start + 1_000, load.start + 2_000, 500):
        assert 0 < (~same[first : first + 500]).mean() < 0.6
    before, after = load.interests, flipped.interests
    assert (before.word[same] == after.word[same]).all()
    assert (before.rect[same] == after.rect[same]).all()
    now = np.flatnonzero(~same & (flipped.kind == 2))
    common = len(load.words) // 100
    assert (after.word[now, 0] >= common).all()
    assert 50 < flipped.square[now, 2].max() <= 100
    assert flipped.square[~same & (flipped.kind == 1), 2].max() <= 50


def test_the_longest_run_is_told() -> None:
    assert f16.longest([True, False, True, True, False]) == 2
    assert f16.longest([]) == 0


def test_what_is_lost_and_what_comes_twice_is_told() -> None:
    load = make(SYNTHETIC, "q1", 500, 1, 200, 1, Analyzer(Analysis(salt=1)))
    born = np.arange(1, 502)
    interval = PublishInterval(
        0.0, size=1, offsets=np.arange(200), lsns=np.full(200, 600), rows=np.arange(200),
        born=born, died=np.full(501, 1 << 62),
    )  # fmt: skip
    wanted = verified(load, [interval], [DeliveryReceipt()], 1)
    assert wanted["sampled"] == 200
    assert wanted["lost"] > 0
    assert wanted["doubled"] == 0
    of_none = dict.fromkeys(("wrong", "lost", "doubled"), 0)
    rows = query_rows(load, analyzer := Analyzer(Analysis(salt=1)),
                      Frequencies.of(load.counts, analyzer), 0, 501)  # fmt: skip
    index = GI2(load.grid)
    index.insert(*tags_of(rows, load.grid))
    off, term = analyzer.analyse(load.posts.text_off, load.posts.text)
    found = index.match(600, load.posts.lon, load.posts.lat, off, term)
    got: dict[int, list[int]] = {}
    for row, handle in zip(found.row.tolist(), found.handle.tolist(), strict=True):
        got.setdefault(row, []).append(handle)
    assert (
        verified(load, [interval], [DeliveryReceipt(sample=got)], 1) == {"sampled": 200} | of_none
    )
    some = next(iter(got))
    twice = {**got, some: [*got[some], got[some][0]]}
    told = verified(load, [interval], [DeliveryReceipt(sample=twice)], 1)
    assert told == {"sampled": 200} | of_none | {"wrong": 1, "doubled": 1}
