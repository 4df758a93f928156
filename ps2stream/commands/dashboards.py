"""`ps2stream dashboards`."""

from __future__ import annotations

import re
import urllib.parse
from pathlib import Path

import click

from ps2stream.commands.output import CommandOutput, json_option, pass_output
from ps2stream.errors import invalid
from ps2stream.observability.alerts import RUNBOOKS

PORT = 9404


@click.command()
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    default="ps2stream-dashboards",
    show_default=True,
    help="Folder to write to; files that have the same names are overwritten.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="HOST:PORT",
    help="Address that serves metrics (metrics_port); may be given repeatedly.  "
    f"[default: 127.0.0.1:{PORT}]",
)
@click.option(
    "--ray-discovery",
    "discovery",
    multiple=True,
    metavar="FILE",
    help="File to which a Ray cluster with a dashboard writes the addresses of its nodes: "
    "/tmp/ray/session_latest/prom_metrics_service_discovery.json.",
)
@click.option(
    "--grafana",
    metavar="URL",
    default="http://127.0.0.1:3000",
    show_default=True,
    help="URL of the Grafana that Ray's Metrics tab shows; your browser must be able to reach it.",
)
@click.option(
    "--prometheus",
    metavar="URL",
    default="http://127.0.0.1:9090",
    show_default=True,
    help="URL of the Prometheus that Grafana and Ray query.",
)
@click.option(
    "--runbooks",
    metavar="URL",
    default=RUNBOOKS,
    show_default=True,
    help="URL of the page that each alert links to: operations.html of `make docs`, where you "
    "host it.",
)
@json_option
@pass_output
def dashboards(
    output: CommandOutput,
    /,
    folder: str,
    targets: tuple[str, ...],
    discovery: tuple[str, ...],
    grafana: str,
    prometheus: str,
    runbooks: str,
) -> None:
    """Write configuration files for Prometheus, Grafana and Ray's Metrics tab.

    prometheus.yml scrapes the service. ps2stream.rules.yml contains alerts, each with what to
    do about it. grafana/ contains a dashboard and the configuration of a Grafana that shows it.
    ray.env is the environment in which Ray's dashboard embeds that Grafana. docs/dashboard.md
    has the details.
    """
    from ps2stream.observability import ray_tab
    from ps2stream.observability.alerts import rules
    from ps2stream.observability.scrape import RULES, configuration

    grafana, prometheus = grafana.rstrip("/"), prometheus.rstrip("/")
    listens = _find_port("--grafana", grafana)
    _find_port("--prometheus", prometheus)
    for target in targets:
        host, _, port = target.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            problem = f"expected HOST:PORT, got {target!r}"
            raise invalid("--target", problem)
    if not targets and not discovery:
        targets = (f"127.0.0.1:{PORT}",)
    into = Path(folder)
    whole, provisioning = into.resolve(), ray_tab.PROVISIONING
    found = {
        "prometheus.yml": configuration(targets, discovery),
        RULES: rules(runbooks),
        f"{ray_tab.DASHBOARDS}/ps2stream.json": ray_tab.DASHBOARD_JSON.read_text("utf-8"),
        f"{provisioning}/dashboards/ps2stream.yml": ray_tab.write_provider(whole),
        f"{provisioning}/datasources/ps2stream.yml": ray_tab.write_data_source(prometheus),
        "grafana/grafana.ini": ray_tab.write_grafana_ini(whole, listens),
        "ray.env": ray_tab.write_environment(grafana, prometheus),
    }
    try:
        for name, text in found.items():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (into / name).write_text(text, "utf-8")
    except OSError as error:
        problem = f"cannot write to {folder}: {error.strerror}"
        raise invalid("--output", problem) from None
    paths = [str(into / name) for name in found]
    output.emit({"written": paths}, "written: " + ", ".join(paths))


def _find_port(option: str, url: str) -> int:
    """Returns the port of an HTTP URL. Raises InvalidArgument for any other URL, and for
    characters that a shell or systemd would interpret."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        port = 0
    if not port or not re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w./~%-]*)?", url):
        problem = f"expected a URL of the form http://HOST:PORT, got {url!r}"
        raise invalid(option, problem)
    return port
