"""What Ray exports of the actors, and what Prometheus makes of it."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from prometheus_client.parser import text_string_to_metric_families

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import Unauthenticated
from ps2stream.protocol.tokens import make
from ps2stream.security import AccessScope, TenantQuota
from ps2stream.store.tokens import FileTokenStore
from tests.support.prometheus_server import free_port, server

pytestmark = pytest.mark.ray


class Collector(BaseHTTPRequestHandler):
    """An OTLP endpoint: `seen` are (actor, span)."""

    seen: ClassVar[list[tuple[str, Span]]] = []

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        for found in ExportTraceServiceRequest.FromString(data).resource_spans:
            values = {a.key: a.value.string_value for a in found.resource.attributes}
            spans = [span for scope in found.scope_spans for span in scope.spans]
            Collector.seen += [(values["service.instance.id"], span) for span in spans]
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class HealthyGrafana(BaseHTTPRequestHandler):
    """The one answer of a Grafana that Ray itself asks for; a browser asks for the rest."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/api/health" else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"database": "ok"}')

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def grafana() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), HealthyGrafana) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


@pytest.fixture
def collector() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def scraped(port: int, name: str, **labels: str) -> float:
    """The sum over the samples of this name with these labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
    return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())


def asked(port: int, token: str, path: str) -> dict[str, Any]:
    """What Ray's dashboard answers. Raises urllib.error.HTTPError."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/{path}", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        data: dict[str, Any] = json.load(answer)["data"]
        return data


def shown(port: int, token: str) -> set[tuple[str, str, str]]:
    """Name, repr and class of the actors that live, by Ray's dashboard."""
    rows = asked(port, token, "v0/actors?detail=1")["result"]["result"]
    return {
        (row["name"], row["repr_name"], row["class_name"])
        for row in rows
        if row["state"] == "ALIVE"
    }


def until(found: Callable[[], float], wanted: Callable[[float], bool]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            value = found()
        except OSError:  # the port opens a little later than the service
            value = float("nan")
        if wanted(value):
            return
        assert time.monotonic() < deadline, value
        time.sleep(0.2)


@pytest.mark.takes_turns(1)
def test_the_actors_metrics_are_scraped_from_ray(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    collector: str,
    grafana: str,
) -> None:
    caplog.set_level("INFO", "ps2stream")
    monkeypatch.setenv("RAY_metrics_report_interval_ms", "1000")
    port, made = free_port(), tmp_path / "made"
    asks = free_port()
    urls = ("--grafana", grafana, "--prometheus", f"http://127.0.0.1:{asks}")
    words = ["dashboards", "-o", str(made), "--target", f"127.0.0.1:{port}", *urls]
    assert CliRunner().invoke(main, words).exit_code == 0
    for line in (made / "ray.env").read_text().splitlines():
        if not line.startswith("#"):
            monkeypatch.setenv(*line.split("=", 1))
    settings = Settings(
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        data_dir=tmp_path / "data",
        metrics_port=port,
        dashboard_port=(board := free_port()),
        metrics_s=0.5,
        trace_every=1,
        trace_endpoint=collector,
        auth=True,
        quotas={"acme": TenantQuota()},
    )
    made_token = make(os.urandom(40), "acme", frozenset(AccessScope), 0)
    with FileTokenStore(settings.data_dir) as store:
        store.keep_tokens([made_token.token])
    with start(settings) as service, Client(service.targets[0], token=made_token.text) as client:
        with Client(service.targets[0]) as stranger, pytest.raises(Unauthenticated):
            stranger.get("a")
        pids = [status["pid"] for status in service.status().values()]
        nice = {os.getpriority(os.PRIO_PROCESS, pid) for pid in pids}
        assert (len(pids), nice) == (6, {os.getpriority(os.PRIO_PROCESS, 0)})
        client.insert("a", "storm")
        with client.subscribe() as matches:
            client.publish([{"lon": 1.0, "lat": 2.0, "text": "a storm"}] * 20)
            client.publish([{"lon": 1.0, "lat": 2.0, "text": "nothing"}] * 3)
            got = iter(matches)
            for _ in range(20):
                next(got)
        for name, labels, wanted in (
            ("objects_total", {}, 23),
            ("objects_discarded_total", {}, 3),
            ("matches_total", {"role": "worker"}, 20),
            ("delivered_matches_total", {}, 20),
            ("updates_total", {"kind": "insert"}, 1),
            ("live_queries", {}, 1),
            ("up", {"role": "worker"}, 2),
            ("stage_seconds_bucket_total", {"stage": "complete", "le": "+Inf"}, 20),
            ("stage_seconds_count_total", {"stage": "durable"}, 23),
        ):
            full = f"ray_ps2stream_{name}"
            until(lambda: scraped(port, full, **labels), lambda value: value == wanted)  # noqa: B023
        until(lambda: len((client.status()["census"] or {"actors": ()})["actors"]), (6).__eq__)
        found = client.status()
        assert found["healthy"], found["problems"]
        assert all(actor["resident_bytes"] > 0 for actor in found["census"]["actors"])
        [line] = [text for text in caplog.messages if text.startswith("Ray's dashboard")]
        assert f"http://127.0.0.1:{board};" in line
        token = Path(line.rpartition(" ")[2]).read_text()
        until(lambda: len(shown(board, token)), lambda found: found >= 6)
        assert {(name, seen) for name, seen, _ in shown(board, token)} == {
            (name, name)
            for name in ("dispatcher-0", "worker-0", "worker-1", "merger-0", "sequencer-0",
                         "controller-0")
        }  # fmt: skip
        assert ("worker-1", "worker-1", "WorkerShell") in shown(board, token)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            shown(board, "guessed")
        assert scraped(port, "ray_ps2stream_stage_seconds_bucket_total", stage="link") > 0
        assert scraped(port, "ray_ps2stream_resident_bytes", role="worker") > 0
        with pytest.raises(urllib.error.HTTPError, match="500"):
            asked(board, token, "prometheus_health")
        with server(made, asks) as prometheus:
            asked(board, token, "prometheus_health")
            tab = asked(board, token, "grafana_health")
            assert tab["grafanaHost"] == grafana
            assert (tab["dashboardUids"]["default"], tab["dashboardDatasource"]) == (
                json.loads((made / "grafana/dashboards/ps2stream.json").read_text())["uid"],
                "ps2stream",
            )
            prometheus.until("sum(ps2stream_objects_total)", 23)
            of = 'stage="complete", le="+Inf"'
            prometheus.until(f"sum(ps2stream_stage_seconds_bucket{{{of}}})", 20)
            [(labels, count)] = prometheus.values(
                'count by (__name__, role) (ps2stream_up{role="worker", WorkerId!=""})'
            )
            assert (labels["__name__"], count) == ("ps2stream_up", 2)
            assert prometheus.values('{__name__=~"ray_ps2stream_.*"}') == []
            assert prometheus.values('{__name__=~"ps2stream_.*", otel_scope_name!=""}') == []
    judge_traces()
    said = [record for record in caplog.records if record.getMessage().startswith("serving on")]
    assert [getattr(record, "actor", "") for record in said] == ["dispatcher-0"]


def judge_traces() -> None:
    """Of each batch with a match, every stage hangs below the whole."""
    whole = {span.trace_id: span for _, span in Collector.seen if span.name == "batch"}
    parts = [(actor, span) for actor, span in Collector.seen if span.name != "batch"]
    assert whole
    by: dict[bytes, dict[str, str]] = {}
    for actor, span in parts:
        assert span.parent_span_id == whole[span.trace_id].span_id
        assert span.start_time_unix_nano <= span.end_time_unix_nano
        by.setdefault(span.trace_id, {})[span.name] = actor.partition("-")[0]
    assert all(
        found == {"publish": "dispatcher", "route": "dispatcher", "match": "worker",
                  "merge": "merger", "deliver": "dispatcher"}
        for found in by.values()
    )  # fmt: skip
