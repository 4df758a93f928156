"""What Prometheus and Grafana are given."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ps2stream.observability.scrape import configuration
from tests.helm.conftest import Manifest, case, manifests, of_kind, pods, with_value
from tests.support.prometheus_server import program


@pytest.fixture(scope="module")
def found() -> list[Manifest]:
    return manifests(case("production"), "b")


def test_the_alerts_are_of_this_release(found: list[Manifest], tmp_path: Path) -> None:
    [rules] = of_kind(found, "PrometheusRule")
    text = yaml.safe_dump(rules["spec"])
    assert set(re.findall(r'job=\\?"([^"\\]+)', text)) == {"ps2stream-b"}
    (tmp_path / "rules.yml").write_text(text)
    done = subprocess.run(
        [program("promtool"), "check", "rules", tmp_path / "rules.yml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_monitor_scrapes_the_port_of_every_pod_that_has_metrics(found: list[Manifest]) -> None:
    [monitor] = of_kind(found, "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    chosen = monitor["spec"]["selector"]["matchLabels"].items()
    with_port = set()
    for pod in pods(found):
        assert chosen <= pod.labels.items()
        names = [port["name"] for port in pod.spec["containers"][0].get("ports", ())]
        if endpoint["port"] in names:
            with_port.add(pod.role)
    assert with_port == {"head", "dispatcher", "worker", "merger", "sequencer", "pipeline"}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"


def test_names_are_changed_as_for_a_prometheus_of_ones_own(found: list[Manifest]) -> None:
    [monitor] = of_kind(found, "PodMonitor")
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    here: list[dict[str, Any]] = endpoint["metricRelabelings"]
    [job] = yaml.safe_load(configuration(["h:1"]))["scrape_configs"]
    there = job["metric_relabel_configs"]

    def camel(name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(map(str.title, rest))

    assert here == [{camel(name): value for name, value in each.items()} for each in there]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "ps2stream-b"}]


def test_the_dashboard_is_whole(found: list[Manifest]) -> None:
    values = with_value(case("production"), ("monitoring", "labels"), {"grafana_dashboard": "1"})
    [board] = [
        c for c in of_kind(manifests(values), "ConfigMap") if "dashboard" in str(c["metadata"])
    ]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    [text] = board["data"].values()
    assert json.loads(text)["uid"] == "ps2stream"
