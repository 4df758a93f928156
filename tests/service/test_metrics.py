"""What a scrape of the service in one process says, against what was done."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ps2stream.client.client import Client
from ps2stream.cluster.running_service import RunningService
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import InvalidArgument
from ps2stream.observability.metrics import METRICS, MetricKind
from tests.support.prometheus_server import free_port, program

Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def metered(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[RunningService]:
    settings = Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        data_dir=Path(tmp_path_factory.mktemp("data")),
        metrics_port=port,
        load_period_s=0.5,
        quotas={"default": {"objects_per_s": 1000}},
    )
    with start(settings) as running:
        yield running


def scraped(port: int) -> tuple[Values, dict[str, str]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    families = list(text_string_to_metric_families(text))
    found = {
        (s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples
    }
    return found, {family.name: family.type for family in families}


def of(found: Values, name: str, **labels: str) -> float:
    """The sum over samples with these labels."""
    return sum(
        v for (n, at), v in found.items() if n == name and labels.items() <= dict(at).items()
    )


def test_a_scrape_tells_what_was_done(metered: RunningService, port: int) -> None:
    with Client(metered.targets[0]) as client:
        client.insert("a", "storm")
        client.insert("b", "storm OR rain")
        client.insert("c", "never")
        client.delete("c")
        with pytest.raises(Exception, match="a"):
            client.insert("a", "other")
        with client.subscribe() as stream:
            client.publish([{"lon": 1.0, "lat": 2.0, "text": "a storm"}] * 5)
            client.publish([{"lon": 1.0, "lat": 2.0, "text": "nothing"}] * 3)
            with pytest.raises(InvalidArgument):
                client.publish([{"lon": 1000.0, "lat": 2.0, "text": "x"}])
            matches = iter(stream)
            got = [next(matches) for _ in range(10)]
            assert len(got) == 10
            while client.status()["in_flight"]:
                pass
            found, _ = scraped(port)
            assert of(found, "ps2stream_streams") == 1
            assert of(found, "ps2stream_credits") > 0
    assert of(found, "ps2stream_objects_total") == 8
    assert of(found, "ps2stream_objects_discarded_total") == 3
    assert of(found, "ps2stream_matches_total") == 10
    assert of(found, "ps2stream_delivered_matches_total") == 10
    assert of(found, "ps2stream_objects_refused_total", reason="invalid") == 1
    assert of(found, "ps2stream_updates_total", kind="insert") == 3
    assert of(found, "ps2stream_updates_total", kind="delete") == 1
    assert of(found, "ps2stream_updates_refused_total", reason="already_exists") == 1
    assert of(found, "ps2stream_live_queries") == 2
    assert of(found, "ps2stream_workers") == 2
    assert of(found, "ps2stream_up", role="worker") == 2
    assert of(found, "ps2stream_stage_seconds_count", stage="intake") == 8
    assert of(found, "ps2stream_stage_seconds_count", stage="durable") == 8
    assert of(found, "ps2stream_stage_seconds_bucket", stage="complete", le="+Inf") == 5
    assert of(found, "ps2stream_stage_seconds_count", stage="match") >= 1
    assert of(found, "ps2stream_stage_seconds_sum", stage="match") > 0
    assert of(found, "ps2stream_disk_free_bytes") > 0
    assert of(found, "process_resident_memory_bytes") > 0


def test_a_scrape_has_only_metrics_of_the_table_with_its_kinds_and_labels(
    metered: RunningService, port: int
) -> None:
    found, kinds = scraped(port)
    table = {metric.name.removesuffix("_total"): metric for metric in METRICS}
    ours = {name: kind for name, kind in kinds.items() if name.startswith("ps2stream")}
    assert ours.keys() <= table.keys()
    for name, kind in ours.items():
        assert kind == table[name].kind
    for (name, labels), value in found.items():
        if not name.startswith("ps2stream"):
            continue
        base = name.removesuffix("_total")
        if base not in table:
            base = base.rpartition("_")[0]
        assert {n for n, _ in labels} - {"le"} == set(table[base].labels)
        if table[base].kind is not MetricKind.GAUGE:
            assert value >= 0


def test_promtool_has_nothing_against_a_scrape(metered: RunningService, port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read()
    done = subprocess.run(
        [program("promtool"), "check", "metrics"], input=text, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_a_metrics_port_in_use_is_refused_by_name(
    tmp_path: Path, port: int, metered: RunningService
) -> None:
    settings = Settings(runtime="local", port=0, workers=1, data_dir=tmp_path, metrics_port=port)
    with pytest.raises(InvalidArgument, match=f"metrics_port: {port}.*in use"):
        start(settings)
