"""All metrics, as data: their names, what they mean, where their values come from.

Machines and shells keep plain numbers and report them as an actor's status; `samples` reads a
status by the table below. The exporters (observability/exporters.py) add nothing of their own.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import accumulate
from numbers import Real
from typing import Any, NamedTuple

BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of a histogram's buckets in seconds; a last bucket has none."""
LE = (*map(str, BOUNDS), "+Inf")


class DurationHistogram:
    """Durations, counted by bucket. One thread adds; others may read."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(LE)
        self.total = 0.0  # seconds

    def add(self, seconds: float, count: int = 1) -> None:
        """Counts `count` things that took `seconds` each."""
        self.counts[bisect_left(BOUNDS, seconds)] += count
        self.total += seconds * count

    @property
    def cumulated(self) -> list[int]:
        """The number of durations up to the upper bound of each bucket, as Prometheus has them."""
        return list(accumulate(self.counts))


class MetricKind(enum.StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class StatusSource(NamedTuple):
    """The place of a value: `key` of the status of actors of `role` (empty: of all), with these
    labels."""

    role: str
    key: str
    labels: Mapping[str, str] = {}


class MetricDefinition(NamedTuple):
    """A metric. With `by` its values are a mapping or a sequence, whose keys become this label.
    `scale` converts from the unit in the status to that of the name."""

    name: str
    kind: MetricKind
    help: str
    sources: tuple[StatusSource, ...]
    by: str = ""
    scale: float = 1.0

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels of every sample, in order."""
        own = dict.fromkeys(name for source in self.sources for name in source.labels)
        return ("role", "index", *own, *([self.by] if self.by else []))

    @property
    def unit(self) -> str:
        """The unit that ends the name; empty for plain numbers."""
        words = self.name.removesuffix("_total").split("_")
        return words[-1] if words[-1] in ("seconds", "bytes") else ""


class MetricSample(NamedTuple):
    """A value with its labels, in the order of `metric.labels`."""

    metric: MetricDefinition
    labels: tuple[str, ...]
    value: float | DurationHistogram


def _counter(name: str, what: str, *sources: StatusSource, by: str = "") -> MetricDefinition:
    return MetricDefinition(f"ps2stream_{name}_total", MetricKind.COUNTER, what, sources, by)


def _gauge(
    name: str, what: str, *sources: StatusSource, by: str = "", scale: float = 1.0
) -> MetricDefinition:
    return MetricDefinition(f"ps2stream_{name}", MetricKind.GAUGE, what, sources, by, scale)


def _of(role: str, key: str, **labels: str) -> StatusSource:
    return StatusSource(role, key, labels)


METRICS: tuple[MetricDefinition, ...] = (
    # what comes in
    _counter("objects", "Objects accepted", _of("dispatcher", "objects")),
    _counter("object_batches", "Batches of accepted objects", _of("dispatcher", "batches")),
    _counter(
        "object_copies", "Copies of objects sent to workers", _of("dispatcher", "routed")
    ),
    _counter(
        "objects_discarded", "Objects sent to no worker", _of("dispatcher", "discarded")
    ),
    _counter(
        "objects_refused",
        "Objects refused. invalid: malformed; quota: over the tenant's quota; full: over "
        "max_in_flight or intake_bytes; unavailable: the disk is full, or the dispatcher is "
        "catching up or replaced; shed: level NONE while full",
        _of("dispatcher", "refused_objects"),
        by="reason",
    ),
    _gauge(
        "shedding_level",
        "Level at which load is shed, 0 to 8; 0: nothing is shed",
        _of("dispatcher", "shedding_level"),
    ),
    _counter(
        "capped_objects",
        "Objects that were not sent to all of their workers, as load was shed",
        _of("dispatcher", "capped_objects"),
    ),
    _counter(
        "shed_copies",
        "Copies of objects that workers were not sent, as load was shed",
        _of("dispatcher", "shed_copies"),
    ),
    _counter(
        "updates",
        "Inserts and deletes in the ledger",
        _of("sequencer", "inserts", kind="insert"),
        _of("sequencer", "deletes", kind="delete"),
    ),
    _counter(
        "queries_ended", "Deletes of queries whose end had come", _of("sequencer", "ended")
    ),
    _gauge(
        "valid_objects_bytes",
        "Bytes of objects that are kept as they are still valid",
        _of("dispatcher", "valid_bytes"),
    ),
    _counter(
        "valid_objects_evicted",
        "Objects with an end that were dropped beyond valid_objects_bytes",
        _of("dispatcher", "valid_evicted"),
    ),
    _counter(
        "retro_matches",
        "Matches of new queries with objects that were still valid",
        _of("dispatcher", "retro_pairs"),
    ),
    _counter(
        "updates_refused",
        "Inserts and deletes answered with another code than OK",
        _of("sequencer", "refused_updates"),
        by="reason",
    ),
    # what goes out
    _counter("matched_objects", "Objects matched, each copy counted", _of("worker", "objects")),
    _counter("matches", "Matches found by workers", _of("worker", "matches")),
    _counter("delivered_matches", "Matches sent to open streams", _of("merger", "sent")),
    _counter("delivered", "Bytes sent to open streams", _of("merger", "sent_bytes"))._replace(
        name="ps2stream_delivered_bytes_total"
    ),
    _counter("lost_matches", "Matches lost to quota or retention and announced as gaps",
             _of("merger", "lost")),
    _counter("collapsed_matches", "Duplicate matches removed, found by two workers",
             _of("dispatcher", "collapsed")),
    # how long it takes
    MetricDefinition(
        "ps2stream_stage_seconds",
        MetricKind.HISTOGRAM,
        "Duration of a stage; docs/metrics.md defines the stages",
        (StatusSource("", "stages"),),
        by="stage",
    ),
    _counter(
        "late_objects",
        "Objects whose matches took more than 0.1 s, or more than 1 s, to be durable",
        _of("dispatcher", "delayed", than="0.1s"),
        _of("dispatcher", "stalled", than="1s"),
    ),
    # what waits
    _gauge("throughput_stalled",
           "Stall of the throughput: 1 while objects wait and hardly any are completed",
           _of("dispatcher", "throughput_stalled")),
    _counter("throughput_stalls", "Stalls of the throughput that began",
             _of("dispatcher", "throughput_stalls")),
    _gauge("batches_in_flight", "Object batches of which some match is not durable yet",
           _of("dispatcher", "in_flight")),
    _gauge("intake_publications", "Publications waiting to be routed",
           _of("dispatcher", "intake")),
    _gauge("undecided_updates", "Update requests not yet answered by the sequencer",
           _of("dispatcher", "undecided")),
    _gauge("held_batches", "Object batches waiting in a worker", _of("worker", "held")),
    _gauge("pending_batches", "Object batches waiting in a merger for workers",
           _of("merger", "pending")),
    _gauge("streams", "Open Deliver streams", _of("dispatcher", "streams")),
    _gauge("watchers", "Clients that watch a sample of the stream", _of("dispatcher", "watchers")),
    _gauge("credits", "Batches that open streams may be sent now", _of("dispatcher", "credits")),
    _gauge("untaken_batches", "Deliveries not yet taken by clients",
           _of("dispatcher", "untaken")),
    _gauge("sessions", "Sessions that have had matches", _of("merger", "sessions")),
    _gauge("session_lag_matches", "Unacknowledged matches. most: of the session that has the "
           "most; all: of all sessions", _of("merger", "lag_most", of="most"),
           _of("merger", "lag", of="all")),
    _gauge("session_lag_seconds", "Age of the oldest unacknowledged match of any session",
           _of("merger", "lag_ms"), scale=1e-3),
    _gauge("session_backlog_bytes", "Bytes of unacknowledged matches in the match log",
           _of("merger", "backlog_bytes")),
    # what is held
    _gauge("live_queries", "Live queries of the service", _of("sequencer", "live")),
    _gauge("worker_queries", "Live queries held by a worker", _of("worker", "live")),
    _gauge("postings", "Stored postings, including those of deleted queries",
           _of("worker", "postings")),
    _gauge("tombstones", "Deleted queries not yet purged", _of("worker", "tombstones")),
    _gauge("index_bytes", "Memory of a worker's index", _of("worker", "bytes")),
    _gauge("routing_units", "Units with a query", _of("dispatcher", "units")),
    _gauge("watched_literals", "Phrases, prefixes and predicates that live queries have",
           _of("dispatcher", "literals")),
    _gauge("log_bytes", "Disk space used by an object log or match log",
           _of("dispatcher", "log_bytes"), _of("merger", "log_bytes")),
    _gauge("log_problem", "Actor that cannot write its log, or its ledger: 1, otherwise 0",
           _of("sequencer", "log_failing"), _of("dispatcher", "log_failing"),
           _of("merger", "log_failing")),
    _counter("archived_objects", "Objects written to the archive",
             _of("dispatcher", "archived_objects")),
    _counter("archive_lost_objects", "Durable objects that did not come into the archive",
             _of("dispatcher", "archive_lost_objects")),
    _gauge("archive_bytes", "Bytes of a dispatcher's own files in the archive",
           _of("dispatcher", "archive_bytes")),
    _gauge("archive_lag_bytes", "Bytes of an object log that are not yet in the archive",
           _of("dispatcher", "archive_lag_bytes")),
    _gauge("archive_damaged_withdrawals", "Withdrawals of the archive that cannot be read any more",
           _of("dispatcher", "archive_damaged_withdrawals")),
    _gauge("archive_problem", "Dispatcher that cannot write to the archive: 1, otherwise 0",
           _of("dispatcher", "archive_failing")),
    _gauge("snapshot_lsn", "LSN of a worker's last snapshot", _of("worker", "snapshot.lsn")),
    _gauge("disk_free_bytes", "Free space on the disk of the data directory",
           _of("sequencer", "disk_free")),
    _gauge("disk_bytes", "Size of the disk of the data directory", _of("sequencer", "disk")),
    # plans, load and balance
    _gauge("lsn", "Last LSN committed by the sequencer, or applied by the actor",
           _of("sequencer", "lsn"), _of("worker", "applied"), _of("merger", "applied"),
           _of("dispatcher", "applied")),
    _gauge("plan_version", "Version of the plan that objects are routed by",
           _of("dispatcher", "plan_version")),
    _gauge("workers", "Workers required by the plans in force", _of("sequencer", "workers")),
    _gauge("migration_active", "Plan change under way: 1, otherwise 0",
           _of("sequencer", "moving")),
    _gauge("plans_coexist",
           "Coexistence of two plans: 1 while new queries belong to another plan than old ones",
           _of("sequencer", "coexisting")),
    _counter("migrations", "Plan changes that ended", _of("sequencer", "moves"), by="outcome"),
    _counter("adjustments", "Adjustments that the controller proposed to the sequencer",
             _of("controller", "adjustments", outcome="begun"),
             _of("controller", "declined", outcome="declined")),
    _counter("sunsets", "Old plans that the controller retired while two coexisted",
             _of("controller", "sunsets")),
    _counter("replans", "Automatic replannings that ended (replan_s); the same in every dispatcher",
             _of("dispatcher", "replans")),
    _counter("replans_failed", "Automatic replannings that failed",
             _of("dispatcher", "replans_failed")),
    _gauge("worker_load_seconds", "Work of a worker in a period, by the load model",
           _of("controller", "loads_us"), by="worker", scale=1e-6),
    _gauge("balance", "Load of the most loaded worker over that of the least loaded",
           _of("controller", "balance")),
    _gauge("balance_limit", "Balance above which loads are adjusted (sigma)",
           _of("controller", "sigma")),
    _counter("parts_changed", "Parts split or merged by adjustments in force",
             _of("controller", "splits", kind="split"), _of("controller", "merges", kind="merge")),
    _gauge("replicated_units", "Units that several workers own together, because they are hot",
           _of("controller", "replicated")),
    _gauge("sharded_units", "Those of the replicated units whose queries are divided among workers",
           _of("controller", "sharded")),
    _counter("hot_unit_changes", "Plan changes that the controller began because of hot units",
             _of("controller", "hot_changes")),
    _gauge("hot_balance", "Copies of objects sent to the worker that got the most, in the last "
           "seconds, over the mean; 0 while hot units are not counted",
           _of("controller", "hot_balance")),
    _counter("load_periods", "Load periods with and without a report of every worker",
             _of("controller", "periods", reports="all"),
             _of("controller", "lost", reports="missing")),
    # faults
    _gauge("up", "Actor that reported lately: 1", _of("", "up")),
    _gauge("epoch", "Epoch of the actor, which rises when it is replaced", _of("", "epoch")),
    _counter("stale_batches", "Batches refused by a worker because its plan was another",
             _of("dispatcher", "stale")),
    _counter("quarantined_objects", "Objects set aside because they killed workers",
             _of("dispatcher", "quarantined")),
    _counter("messages_refused", "Messages refused: repeated, or of earlier incarnations",
             _of("", "refused")),
    _counter("messages_dropped", "Messages dropped because too many waited for a peer",
             _of("", "dropped")),
    _counter("cut_streams", "Deliver streams ended because they took nothing",
             _of("dispatcher", "cut_streams")),
    _counter("cpu", "CPU time of the actor's process", _of("", "cpu_seconds"))._replace(
        name="ps2stream_cpu_seconds_total"
    ),
    _gauge("resident_bytes", "Memory of the actor's process", _of("", "resident_bytes")),
)  # fmt: skip


def samples(role: str, index: int, status: Mapping[str, Any]) -> Iterator[MetricSample]:
    """Yields the samples in an actor's status. What it does not contain is left out."""
    for metric in METRICS:
        for source in metric.sources:
            if source.role not in ("", role):
                continue
            labels = (role, str(index), *(source.labels.get(n, "") for n in metric.labels[2:]))
            found = _find_value(status, source.key)
            if not metric.by:
                if isinstance(found, Real):
                    yield MetricSample(metric, labels, float(found) * metric.scale)
                continue
            for key, value in _iterate_items(found):
                at = (*labels[:-1], str(key))
                if isinstance(value, DurationHistogram):
                    yield MetricSample(metric, at, value)
                elif isinstance(value, Real):
                    yield MetricSample(metric, at, float(value) * metric.scale)


def _find_value(status: Mapping[str, Any], key: str) -> Any:
    found: Any = status
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _iterate_items(found: Any) -> Iterator[tuple[object, Any]]:
    if isinstance(found, Mapping):
        yield from found.items()
    elif isinstance(found, list | tuple):
        yield from enumerate(found)
