"""`ps2stream dashboards`."""

from __future__ import annotations

import json
import re
import urllib.parse
from pathlib import Path

import click

from ps2stream.commands.output import Output, json_option, pass_output
from ps2stream.errors import InvalidArgument, Violation
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
    help="Where to write; what is there of these names is written over.",
)
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="HOST:PORT",
    help="Where metrics are told (metrics_port); several may be given.  "
    f"[default: 127.0.0.1:{PORT}]",
)
@click.option(
    "--ray-discovery",
    "discovery",
    multiple=True,
    metavar="FILE",
    help="File in which a Ray cluster with a dashboard writes the addresses of its nodes: "
    "/tmp/ray/session_latest/prom_metrics_service_discovery.json.",
)
@click.option(
    "--grafana",
    metavar="URL",
    default="http://127.0.0.1:3000",
    show_default=True,
    help="Grafana that Ray's Metrics tab shows; your browser must reach it, too.",
)
@click.option(
    "--prometheus",
    metavar="URL",
    default="http://127.0.0.1:9090",
    show_default=True,
    help="Prometheus that Grafana and Ray ask.",
)
@click.option(
    "--runbooks",
    metavar="URL",
    default=RUNBOOKS,
    show_default=True,
    help="Page that each alert links to: where you host operations.html of `make docs`.",
)
@json_option
@pass_output
def dashboards(
    output: Output,
    /,
    folder: str,
    targets: tuple[str, ...],
    discovery: tuple[str, ...],
    grafana: str,
    prometheus: str,
    runbooks: str,
) -> None:
    """Write files for Prometheus, Grafana and Ray's Metrics tab.

    prometheus.yml scrapes the service, ps2stream.rules.yml has alerts with what to do about
    each, grafana/ has a dashboard and the configuration of a Grafana that shows it, ray.env is
    the environment in which Ray's dashboard embeds it. docs/dashboard.md says more.
    """
    from ps2stream.observability import ray_tab
    from ps2stream.observability.alerts import rules
    from ps2stream.observability.grafana import dashboard
    from ps2stream.observability.scrape import RULES, configuration

    grafana, prometheus = grafana.rstrip("/"), prometheus.rstrip("/")
    listens = _find_port("--grafana", grafana)
    _find_port("--prometheus", prometheus)
    for target in targets:
        host, _, port = target.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
            problem = f"{target!r} is not of the form HOST:PORT"
            raise InvalidArgument([Violation("target", problem)])
    if not targets and not discovery:
        targets = (f"127.0.0.1:{PORT}",)
    into = Path(folder)
    whole, provisioning = into.resolve(), ray_tab.PROVISIONING
    found = {
        "prometheus.yml": configuration(targets, discovery),
        RULES: rules(runbooks),
        f"{ray_tab.DASHBOARDS}/ps2stream.json": json.dumps(dashboard(), indent=1) + "\n",
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
        raise InvalidArgument([Violation("--output", problem)]) from None
    paths = [str(into / name) for name in found]
    output.emit({"written": paths}, "written: " + ", ".join(paths))


def _find_port(option: str, url: str) -> int:
    """Returns the port of an HTTP URL. Raises InvalidArgument for another one, and for characters
    that a shell or systemd would read as something else."""
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        port = 0
    if not port or not re.fullmatch(r"https?://[\w.:\[\]-]+(/[\w./~%-]*)?", url):
        problem = f"{url!r} is not of the form http://HOST:PORT"
        raise InvalidArgument([Violation(option, problem)])
    return port
