"""Dashboard and alerts ask for what there is, and the documentation has the alerts."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.dashboards.alerts import ALERTS
from ps2stream.dashboards.grafana import ROWS, dashboard
from ps2stream.metrics import METRICS, Kind

QUERIES = [expr for row in ROWS for panel in row.panels for _, expr in panel.queries]
_SELECTOR = re.compile(r"(ps2stream_[a-z0-9_]+)(?:\{([^}]*)\})?")


def test_every_query_is_of_metrics_and_labels_that_there_are() -> None:
    labels: dict[str, set[str]] = {}
    for metric in METRICS:
        own = {*metric.labels, "job", "instance"}
        parts = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else ("",)
        labels |= {metric.name + part: own | {"le"} for part in parts}
    for expr in (*QUERIES, *(alert.expr for alert in ALERTS)):
        used = _SELECTOR.findall(expr)
        assert used or expr.startswith("up{"), expr
        for name, matchers in used:
            assert name in labels, expr
            assert set(re.findall(r"(\w+)=", matchers)) <= labels[name], expr
        known = set().union(*(labels[name] for name, _ in used))
        for clause in re.findall(r" by \(([^)]*)\)", expr):
            assert set(re.split(r",\s*", clause)) <= known, expr


def test_a_counter_is_not_shown_as_it_is() -> None:
    counters = {metric.name for metric in METRICS if metric.kind is Kind.COUNTER}
    totals = {
        f"ps2stream_{name}_total"
        for name in (
            "migrations", "adjustments", "parts_changed", "sunsets", "replans", "replans_failed",
        )
    }  # fmt: skip
    for expr in (*QUERIES, *(alert.expr for alert in ALERTS)):
        bare = re.findall(r"(?<!rate\()(?<!increase\()(ps2stream_\w+_total)", expr)
        assert set(bare) & counters <= totals, expr


def test_every_metric_is_shown_or_watched() -> None:
    used = {name for expr in (*QUERIES, *(a.expr for a in ALERTS))
            for name, _ in _SELECTOR.findall(expr)}  # fmt: skip
    seen = {name.removesuffix("_bucket").removesuffix("_count") for name in used}
    # For looking up, not for looking at.
    rare = {"routing_units", "snapshot_lsn", "workers", "load_periods_total", "disk_bytes"}
    missing = {
        metric.name.removeprefix("ps2stream_") for metric in METRICS if metric.name not in seen
    }
    assert missing <= rare, missing - rare


def test_panels_do_not_overlap_and_legends_name_labels_of_their_query() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        area = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert not area & taken, panel["title"]
        assert max(x for x, _ in area) < 24
        taken |= area
        for target in panel.get("targets", []):
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert re.search(rf" by \([^)]*\b{label}\b", target["expr"]), target


def test_the_documentation_has_every_alert_with_what_to_do(root: Path) -> None:
    text = " ".join((root / "docs/metrics.md").read_text("utf-8").split())
    for alert in ALERTS:
        assert f"### {alert.name} {' '.join(alert.runbook.split())}" in text
    assert set(re.findall(r"### (Ps2stream\w+)", text)) == {alert.name for alert in ALERTS}


def test_no_name_of_a_counter_looks_like_a_part_of_a_histogram() -> None:
    for metric in METRICS:
        assert not re.fullmatch(r"ps2stream_.+_seconds_(bucket|sum|count)_total", metric.name)


def test_targets_are_checked_and_files_are_told(tmp_path: Path) -> None:
    run = CliRunner()
    for bad in ("localhost", "host:0", "host:70000", ":9404", "host:x"):
        found = run.invoke(main, ["dashboards", "-o", str(tmp_path), "--target", bad])
        assert found.exit_code == 2
        assert bad in found.output
    assert not list(tmp_path.iterdir())
    found = run.invoke(main, ["dashboards", "-o", str(tmp_path / "a/b"), "--json"])
    assert found.exit_code == 0
    names = [Path(path).name for path in json.loads(found.output)["written"]]
    assert names == ["prometheus.yml", "ps2stream.rules.yml", "ps2stream.json"]
    assert "127.0.0.1:9404" in (tmp_path / "a/b/prometheus.yml").read_text()
    (tmp_path / "file").write_text("")
    found = run.invoke(main, ["dashboards", "-o", str(tmp_path / "file")])
    assert found.exit_code == 2
    assert "cannot write to" in found.output
