"""Dashboard and alerts ask for what there is, and the documentation has the alerts."""

from __future__ import annotations

import configparser
import json
import re
from pathlib import Path

import yaml
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.observability.alerts import ALERTS, RUNBOOKS, rules
from ps2stream.observability.metrics import METRICS, MetricKind
from ps2stream.observability.ray_tab import DASHBOARD_JSON
from scripts import cli_docs

PANELS = json.loads(DASHBOARD_JSON.read_text("utf-8"))["panels"]
QUERIES = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]
_SELECTOR = re.compile(r"(ps2stream_[a-z0-9_]+)(?:\{([^}]*)\})?")


def test_every_query_is_of_metrics_and_labels_that_there_are() -> None:
    labels: dict[str, set[str]] = {}
    for metric in METRICS:
        own = {*metric.labels, "job", "instance"}
        parts = ("_bucket", "_sum", "_count") if metric.kind is MetricKind.HISTOGRAM else ("",)
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
    counters = {metric.name for metric in METRICS if metric.kind is MetricKind.COUNTER}
    totals = {
        f"ps2stream_{name}_total"
        for name in (
            "migrations", "adjustments", "parts_changed", "sunsets", "replans", "replans_failed",
            "hot_unit_changes",
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
    rare = {
        "routing_units",
        "archive_damaged_withdrawals",
        "watched_literals",
        "snapshot_lsn",
        "workers",
        "load_periods_total",
        "disk_bytes",
        "queries_ended_total",
        "valid_objects_bytes",
        "shedding_level",
    }
    missing = {
        metric.name.removeprefix("ps2stream_") for metric in METRICS if metric.name not in seen
    }
    assert missing <= rare, missing - rare


def test_panels_do_not_overlap_and_legends_name_labels_of_their_query() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        area = {(x, y) for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])}  # fmt: skip
        assert not area & taken, panel["title"]
        assert max(x for x, _ in area) < 24
        taken |= area
        for target in panel.get("targets", []):
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert re.search(rf" by \([^)]*\b{label}\b", target["expr"]), target


def test_each_alert_links_its_section_that_says_what_to_do_at_night(root: Path) -> None:
    page = (root / RUNBOOKS).read_text("utf-8").partition("\n## Alerts\n")[2]
    parts = re.split(r"^### (\w+)$", page.partition("\n## ")[0], flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert list(sections) == [alert.name for alert in ALERTS]
    known = {" ".join(path) for path in cli_docs.commands() if path}
    for alert in ALERTS:
        section = sections[alert.name]
        assert " ".join(section.split()).startswith(alert.runbook), alert.name
        assert "**Can it wait?**" in section, alert.name
        (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
        for name in re.findall(r"^ps2stream (\w+)", block, re.MULTILINE):
            assert name in known, (alert.name, name)
    found = yaml.safe_load(rules("https://docs.example.org/operations.html"))["groups"][0]["rules"]
    for rule, name in zip(found, sections, strict=True):
        assert rule["alert"] == name
        where = rule["annotations"]["runbook_url"]
        assert where == f"https://docs.example.org/operations.html#{name.lower()}"


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
    assert names == [
        "prometheus.yml", "ps2stream.rules.yml", "ps2stream.json", "ps2stream.yml", "ps2stream.yml",
        "grafana.ini", "ray.env",
    ]  # fmt: skip
    assert "127.0.0.1:9404" in (tmp_path / "a/b/prometheus.yml").read_text()
    (tmp_path / "file").write_text("")
    found = run.invoke(main, ["dashboards", "-o", str(tmp_path / "file")])
    assert found.exit_code == 2
    assert "cannot write to" in found.output


def test_grafana_and_ray_are_configured_for_each_other(tmp_path: Path) -> None:
    urls = ("--grafana", "http://127.0.0.1:3001/", "--prometheus", "http://10.0.0.7:9091")
    run, folder = CliRunner(), tmp_path / "made"
    assert run.invoke(main, ["dashboards", "-o", str(folder), *urls]).exit_code == 0
    lines = (folder / "ray.env").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    source, = yaml.safe_load(
        (folder / "grafana/provisioning/datasources/ps2stream.yml").read_text()
    )["datasources"]  # fmt: skip
    assert (source["type"], source["url"]) == ("prometheus", "http://10.0.0.7:9091")
    provider, = yaml.safe_load(
        (folder / "grafana/provisioning/dashboards/ps2stream.yml").read_text()
    )["providers"]  # fmt: skip
    loaded = json.loads((Path(provider["options"]["path"]) / "ps2stream.json").read_text())
    assert loaded["panels"] == PANELS
    assert found == {
        "RAY_GRAFANA_HOST": "http://127.0.0.1:3001",
        "RAY_PROMETHEUS_HOST": source["url"],
        "RAY_PROMETHEUS_NAME": source["name"],
        "RAY_GRAFANA_DEFAULT_DASHBOARD_UID": loaded["uid"],
    }
    ini = configparser.ConfigParser()
    ini.read(folder / "grafana/grafana.ini")
    assert ini["paths"]["provisioning"] == str(folder / "grafana/provisioning")
    assert dict(ini["server"]) == {"http_addr": "127.0.0.1", "http_port": "3001"}
    assert ini["security"].getboolean("allow_embedding")
    for wrong in ("127.0.0.1:3000", "http://a:70000", "http://a b", "http://a\nX=1", "ftp://a"):
        refused = run.invoke(main, ["dashboards", "-o", str(tmp_path / "none"), "--grafana", wrong])
        assert (refused.exit_code, "--grafana" in refused.output) == (2, True), wrong
    assert not (tmp_path / "none").exists()


def test_the_panels_of_rays_overview_are_rate_and_lag() -> None:
    panels = {panel["id"]: panel["title"] for panel in PANELS}
    assert len(panels) == len(PANELS)
    assert (panels[41], panels[24]) == ("Rate of each actor", "Lag of each actor")
