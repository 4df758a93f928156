"""A Grafana dashboard, as JSON."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UID = "ps2stream"
RATE_ID, LAG_ID = 41, 24
"""Ids of the two panels that the Overview of Ray's dashboard embeds, whatever they show."""
_WIDTH = 24


class DashboardPanel(NamedTuple):
    """A panel of (legend, expression) pairs; `unit` by Grafana's name; `width` out of 24."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = 8
    what: str = ""
    single: bool = False
    """True to show the last value in place of lines over time."""
    number: int = 0
    """The id under which other pages embed it; 0: none does."""


class DashboardRow(NamedTuple):
    title: str
    panels: tuple[DashboardPanel, ...]


def _sum(metric: str, by: str = "", match: str = "") -> str:
    clause = f" by ({by})" if by else ""
    return f"sum{clause} ({_format_selector(metric, match)})"


def _rate(metric: str, by: str = "", match: str = "") -> str:
    clause = f" by ({by})" if by else ""
    return f"sum{clause} (rate({_format_selector(metric, match)}[$__rate_interval]))"


def _max(metric: str, by: str = "", match: str = "") -> str:
    clause = f" by ({by})" if by else ""
    return f"max{clause} ({_format_selector(metric, match)})"


def _format_selector(metric: str, match: str) -> str:
    more = f", {match}" if match else ""
    return f'ps2stream_{metric}{{job=~"$job"{more}}}'


def _quantile(q: float, stage: str, by: str = "") -> str:
    rate = _rate("stage_seconds_bucket", f"le{', ' + by if by else ''}", f'stage="{stage}"')
    return f"histogram_quantile({q}, {rate})"


def _list_stage_quantiles(q: float, *stages: str) -> tuple[tuple[str, str], ...]:
    return tuple((stage, _quantile(q, stage)) for stage in stages)


ACTOR, BY = "{{role}}-{{index}}", "role, index"
_LEDGER = 'role="sequencer"'

ROWS = (
    DashboardRow("Now", (
        DashboardPanel("Objects in", (("", _rate("objects_total")),), "ops", 4, single=True),
        DashboardPanel(
            "Matches out", (("", _rate("delivered_matches_total")),), "ops", 4, single=True
        ),
        DashboardPanel(
            "p99 until durable", (("", _quantile(0.99, "complete")),), "s", 4, single=True
        ),
        DashboardPanel("Live queries", (("", _max("live_queries")),), "short", 4, single=True),
        DashboardPanel("Live workers", (
            ("", 'count(max by (index) (ps2stream_up{job=~"$job", role="worker"}))'),
        ), "short", 4, single=True),
        DashboardPanel("Plan version", (("", _max("plan_version")),), "none", 4, single=True),
    )),
    DashboardRow("Actors", (
        DashboardPanel("Rate of each actor", (
            ("dispatcher-{{index}}: objects in", _rate("objects_total", "index")),
            ("worker-{{index}}: objects matched", _rate("matched_objects_total", "index")),
            ("merger-{{index}}: matches delivered", _rate("delivered_matches_total", "index")),
            ("sequencer-{{index}}: updates", _rate("updates_total", "index")),
        ), "ops", 12, number=RATE_ID),
        DashboardPanel("Lag of each actor", (
            (ACTOR + ": p99 in its inbox", _quantile(0.99, "link", BY)),
            ("dispatcher-{{index}}: p99 in its intake", _quantile(0.99, "intake", "index")),
            ("merger-{{index}}: oldest unacknowledged match",
             _max("session_lag_seconds", "index")),
        ), "s", 12, number=LAG_ID),
    )),
    DashboardRow("Throughput", (
        DashboardPanel("Tuples in", (
            ("objects", _rate("objects_total")), ("{{kind}}", _rate("updates_total", "kind")),
        ), "ops"),
        DashboardPanel("Matches", (
            ("found", _rate("matches_total")),
            ("delivered", _rate("delivered_matches_total")),
            ("lost to quota or retention", _rate("lost_matches_total")),
            ("duplicates removed", _rate("collapsed_matches_total")),
        ), "ops"),
        DashboardPanel("Objects in the workers", (
            ("copies to workers", _rate("object_copies_total")),
            ("matched", _rate("matched_objects_total")),
            ("wanted by no worker", _rate("objects_discarded_total")),
        ), "ops"),
        DashboardPanel("Refused", (
            ("objects: {{reason}}", _rate("objects_refused_total", "reason")),
            ("updates: {{reason}}", _rate("updates_refused_total", "reason")),
        ), "ops"),
        DashboardPanel("Delivered bytes", (("", _rate("delivered_bytes_total")),), "Bps"),
        DashboardPanel("Objects per batch", (
            ("", f"{_rate('objects_total')} / {_rate('object_batches_total')}"),
        ), what="Batches are joined while others are under way: large ones mean a busy service."),
    )),
    DashboardRow("Latency", (
        DashboardPanel("p99 by stage", _list_stage_quantiles(
            0.99, "intake", "link", "match", "merge", "sync", "durable", "complete", "deliver"
        ), "s", 12, "docs/metrics.md defines the stages"),
        DashboardPanel("Until matches are durable", tuple(
            (f"p{100 * q:g}", _quantile(q, "complete")) for q in (0.5, 0.9, 0.99)
        ), "s", 6),
        DashboardPanel("Late objects", (
            ("more than {{than}}", _rate("late_objects_total", "than")),
            ("stalls", _rate("throughput_stalls_total")),
        ), "ops", 6),
    )),
    DashboardRow("Queues", (
        DashboardPanel("Waiting", (
            ("batches in flight", _sum("batches_in_flight")),
            ("publications in the intake", _sum("intake_publications")),
            ("undecided updates", _sum("undecided_updates")),
            ("held by workers", _sum("held_batches")),
            ("pending in mergers", _sum("pending_batches")),
        )),
        DashboardPanel("Streams", (
            ("streams", _sum("streams")), ("watchers", _sum("watchers")),
            ("credits", _sum("credits")), ("not yet taken", _sum("untaken_batches")),
            ("cut per second", _rate("cut_streams_total")),
        )),
        DashboardPanel("Session lag", (
            ("most", _max("session_lag_matches", match='of="most"')),
            ("all", _sum("session_lag_matches", match='of="all"')),
            ("sessions", _sum("sessions")),
        )),
        DashboardPanel("Oldest unacknowledged match", (("", _max("session_lag_seconds")),), "s"),
    )),
    DashboardRow("Workers", (
        DashboardPanel("Load in a period", (
            ("worker-{{worker}}", _max("worker_load_seconds", "worker")),
        ), "s"),
        DashboardPanel("Balance", (("balance", _max("balance")), ("limit", _max("balance_limit")))),
        DashboardPanel("Queries and postings", (
            ("queries {{index}}", _max("worker_queries", "index")),
            ("postings {{index}}", _max("postings", "index")),
            ("tombstones {{index}}", _max("tombstones", "index")),
        )),
        DashboardPanel(
            "p99 of a match", (("worker-{{index}}", _quantile(0.99, "match", "index")),), "s"
        ),
        DashboardPanel("Index", (("worker-{{index}}", _max("index_bytes", "index")),), "bytes"),
        DashboardPanel("Plans and plan changes", (
            ("plan change", _max("migration_active")), ("coexisting", _max("plans_coexist")),
            ("ended: {{outcome}}", _sum("migrations_total", "outcome")),
            ("adjustments: {{outcome}}", _sum("adjustments_total", "outcome")),
            ("parts: {{kind}}", _sum("parts_changed_total", "kind")),
            ("old plans retired", _sum("sunsets_total")),
            ("replanned", _max("replans_total")),
            ("replanning failed", _max("replans_failed_total")),
        )),
    )),
    DashboardRow("Machine and faults", (
        DashboardPanel("CPU", ((ACTOR, _rate("cpu_seconds_total", BY)),), "percentunit"),
        DashboardPanel("Memory", ((ACTOR, _sum("resident_bytes", BY)),), "bytes"),
        DashboardPanel("Disk", (
            ("free", _max("disk_free_bytes")), ("log of " + ACTOR, _max("log_bytes", BY)),
            ("backlog of sessions", _sum("session_backlog_bytes")),
        ), "bytes"),
        DashboardPanel("Incarnation", ((ACTOR, _max("epoch", BY)),), "none",
              what="A step is an actor that was replaced."),
        DashboardPanel("LSN behind the ledger", (
            (ACTOR, f"scalar({_max('lsn', match=_LEDGER)}) - {_max('lsn', BY)}"),
        )),
        DashboardPanel("Refused and dropped messages and batches", (
            ("refused by " + ACTOR, _rate("messages_refused_total", BY)),
            ("dropped by " + ACTOR, _rate("messages_dropped_total", BY)),
            ("stale batches", _rate("stale_batches_total")),
            ("quarantined objects", _rate("quarantined_objects_total")),
        ), "ops"),
    )),
)  # fmt: skip


def dashboard() -> dict[str, Any]:
    """Returns the dashboard, to be imported into Grafana or provisioned."""
    return {
        "uid": UID,
        "title": "PS2Stream",
        "description": "Written by `ps2stream dashboards`",
        "tags": ["ps2stream"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_make_source_variable(), _make_job_variable()]},
        "panels": _lay_out_panels(),
    }


def _make_source_variable() -> dict[str, Any]:
    return {
        "type": "datasource",
        "name": "datasource",
        "label": "Data source",
        "query": "prometheus",
    }


def _make_job_variable() -> dict[str, Any]:
    return {
        "type": "query",
        "name": "job",
        "label": "Service",
        "datasource": SOURCE,
        "query": "label_values(ps2stream_up, job)",
        "includeAll": True,
        "multi": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all", "selected": True},
    }


def _lay_out_panels() -> list[dict[str, Any]]:
    taken = {panel.number for row in ROWS for panel in row.panels}
    free = (number for number in itertools.count(1) if number not in taken)
    out: list[dict[str, Any]] = []
    y = 0
    for row in ROWS:
        place = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
        out.append({
            "id": next(free), "type": "row", "title": row.title, "gridPos": place,
            "collapsed": False, "panels": [],
        })  # fmt: skip
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            high = 4 if panel.single else 8
            if x + panel.width > _WIDTH:
                x, y = 0, y + height
            place = {"x": x, "y": y, "w": panel.width, "h": high}
            out.append(_make_panel(panel, panel.number or next(free), place))
            x, height = x + panel.width, high
        y += height
    return out


def _make_panel(panel: DashboardPanel, number: int, place: dict[str, int]) -> dict[str, Any]:
    custom = {} if panel.single else {"custom": {"fillOpacity": 10, "showPoints": "never"}}
    defaults = {"unit": panel.unit, "min": 0} | custom
    reduced = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    lines = {
        "legend": {
            "displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": [],
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    }  # fmt: skip
    return {
        "id": number,
        "type": "stat" if panel.single else "timeseries",
        "title": panel.title,
        "description": panel.what,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": reduced if panel.single else lines,
        "targets": [
            {
                "refId": chr(ord("A") + i),
                "datasource": SOURCE,
                "expr": expr,
                "legendFormat": legend or "__auto",
                "range": not panel.single,
                "instant": panel.single,
            }
            for i, (legend, expr) in enumerate(panel.queries)
        ],
    }
