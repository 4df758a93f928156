"""The alerts for Prometheus, each with its runbook."""

from __future__ import annotations

import json
from typing import NamedTuple


class AlertRule(NamedTuple):
    """An alert rule: `expr` must hold for `wait`; `summary` may use Prometheus's templates.

    `runbook` says what to look at and to do; the alert's section of docs/operations.md begins
    with it.
    """

    name: str
    severity: str
    wait: str
    expr: str
    summary: str
    runbook: str


def _format_p99(stage: str) -> str:
    rate = f'sum by (job, le) (rate(ps2stream_stage_seconds_bucket{{stage="{stage}"}}[5m]))'
    return f"histogram_quantile(0.99, {rate})"


def _max_by_worker(metric: str) -> str:
    return f'max by (job, index) ({metric}{{role="worker"}})'


ALERTS = (
    AlertRule(
        "Ps2streamDown", "critical", "1m",
        'up{job="ps2stream"} == 0',
        "Nothing answers at {{ $labels.instance }}",
        "Check whether the `ps2stream serve` process is running and what it logged last. If it "
        "is gone, start it again: it resumes from its data directory and nothing acknowledged "
        "is lost. If it is running, Prometheus may be scraping the wrong port (metrics_port).",
    ),
    AlertRule(
        "Ps2streamWorkerMissing", "critical", "2m",
        f"(count by (job) ({_max_by_worker('ps2stream_up')}) "
        "or 0 * max by (job) (ps2stream_workers)) < max by (job) (ps2stream_workers)",
        "{{ $value }} workers report metrics, fewer than the plan has",
        "A dead worker is normally replaced within seconds, so this one fails to start. Search "
        "the log for `is replaced` and the lines after it. The usual cause is memory: compare "
        "resident_bytes with the memory of the machine. Matches of the worker's part are "
        "delayed, not lost.",
    ),
    AlertRule(
        "Ps2streamReplacedOften", "warning", "0m",
        "changes(max by (job, role, index) (ps2stream_epoch)[30m:1m]) >= 3",
        "{{ $labels.role }}-{{ $labels.index }} was replaced {{ $value }} times in 30 minutes",
        "The log says why each incarnation ended. An fsync error ends an actor on purpose: check "
        "the disk (`dmesg`). A process killed by the system means that memory ran out. No answer "
        "within lease_s means that the machine is overloaded. Objects that kill workers are set "
        "aside (Ps2streamQuarantined).",
    ),
    AlertRule(
        "Ps2streamNothingCompletes", "critical", "3m",
        "sum by (job) (rate(ps2stream_object_copies_total[2m])) > 0 unless "
        'sum by (job) (rate(ps2stream_stage_seconds_count{stage="complete"}[2m])) > 0',
        "Objects are sent to workers, but none is completed",
        "An actor does not answer. held_batches: a worker waits for updates. pending_batches: a "
        "merger waits for a worker. up and epoch show which actor is gone. A full disk stops "
        "mergers: check disk_free_bytes. Restarting the service loses nothing.",
    ),
    AlertRule(
        "Ps2streamStalled", "warning", "1m",
        "max by (job, index) (ps2stream_throughput_stalled) > 0",
        "Objects wait in dispatcher-{{ $labels.index }}, and hardly any are completed",
        "The log of the dispatcher names the oldest batch and the actors that have not answered "
        "for it (`hardly any are completed`). Look at these actors: their CPU time, their syncs "
        "(Ps2streamSlowDisk), whether they are replaced. Nothing that was acknowledged is lost. "
        "If they use no CPU while this lasts, report it with the log.",
    ),
    AlertRule(
        "Ps2streamNoDeliveries", "warning", "5m",
        "sum by (job) (rate(ps2stream_matches_total[5m])) > 0 and "
        "sum by (job) (ps2stream_streams) > 0 unless "
        "sum by (job) (rate(ps2stream_delivered_matches_total[5m])) > 0",
        "Matches are found, clients are connected, and nothing is sent to them",
        "Either the clients read nothing (credits is 0 and untaken_batches does not fall: look "
        "at the clients), or the sessions that are connected are not the ones whose queries "
        "match (`ps2stream list`).",
    ),
    AlertRule(
        "Ps2streamSlow", "warning", "5m",
        f"{_format_p99('complete')} > 1",
        "1 in 100 objects takes more than {{ $value | humanizeDuration }} until its matches are "
        "durable",
        "Find the stage that grew. intake: more is published than the workers can match, so add "
        "workers (`ps2stream scale`). link or match of one worker: it has too much of the load "
        "(Ps2streamUnbalanced). sync: the disk (Ps2streamSlowDisk). merge: sessions with large "
        "backlogs.",
    ),
    AlertRule(
        "Ps2streamSlowDisk", "warning", "10m",
        f"{_format_p99('sync')} > 0.25",
        "1 in 100 syncs takes more than {{ $value | humanizeDuration }}",
        "Find out what else writes to this disk (`iostat -x 1`). A disk that slows down by "
        "itself may be failing: `dmesg`, `smartctl`. With PostgreSQL, look at its checkpoints "
        "and its standby.",
    ),
    AlertRule(
        "Ps2streamRefusing", "warning", "5m",
        "sum by (job, reason) (rate("
        'ps2stream_objects_refused_total{reason=~"full|shed|unavailable"}[5m])) > 0',
        "{{ $value | humanize }} objects a second are refused ({{ $labels.reason }})",
        "full and shed: more is published than the service can match. Add workers, or set "
        "quotas for the tenants that send too much. unavailable: the disk is full, or a "
        "dispatcher has just been replaced. Nothing that was acknowledged is lost.",
    ),
    AlertRule(
        "Ps2streamLedgerUnavailable", "critical", "0m",
        'sum by (job) (increase(ps2stream_updates_refused_total{reason="unavailable"}[5m])) > 0',
        "Inserts and deletes are refused: the ledger could not be written",
        "The cause is a full disk, an fsync error or an unreachable PostgreSQL: the log of the "
        "sequencer says which. Matching continues meanwhile. After an fsync error the sequencer "
        "is replaced automatically.",
    ),
    AlertRule(
        "Ps2streamLogNotWritten", "critical", "1m",
        "max by (job, role, index) (ps2stream_log_problem) == 1",
        "{{ $labels.role }}-{{ $labels.index }} cannot write its log, or the sequencer its ledger",
        "`ps2stream status` says why: the disk is full, the files were removed or moved away, or "
        "PostgreSQL or Kafka does not answer. What would be written is refused meanwhile, and "
        "nothing that was acknowledged is lost, unless its files are. A log that `accepts no "
        "records until a restart` needs one.",
    ),
    AlertRule(
        "Ps2streamDiskNearlyFull", "warning", "5m",
        "max by (job, index) (ps2stream_disk_free_bytes / ps2stream_disk_bytes) < 0.1 and "
        "max by (job, index) (ps2stream_disk_free_bytes) < 20e9",
        "{{ $value | humanizePercentage }} of the data directory's disk is free",
        "log_bytes shows which log takes the space. Match logs grow with what sessions do not "
        "acknowledge: see Ps2streamSessionLag, or lower retention_bytes. On a full disk updates "
        "and durable objects are refused while deliveries continue, and the service recovers by "
        "itself once there is room.",
    ),
    AlertRule(
        "Ps2streamSessionLag", "warning", "15m",
        'max by (job) (ps2stream_session_lag_matches{of="most"}) > 100000 and '
        'max by (job) (delta(ps2stream_session_lag_matches{of="most"}[15m])) > 0',
        "A session has {{ $value | humanize }} unacknowledged matches, and their number grows",
        "Check that the subscriber is connected and acknowledges. Beyond session_quota the "
        "oldest matches of the session are dropped, and the subscriber receives a gap "
        "(Ps2streamMatchesLost). If nobody needs the session any more, delete its queries.",
    ),
    AlertRule(
        "Ps2streamMatchesLost", "warning", "0m",
        "sum by (job) (increase(ps2stream_lost_matches_total[10m])) > 0",
        "{{ $value | humanize }} matches were lost to quota or retention in 10 minutes",
        "A session exceeded session_quota, or all sessions together exceeded retention_bytes or "
        "retention_hours. The subscriber receives a gap in place of the matches. Raise the "
        "limit if the disk has room, or make the subscriber read faster.",
    ),
    AlertRule(
        "Ps2streamArchiveNotWritten", "warning", "5m",
        "max by (job, index) (ps2stream_archive_problem) == 1",
        "Dispatcher {{ $labels.index }} cannot write to the archive",
        "`ps2stream status` says why: the archive's disk is full, its folder cannot be written, or "
        "a file of it is damaged. The dispatcher tries again every second and keeps up to 256 MiB "
        "of its log meanwhile; beyond that, objects are lost to the archive "
        "(Ps2streamArchiveIncomplete). Matching and delivery are not concerned.",
    ),
    AlertRule(
        "Ps2streamArchiveIncomplete", "warning", "0m",
        "sum by (job) (increase(ps2stream_archive_lost_objects_total[10m])) > 0",
        "{{ $value | humanize }} durable objects did not come into the archive in 10 minutes",
        "The archive could not be written for so long that the object log kept no more for it: its "
        "disk is full, or its folder cannot be written. The log of the service says which. "
        "Matching and delivery are not concerned.",
    ),
    AlertRule(
        "Ps2streamUnbalanced", "warning", "30m",
        "max by (job) (ps2stream_balance) > max by (job) (ps2stream_balance_limit) and "
        "max by (job) (ps2stream_worker_load_seconds) > 0.5",
        "The most loaded worker has {{ $value | humanize }} times the load of the least loaded",
        "`ps2stream status --load` shows the parts with the most work, and `ps2stream "
        'rebalance` migrates some of them; with `adjust = "local"` the service does so by itself. '
        "If the imbalance stays, run `ps2stream replan` or add workers.",
    ),
    AlertRule(
        "Ps2streamHotSpot", "warning", "5m",
        "max by (job) (ps2stream_hot_balance) > 1.5 and "
        "max by (job) (ps2stream_worker_load_seconds) > 0.5",
        "One worker gets {{ $value | humanize }} times the objects of the mean, and it stays so",
        "Hot units are normally replicated within seconds (`ps2stream status --load` lists "
        "them). Nothing is replicated while a plan change is under way or two plans coexist: see "
        "`ps2stream migrations`; nor while publications wait, but not for a worker, as more "
        "dispatchers or processors are needed. If it is neither, look for messages of the "
        "controller in the log, and whether ps2stream_adjustments_total counts declined changes.",
    ),
    AlertRule(
        "Ps2streamMigrationStuck", "warning", "30m",
        "max by (job) (ps2stream_migration_active) == 1",
        "A plan change has taken more than 30 minutes",
        "`ps2stream migrations` shows the progress of the plan change. transferring: a worker is "
        "still fetching its new queries, or is missing. retiring: a batch from before the switch "
        "is not complete (Ps2streamNothingCompletes). Before the switch `ps2stream apply "
        "--abort` is safe.",
    ),
    AlertRule(
        "Ps2streamQuarantined", "warning", "0m",
        "sum by (job) (increase(ps2stream_quarantined_objects_total[1h])) > 0",
        "{{ $value | humanize }} objects killed workers and were set aside",
        "The log of the workers that died has the error. It is a bug: report it with that log. "
        "The objects stay in the object log, unmatched.",
    ),
    AlertRule(
        "Ps2streamMessagesDropped", "warning", "5m",
        "sum by (job, role, index) (rate(ps2stream_messages_dropped_total[5m])) > 0",
        "{{ $labels.role }}-{{ $labels.index }} drops messages: too many wait for a peer",
        "One actor does not keep up: the one whose link time and CPU time have grown. Dropped "
        "messages are sent again, so nothing is lost, but everything slows down.",
    ),
)  # fmt: skip


RUNBOOKS = "docs/operations.md"
"""The page with a section for each alert, named after it."""


def rules(runbooks: str = RUNBOOKS) -> str:
    """Returns all alerts as a rule file, YAML. `runbooks`: path or URL of the page they link to."""
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
          runbook_url: {json.dumps(f"{runbooks}#{alert.name.lower()}")}
"""
    return out
