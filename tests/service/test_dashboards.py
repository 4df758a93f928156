"""The files of `ps2stream dashboards`, judged by Prometheus and by Grafana's schema."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.observability.alerts import ALERTS, rules
from ps2stream.observability.ray_tab import DASHBOARD_JSON
from tests.support.prometheus_server import free_port, program, server

SCHEMA, COMPILER = "@grafana/schema@13.2.3", "typescript@7.0.2"
RAW = "./node_modules/@grafana/schema/dist/types/raw/composable/{}/panelcfg/x/types.gen"
PLAIN = """
// As JSON has it: the values of an enumeration in place of its members.
type Plain<T> = T extends string ? `${T}` : T extends (infer U)[] ? Plain<U>[]
  : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
"""


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD_JSON.read_text("utf-8"))
    return found


def written(folder: Path, *options: str) -> Path:
    found = CliRunner().invoke(main, ["dashboards", "-o", str(folder), *options])
    assert found.exit_code == 0, found.output
    return folder


def promtool(*words: str | Path) -> str:
    done = subprocess.run(
        [program("promtool"), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_takes_the_configuration_and_the_rules(tmp_path: Path) -> None:
    written(tmp_path, "--target", "a:1", "--target", "b:2")
    out = promtool("check", "config", tmp_path / "prometheus.yml")
    assert f"{len(ALERTS)} rules found" in out


# Series of a minute each, with which an alert fires at the time given, and does not.
Series = dict[str, str]
ACTOR = 'job="j", role="{}", index="0"'
WORKER, DISPATCHER, MERGER, SEQUENCER = (
    ACTOR.format(role) for role in ("worker", "dispatcher", "merger", "sequencer")
)
CONTROLLER = ACTOR.format("controller")


def stage(name: str, fast: str, slow: str) -> Series:
    """Buckets of a stage: so many up to 0.1 s, and up to 5 s."""
    of = f'ps2stream_stage_seconds_bucket{{{DISPATCHER}, stage="{name}", le='
    return {f'{of}"0.1"}}': fast, f'{of}"5.0"}}': slow, f'{of}"+Inf"}}': slow}


NO_WORKER = {f"ps2stream_workers{{{SEQUENCER}}}": "2x60"}  # none tells anything
CASES: dict[str, tuple[Series, Series, dict[str, str]]] = {
    "Ps2streamDown": (
        {'up{job="ps2stream", instance="h:1"}': "0x60"},
        {'up{job="ps2stream", instance="h:1"}': "1x60", 'up{job="x", instance="h:2"}': "0x60"},
        {"job": "ps2stream", "instance": "h:1"},
    ),
    "Ps2streamWorkerMissing": (
        # One was replaced, and both incarnations still show; the other is missing.
        {
            f'ps2stream_up{{{WORKER}, WorkerId="a"}}': "1x60",
            f'ps2stream_up{{{WORKER}, WorkerId="b"}}': "1x60",
            f"ps2stream_workers{{{SEQUENCER}}}": "2x60",
        },
        {
            f"ps2stream_up{{{WORKER}}}": "1x60",
            f"ps2stream_workers{{{SEQUENCER}}}": "1x60",
        },
        {"job": "j"},
    ),
    "Ps2streamReplacedOften": (
        {
            f'ps2stream_epoch{{{WORKER}, WorkerId="a"}}': "1x20 _x60",
            f'ps2stream_epoch{{{WORKER}, WorkerId="b"}}': "_x19 2x10 _x60",
            f'ps2stream_epoch{{{WORKER}, WorkerId="c"}}': "_x30 5x10 7x60",
        },
        {f"ps2stream_epoch{{{WORKER}}}": "1x30 2x60"},
        {"job": "j", "role": "worker", "index": "0"},
    ),
    "Ps2streamNothingCompletes": (
        {
            f"ps2stream_object_copies_total{{{DISPATCHER}}}": "0+60x60",
            # It has none of `complete` if nothing ever was.
        },
        {
            f"ps2stream_object_copies_total{{{DISPATCHER}}}": "0+60x60",
            f'ps2stream_stage_seconds_count{{{DISPATCHER}, stage="complete"}}': "0+50x60",
        },
        {"job": "j"},
    ),
    "Ps2streamNoDeliveries": (
        {
            f"ps2stream_matches_total{{{WORKER}}}": "0+9x60",
            f"ps2stream_delivered_matches_total{{{MERGER}}}": "5x60",
            f"ps2stream_streams{{{DISPATCHER}}}": "1x60",
        },
        {
            f"ps2stream_matches_total{{{WORKER}}}": "0+9x60",
            f"ps2stream_delivered_matches_total{{{MERGER}}}": "5x60",
            f"ps2stream_streams{{{DISPATCHER}}}": "0x60",
        },
        {"job": "j"},
    ),
    "Ps2streamStalled": (
        {f"ps2stream_throughput_stalled{{{DISPATCHER}}}": "1x60"},
        {f"ps2stream_throughput_stalled{{{DISPATCHER}}}": "0x60"},
        {"job": "j", "index": "0"},
    ),
    "Ps2streamSlow": (
        stage("complete", "0+90x60", "0+100x60"),
        stage("complete", "0+100x60", "0+100x60"),
        {"job": "j"},
    ),
    "Ps2streamSlowDisk": (
        stage("sync", "0+90x60", "0+100x60"),
        stage("sync", "0+100x60", "0+100x60") | stage("complete", "0+1x60", "0+9x60"),
        {"job": "j"},
    ),
    "Ps2streamRefusing": (
        {f'ps2stream_objects_refused_total{{{DISPATCHER}, reason="full"}}': "0+5x60"},
        {
            f'ps2stream_objects_refused_total{{{DISPATCHER}, reason="invalid"}}': "0+5x60",
            f'ps2stream_objects_refused_total{{{DISPATCHER}, reason="full"}}': "5x60",
        },
        {"job": "j", "reason": "full"},
    ),
    "Ps2streamLedgerUnavailable": (
        {f'ps2stream_updates_refused_total{{{SEQUENCER}, reason="unavailable"}}': "0x58 3x9"},
        {f'ps2stream_updates_refused_total{{{SEQUENCER}, reason="not_found"}}': "0+9x60"},
        {"job": "j"},
    ),
    "Ps2streamDiskNearlyFull": (
        {
            f"ps2stream_disk_free_bytes{{{SEQUENCER}}}": "5000000000x60",
            f"ps2stream_disk_bytes{{{SEQUENCER}}}": "100000000000x60",
        },
        {
            f"ps2stream_disk_free_bytes{{{SEQUENCER}}}": "25000000000x60",
            f"ps2stream_disk_bytes{{{SEQUENCER}}}": "300000000000x60",
        },
        {"job": "j", "index": "0"},
    ),
    "Ps2streamSessionLag": (
        {f'ps2stream_session_lag_matches{{{MERGER}, of="most"}}': "100001+1000x60"},
        {f'ps2stream_session_lag_matches{{{MERGER}, of="most"}}': "900000-10x60"},
        {"job": "j"},
    ),
    "Ps2streamLogNotWritten": (
        {f"ps2stream_log_problem{{{SEQUENCER}}}": "0x50 1x10"},
        {f"ps2stream_log_problem{{{SEQUENCER}}}": "1x58 0 1x0"},  # it failed once more
        {"job": "j", "role": "sequencer", "index": "0"},
    ),
    "Ps2streamArchiveNotWritten": (
        {f"ps2stream_archive_problem{{{DISPATCHER}}}": "0x50 1x10"},
        {f"ps2stream_archive_problem{{{DISPATCHER}}}": "1x57 0 1x2"},  # it failed once more
        {"job": "j", "index": "0"},
    ),
    "Ps2streamArchiveIncomplete": (
        {f"ps2stream_archive_lost_objects_total{{{DISPATCHER}}}": "0x55 7x9"},
        {f"ps2stream_archive_lost_objects_total{{{DISPATCHER}}}": "7x60"},
        {"job": "j"},
    ),
    "Ps2streamMatchesLost": (
        {f"ps2stream_lost_matches_total{{{MERGER}}}": "0x55 7x9"},
        {f"ps2stream_lost_matches_total{{{MERGER}}}": "7x60"},
        {"job": "j"},
    ),
    "Ps2streamUnbalanced": (
        {
            f"ps2stream_balance{{{CONTROLLER}}}": "2x60",
            f"ps2stream_balance_limit{{{CONTROLLER}}}": "1.3x60",
            f'ps2stream_worker_load_seconds{{{CONTROLLER}, worker="0"}}': "4x60",
        },
        {
            f"ps2stream_balance{{{CONTROLLER}}}": "2x60",
            f"ps2stream_balance_limit{{{CONTROLLER}}}": "1.3x60",
            f'ps2stream_worker_load_seconds{{{CONTROLLER}, worker="0"}}': "0.1x60",
        },
        {"job": "j"},
    ),
    "Ps2streamHotSpot": (
        {
            f"ps2stream_hot_balance{{{CONTROLLER}}}": "1.2x30 2x30",
            f'ps2stream_worker_load_seconds{{{CONTROLLER}, worker="0"}}': "4x60",
        },
        {
            f"ps2stream_hot_balance{{{CONTROLLER}}}": "1.2x58 2x2",  # a jump that was just met
            f'ps2stream_worker_load_seconds{{{CONTROLLER}, worker="0"}}': "4x60",
        },
        {"job": "j"},
    ),
    "Ps2streamMigrationStuck": (
        {f"ps2stream_migration_active{{{SEQUENCER}}}": "1x60"},
        {f"ps2stream_migration_active{{{SEQUENCER}}}": "1x20 0 1x60"},
        {"job": "j"},
    ),
    "Ps2streamQuarantined": (
        {f"ps2stream_quarantined_objects_total{{{DISPATCHER}}}": "0x30 1x40"},
        {f"ps2stream_quarantined_objects_total{{{DISPATCHER}}}": "1x70"},
        {"job": "j"},
    ),
    "Ps2streamMessagesDropped": (
        {f"ps2stream_messages_dropped_total{{{DISPATCHER}}}": "0+2x60"},
        {f"ps2stream_messages_dropped_total{{{DISPATCHER}}}": "2x60"},
        {"job": "j", "role": "dispatcher", "index": "0"},
    ),
}
AT = {"Ps2streamReplacedOften": "45m", "Ps2streamMigrationStuck": "45m"}


@pytest.mark.takes_turns
def test_every_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    assert CASES.keys() == {alert.name for alert in ALERTS}
    bare = re.sub(r"        annotations:\n.*\n.*\n.*\n", "", rules())
    (tmp_path / "rules.yml").write_text(bare)
    severity = {alert.name: alert.severity for alert in ALERTS}
    tests: list[dict[str, Any]] = []
    _, quiet, labels = CASES["Ps2streamWorkerMissing"]
    cases = [*CASES.items(), ("Ps2streamWorkerMissing", (NO_WORKER, quiet, labels))]
    for name, (loud, quiet, labels) in cases:
        for series, expected in ((loud, [labels | {"severity": severity[name]}]), (quiet, [])):
            tests.append({
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in series.items()],
                "alert_rule_test": [{
                    "eval_time": AT.get(name, "60m"),
                    "alertname": name,
                    "exp_alerts": [{"exp_labels": found} for found in expected],
                }],
            })  # fmt: skip
    # What is JSON is YAML.
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": tests}))
    promtool("test", "rules", tmp_path / "tests.yml")


@pytest.mark.takes_turns
def test_a_prometheus_server_has_what_the_dashboard_asks_for(tmp_path: Path) -> None:
    port = free_port()
    settings = Settings(
        runtime="local",
        port=0,
        hot="off",
        adjust="off",
        workers=2,
        data_dir=tmp_path / "data",
        archive=tmp_path / "archive",
        metrics_port=port,
        load_period_s=0.5,
    )
    folder = written(tmp_path / "made", "--target", f"127.0.0.1:{port}")
    with start(settings) as service, server(folder) as prometheus:
        with Client(service.targets[0]) as client:
            client.insert("a", "storm")
            client.publish([{"lon": 1.0, "lat": 2.0, "text": "a storm"}] * 5)
        prometheus.until("sum(ps2stream_objects_total)", 5)
        prometheus.until("sum(ps2stream_matches_total)", 5)
        assert prometheus.total('up{job="ps2stream"}') == 1
        # What only Ray's actors tell, and stages that nothing has passed here.
        beyond = ("cpu_seconds", "resident_bytes", "messages_", "replans", '"link"', '"deliver"')
        panels = dashboard()["panels"]
        asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
        asked = [expr for expr in asked if not any(word in expr for word in beyond)]
        deadline = time.monotonic() + 60
        while asked:
            assert time.monotonic() < deadline, asked
            for expr in tuple(asked):
                sure = expr.replace("$job", ".+").replace("$__rate_interval", "1m")
                if prometheus.values(sure):
                    asked.remove(expr)
            time.sleep(0.2)
        groups = prometheus.get("rules")["groups"]
        judged = {rule["name"]: rule for group in groups for rule in group["rules"]}
        assert judged.keys() == {alert.name for alert in ALERTS}
        assert {rule["health"] for rule in judged.values()} <= {"ok", "unknown"}


@pytest.mark.takes_turns
def test_the_dashboard_is_of_grafanas_schema(tmp_path: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("there is no npm here (Debian: apt-get install nodejs npm)")
    (tmp_path / "package.json").write_text("{}")
    words = [npm, "install", "--silent", "--no-audit", "--no-fund", SCHEMA, COMPILER]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

    def judged(made: dict[str, Any]) -> str:
        """What the compiler says of it, each panel with the options of its kind."""
        kinds = ("timeseries", "stat")
        lines = ['import type { Dashboard, Panel } from "@grafana/schema";', PLAIN]
        lines += [f'import type * as {k} from "{RAW.format(k)}";' for k in kinds]
        lines.append(f"const made: Plain<Dashboard> = {json.dumps(made)};")
        for i, panel in enumerate(made["panels"]):
            kind = panel["type"]
            if kind in kinds:
                field = f"{kind}.FieldConfig" if kind == "timeseries" else "object"
                options = json.dumps(panel["options"])
                lines.append(f"const options{i}: Plain<Partial<{kind}.Options>> = {options};")
                typed = f"Plain<Panel<object, {field}>>"
                lines.append(f"const panel{i}: {typed} = {json.dumps(panel)};")
        (tmp_path / "made.ts").write_text("\n".join(lines))
        words = ["node_modules/.bin/tsc", "--noEmit", "--strict", "--skipLibCheck",
                 "--module", "esnext", "--moduleResolution", "bundler", "made.ts"]  # fmt: skip
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False,
                              env={**os.environ, "NO_COLOR": "1"})  # fmt: skip
        return done.stdout + done.stderr

    assert judged(dashboard()) == ""
    assert "grahpTooltip" in judged(dashboard() | {"grahpTooltip": 1})
    wrong = dashboard()
    line = next(panel for panel in wrong["panels"] if panel["type"] == "timeseries")
    line["options"]["legend"]["placement"] = "above"
    assert "LegendPlacement" in judged(wrong)
