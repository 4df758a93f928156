"""The table of metrics, what a status becomes, and the histograms."""

from __future__ import annotations

import contextlib
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps2stream.benchmarks import metering
from ps2stream.benchmarks.metering import run_metering
from ps2stream.observability.exporters import NOTHING, MetricRecorder
from ps2stream.observability.meter import STAGES, StageMeter, matched
from ps2stream.observability.metrics import (
    BOUNDS,
    LE,
    METRICS,
    DurationHistogram,
    MetricKind,
    samples,
)
from ps2stream.protocol.addresses import ROLES, Send
from ps2stream.protocol.frame import Frame
from ps2stream.protocol.messages.updates import LedgerTip
from ps2stream.protocol.messages.watch import WatchNotice


def test_names_are_unique_and_follow_the_conventions_of_prometheus() -> None:
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    for metric in METRICS:
        assert re.fullmatch(r"ps2stream_[a-z0-9_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER), metric.name
        assert {source.role for source in metric.sources} <= {*ROLES, ""}
        assert len(set(metric.labels)) == len(metric.labels)
        assert "le" not in metric.labels


@given(
    st.lists(st.tuples(st.floats(0, 20) | st.sampled_from(BOUNDS), st.integers(1, 9)), max_size=50)
)
def test_a_histogram_counts_what_is_not_above_each_bound(found: list[tuple[float, int]]) -> None:
    histogram = DurationHistogram()
    for seconds, count in found:
        histogram.add(seconds, count)
    for le, below in zip(LE, histogram.cumulated, strict=True):
        assert below == sum(count for seconds, count in found if seconds <= float(le))
    assert math.isclose(histogram.total, sum(s * n for s, n in found), abs_tol=1e-9)


def test_samples_of_a_status() -> None:
    stage = DurationHistogram()
    status = {
        "objects": 7,
        "refused_objects": {"quota": 3, "full": 0},
        "in_flight": 2,
        "stages": {"intake": stage},
        "failure": "",
        "snapshot": {"lsn": 5},
        "loads_us": [1.0, 2.0],
    }
    got = {(s.metric.name, s.labels): s.value for s in samples("dispatcher", 1, status)}
    assert got == {
        ("ps2stream_objects_total", ("dispatcher", "1")): 7.0,
        ("ps2stream_objects_refused_total", ("dispatcher", "1", "quota")): 3.0,
        ("ps2stream_objects_refused_total", ("dispatcher", "1", "full")): 0.0,
        ("ps2stream_batches_in_flight", ("dispatcher", "1")): 2.0,
        ("ps2stream_stage_seconds", ("dispatcher", "1", "intake")): stage,
    }
    got = {(s.metric.name, s.labels): s.value for s in samples("worker", 0, status)}
    assert got["ps2stream_snapshot_lsn", ("worker", "0")] == 5.0
    assert ("ps2stream_objects_total", ("worker", "0")) not in got
    got = {(s.metric.name, s.labels): s.value for s in samples("controller", 0, status)}
    assert got["ps2stream_worker_load_seconds", ("controller", "0", "1")] == pytest.approx(2e-6)


def test_what_fails_is_not_timed() -> None:
    meter = StageMeter()
    with contextlib.suppress(ValueError), meter.time("sync"):
        raise ValueError
    assert meter.stages == {}
    with meter.time("sync"):
        pass
    assert sum(meter.stages["sync"].counts) == 1


class Worker:
    """Matches every frame but Tip."""

    batches = 0

    def on(self, frame: Frame) -> list[Send]:
        self.batches += not isinstance(frame, LedgerTip)
        return []


def test_only_matching_is_timed_as_such() -> None:
    meter, worker = StageMeter(), Worker()
    matched(worker, LedgerTip(1, 1), meter)
    assert meter.stages == {}
    matched(worker, WatchNotice(0), meter)
    assert sum(meter.stages["match"].counts) == 1


class Told:
    """Stands for ray.util.metrics: adds up, and refuses what Ray would refuse."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, tuple[str, ...]], float] = {}

    def metric(self, kind: str, name: str, labels: tuple[str, ...]) -> Told.Metric:
        return self.Metric(self, name, labels)

    class Metric:
        def __init__(self, told: Told, name: str, labels: tuple[str, ...]) -> None:
            self.told, self.name, self.labels = told, name, labels

        def set(self, value: float, tags: dict[str, str]) -> None:
            self.told.values[self.name, tuple(tags[n] for n in self.labels)] = value

        def inc(self, value: float, tags: dict[str, str]) -> None:
            assert value > 0
            assert set(tags) == set(self.labels)
            key = (self.name, tuple(tags[n] for n in self.labels))
            self.told.values[key] = self.told.values.get(key, 0.0) + value


def test_ray_is_told_differences_of_counters_every_few_ticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told()
    recorder = MetricRecorder("worker", 3, ticks=2)
    monkeypatch.setattr(recorder, "_get_metric", told.metric)
    meter = StageMeter()
    status = {"matches": 10, "live": 4, "stages": meter.stages}
    recorder.tick(lambda: status)
    assert told.values == {}
    recorder.tick(lambda: status)
    at = ("worker", "3")
    assert told.values == {("ps2stream_matches_total", at): 10, ("ps2stream_worker_queries", at): 4}
    meter.add("match", 0.002, 5)
    status = {"matches": 15, "live": 3, "stages": meter.stages}
    for _ in range(4):
        recorder.tick(lambda: status)
    assert told.values["ps2stream_matches_total", at] == 15
    assert told.values["ps2stream_worker_queries", at] == 3
    stage = (*at, "match")
    assert told.values["ps2stream_stage_seconds_count", stage] == 5
    assert told.values["ps2stream_stage_seconds_sum", stage] == pytest.approx(0.01)
    buckets = {k[1][-1]: v for k, v in told.values.items() if k[0].endswith("_bucket")}
    assert buckets == {le: 5 if float(le) >= 0.002 else NOTHING for le in LE}


def test_a_counter_is_there_before_it_has_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    recorder = MetricRecorder("merger", 0, ticks=1)
    monkeypatch.setattr(recorder, "_get_metric", told.metric)
    key = ("ps2stream_lost_matches_total", ("merger", "0"))
    seen = []
    for lost in (0, 0, 5):
        recorder.tick(lambda lost=lost: {"lost": lost})  # type: ignore[misc]
        seen.append(told.values[key])
    assert seen == [NOTHING, NOTHING, 5.0]


def test_a_recorder_that_fails_ends_nothing_else_and_tries_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> dict[str, int]:
        raise ValueError("a bug")

    told = Told()
    recorder = MetricRecorder("worker", 0, ticks=1)
    monkeypatch.setattr(recorder, "_get_metric", told.metric)
    with caplog.at_level("ERROR", logger="ps2stream.cluster"):
        recorder.tick(broken)
        recorder.tick(broken)
        assert caplog.text.count("the metrics of worker-0 could not be reported") == 1
        recorder.tick(lambda: {"live": 4})
        assert told.values == {("ps2stream_worker_queries", ("worker", "0")): 4}
        recorder.tick(broken)
    assert caplog.text.count("the metrics of worker-0 could not be reported") == 2


def test_the_documentation_has_every_metric_and_stage_as_the_table_has_it(root: Path) -> None:
    text = (root / "docs/metrics.md").read_text("utf-8")
    for metric in METRICS:
        labels = ", ".join(f"`{name}`" for name in metric.labels[2:])
        assert f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |" in text
    for stage, meaning in STAGES.items():
        assert f"| `{stage}` | {meaning} |" in text
    named = set(re.findall(r"ps2stream_[a-z0-9_]+", text))
    suffixed = {f"{m.name}_{s}" for m in METRICS if m.kind is MetricKind.HISTOGRAM
                for s in ("bucket", "sum", "count")}  # fmt: skip
    assert named <= {m.name for m in METRICS} | suffixed


@pytest.mark.takes_turns
@pytest.mark.parametrize("watched", [False, True])
def test_metering_and_watching_change_no_match(
    watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metering, "TICK_S", 0.005)
    found = run_metering(queries=200, batch=64, seconds=0.01, watched=watched)
    assert found["verified"] == {"different": 0}
    assert found["blocks"] >= 2
    assert found["cpu_ratio"] > 0
    assert not watched or found["seen"] > 0
