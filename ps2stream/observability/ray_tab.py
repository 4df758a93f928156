"""The files that show the dashboard in the Metrics tab of Ray's own: configuration for Grafana,
and environment variables for Ray, which name the Grafana and the dashboard that Ray embeds."""

from __future__ import annotations

import json
from pathlib import Path

from ps2stream.observability.scrape import INTERVAL_S

DASHBOARD_JSON = Path(__file__).with_name("ps2stream.json")
"""The dashboard, as Grafana imports it. The chart links to this file."""
UID = "ps2stream"
"""Identifies the dashboard."""
SOURCE_NAME = "ps2stream"
"""Name of the data source. It is not the default one, since a Grafana has only one of those."""
DASHBOARDS = "grafana/dashboards"
PROVISIONING = "grafana/provisioning"
_HEAD = "Written by `ps2stream dashboards`."


def write_grafana_ini(folder: Path, port: int) -> str:
    """Returns the configuration of a Grafana that listens on the loopback address.

    Args:
        folder: Absolute path of the folder that all files are written to.
        port: Port of Grafana.
    """
    return f"""\
; {_HEAD}
; Ray's Metrics tab embeds pages that a browser opens without logging in: whoever reaches this
; Grafana sees how much goes on. It listens on the loopback address only.
[server]
http_addr = 127.0.0.1
http_port = {port}

[security]
allow_embedding = true

[auth.anonymous]
enabled = true
org_role = Viewer

[paths]
data = {folder / "grafana/data"}
logs = {folder / "grafana/data/log"}
plugins = {folder / "grafana/data/plugins"}
provisioning = {folder / PROVISIONING}
"""


def write_data_source(prometheus: str) -> str:
    """Returns Grafana's data source, YAML, for the Prometheus at this URL."""
    return f"""\
# {_HEAD}
apiVersion: 1
datasources:
  - name: {SOURCE_NAME}
    type: prometheus
    access: proxy
    url: {json.dumps(prometheus)}
    jsonData:
      timeInterval: {INTERVAL_S}s
"""


def write_provider(folder: Path) -> str:
    """Returns the provider that makes Grafana load the dashboard, YAML.

    Args:
        folder: Absolute path of the folder that all files are written to.
    """
    return f"""\
# {_HEAD}
apiVersion: 1
providers:
  - name: ps2stream
    type: file
    options:
      path: {json.dumps(str(folder / DASHBOARDS))}
"""


def write_environment(grafana: str, prometheus: str) -> str:
    """Returns the environment of `ps2stream serve`, or `ps2stream cluster start`, as lines that a
    shell and systemd read, for the Grafana and Prometheus at these URLs."""
    return f"""\
# {_HEAD} What Ray's Metrics tab shows, and from where.
RAY_GRAFANA_HOST={grafana}
RAY_PROMETHEUS_HOST={prometheus}
RAY_PROMETHEUS_NAME={SOURCE_NAME}
RAY_GRAFANA_DEFAULT_DASHBOARD_UID={UID}
"""
