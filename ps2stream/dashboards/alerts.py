"""What should wake somebody, and what to do then."""

from __future__ import annotations

import json
from typing import NamedTuple


class Alert(NamedTuple):
    """`wait`: how long `expr` must hold; `summary` may use Prometheus's templates; `runbook`:
    what to look at and to do."""

    name: str
    severity: str
    wait: str
    expr: str
    summary: str
    runbook: str


def _p99(stage: str) -> str:
    rate = f'sum by (job, le) (rate(ps2stream_stage_seconds_bucket{{stage="{stage}"}}[5m]))'
    return f"histogram_quantile(0.99, {rate})"


def _workers(of: str) -> str:
    return f'max by (job, index) ({of}{{role="worker"}})'


ALERTS = (
    Alert(
        "Ps2streamDown", "critical", "1m",
        'up{job="ps2stream"} == 0',
        "Nothing answers at {{ $labels.instance }}",
        "Is the process of `ps2stream serve` there, and what did it log last? Start it again: it "
        "goes on from its data directory. If it runs, metrics_port may have changed.",
    ),
    Alert(
        "Ps2streamWorkerMissing", "critical", "2m",
        f"(count by (job) ({_workers('ps2stream_up')}) or 0 * max by (job) (ps2stream_workers)) "
        "< max by (job) (ps2stream_workers)",
        "{{ $value }} workers tell metrics, fewer than the plan has",
        "Dead workers are replaced within seconds, so this one cannot start: look in the log for "
        "`is replaced` and what follows it. Often there is no memory: compare resident_bytes with "
        "what the machine has. Matches of its part are held back, not lost.",
    ),
    Alert(
        "Ps2streamReplacedOften", "warning", "0m",
        "changes(max by (job, role, index) (ps2stream_epoch)[30m:1m]) >= 3",
        "{{ $labels.role }}-{{ $labels.index }} was replaced {{ $value }} times in 30 minutes",
        "The log says what it stopped of. An fsync error ends an actor on purpose: check the disk "
        "(`dmesg`). Killed by the system: memory. Did not answer within lease_s: the machine is "
        "overloaded. Objects that kill workers are set aside (Ps2streamQuarantined).",
    ),
    Alert(
        "Ps2streamNothingCompletes", "critical", "3m",
        "sum by (job) (rate(ps2stream_object_copies_total[2m])) > 0 unless "
        'sum by (job) (rate(ps2stream_stage_seconds_count{stage="complete"}[2m])) > 0',
        "Objects are sent to workers, but none are matched everywhere",
        "Somebody who is asked does not answer. held_batches says that a worker waits for "
        "updates, pending_batches that a merger waits for a worker; up and epoch say who has "
        "gone. Full disks stop mergers: disk_free_bytes. A restart loses nothing.",
    ),
    Alert(
        "Ps2streamNoDeliveries", "warning", "5m",
        "sum by (job) (rate(ps2stream_matches_total[5m])) > 0 and "
        "sum by (job) (ps2stream_streams) > 0 unless "
        "sum by (job) (rate(ps2stream_delivered_matches_total[5m])) > 0",
        "Matches are found, clients are connected, and nothing is sent to them",
        "Either the clients take nothing (credits at 0, untaken_batches stands still: look at "
        "them), or those connected are not those whose queries match (`ps2stream list`).",
    ),
    Alert(
        "Ps2streamSlow", "warning", "5m",
        f"{_p99('complete')} > 1",
        "1 in 100 objects takes more than {{ $value | humanizeDuration }} until its matches are "
        "durable",
        "Which stage grew? intake: more is published than workers manage, add some (`ps2stream "
        "scale`). link or match of one worker: it is too hot (Ps2streamUnbalanced). sync: the "
        "disk (Ps2streamSlowDisk). merge: sessions with large backlogs.",
    ),
    Alert(
        "Ps2streamSlowDisk", "warning", "10m",
        f"{_p99('sync')} > 0.25",
        "1 in 100 syncs takes more than {{ $value | humanizeDuration }}",
        "Who else writes to this disk (`iostat -x 1`)? A disk that gets slower by itself may be "
        "failing: `dmesg`, `smartctl`. With PostgreSQL: its checkpoints, its standby.",
    ),
    Alert(
        "Ps2streamRefusing", "warning", "5m",
        "sum by (job, reason) (rate("
        'ps2stream_objects_refused_total{reason=~"full|shed|unavailable"}[5m])) > 0',
        "{{ $value | humanize }} objects a second are refused ({{ $labels.reason }})",
        "full, shed: more comes than is managed. Add workers, or set quotas for who sends too "
        "much. unavailable: the disk is full, or a dispatcher has only just come back. Nothing "
        "that was acknowledged is lost.",
    ),
    Alert(
        "Ps2streamLedgerUnavailable", "critical", "0m",
        'sum by (job) (increase(ps2stream_updates_refused_total{reason="unavailable"}[5m])) > 0',
        "Inserts and deletes are refused: the ledger could not be written",
        "A full disk, an fsync error, or PostgreSQL away: the log of the sequencer says which. "
        "Matching goes on meanwhile. After an fsync error the sequencer is replaced by itself.",
    ),
    Alert(
        "Ps2streamDiskNearlyFull", "warning", "5m",
        "max by (job, index) (ps2stream_disk_free_bytes / ps2stream_disk_bytes) < 0.1",
        "{{ $value | humanizePercentage }} of the data directory's disk is free",
        "log_bytes says whose it is. Match logs grow with what sessions do not acknowledge: "
        "Ps2streamSessionLag, or a smaller retention_bytes. When it is full, updates and durable "
        "objects are refused, deliveries go on, and it recovers by itself once there is room.",
    ),
    Alert(
        "Ps2streamSessionLag", "warning", "15m",
        'max by (job) (ps2stream_session_lag_matches{of="most"}) > 100000 and '
        'max by (job) (delta(ps2stream_session_lag_matches{of="most"}[15m])) > 0',
        "A session has {{ $value | humanize }} matches that nobody has acknowledged, and grows",
        "Is its subscriber there, and does it acknowledge? Beyond session_quota its oldest matches "
        "are lost, and it is told so (Ps2streamMatchesLost). A session that nobody wants any more: "
        "delete its queries.",
    ),
    Alert(
        "Ps2streamMatchesLost", "warning", "0m",
        "sum by (job) (increase(ps2stream_lost_matches_total[10m])) > 0",
        "{{ $value | humanize }} matches were lost to quota or retention in 10 minutes",
        "As promised: a session was beyond session_quota, or all beyond retention_bytes or "
        "retention_hours. Its subscriber gets a gap in their place. Raise the limit if there is "
        "disk, or have it read faster.",
    ),
    Alert(
        "Ps2streamUnbalanced", "warning", "30m",
        "max by (job) (ps2stream_balance) > max by (job) (ps2stream_balance_limit) and "
        "max by (job) (ps2stream_worker_load_seconds) > 0.5",
        "The most loaded worker has {{ $value | humanize }} times the load of the least loaded",
        "`ps2stream status --load` shows the hot parts, `ps2stream rebalance` moves some; with "
        "`adjust = \"local\"` that goes by itself. If it stays: `ps2stream replan`, or more "
        "workers.",
    ),
    Alert(
        "Ps2streamMoveStuck", "warning", "30m",
        "max by (job) (ps2stream_migration_active) == 1",
        "A move between plans has taken more than 30 minutes",
        "`ps2stream migrations` says how far it is. LOADING: a worker loads what it gains, or is "
        "not there. RETIRING: a batch of before is not complete (Ps2streamNothingCompletes). "
        "Until then `ps2stream apply --abort` is safe.",
    ),
    Alert(
        "Ps2streamQuarantined", "warning", "0m",
        "sum by (job) (increase(ps2stream_quarantined_objects_total[1h])) > 0",
        "{{ $value | humanize }} objects killed workers, and were set aside",
        "The log of the workers that died says what of: a bug. Report it with that; the objects "
        "stay in the object log, unmatched.",
    ),
    Alert(
        "Ps2streamMessagesDropped", "warning", "5m",
        "sum by (job, role, index) (rate(ps2stream_messages_dropped_total[5m])) > 0",
        "{{ $labels.role }}-{{ $labels.index }} drops messages: too much waits for a peer",
        "Some actor does not keep up: the one whose link and CPU grew. What is dropped is sent "
        "again, so nothing is lost, but all gets slower.",
    ),
)  # fmt: skip


def rules() -> str:
    """All of them as a rule file, YAML."""
    out = "# Written by `ps2stream dashboards`.\ngroups:\n  - name: ps2stream\n    rules:\n"
    for alert in ALERTS:
        out += f"""\
      - alert: {alert.name}
        expr: {json.dumps(alert.expr)}
        for: {alert.wait}
        labels:
          severity: {alert.severity}
        annotations:
          summary: {json.dumps(alert.summary)}
          runbook: {json.dumps(alert.runbook)}
"""
    return out
