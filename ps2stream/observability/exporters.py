"""The metrics of an actor, for Ray; those of a service in one process, for Prometheus.

Both read a status by the table of observability/metrics.py. Ray adds to counters and takes one
observation of a histogram at a time, of which it then makes its middle of a bucket. So a
histogram is told as what it consists of: counters of its buckets, by `le`, its sum and its
count; the Prometheus configuration of `ps2stream dashboards` gives them their names back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ps2stream.observability.metrics import LE, METRICS, Histogram, Kind, Sample, samples

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

log = logging.getLogger("ps2stream.cluster")
Status = Callable[[], Mapping[str, Any]]
NOTHING = 1e-300
"""Ray does not add 0; yet to Prometheus a counter that first appears at 5 has not increased."""


class Recorder:
    """Tells Ray the metrics of an actor every `ticks` ticks. In an actor's process."""

    def __init__(self, role: str, index: int, ticks: int) -> None:
        self._of = (role, index)
        self._every = max(ticks, 1)
        self._ticks = 0
        self._made: dict[str, Any] = {}
        self._told: dict[tuple[str, tuple[str, ...]], float] = {}
        self._failed = False

    def tick(self, status: Status) -> None:
        """Ten times a second. Of failures one after the other the first is logged, and none ends
        anything else."""
        self._ticks += 1
        if self._ticks % self._every:
            return
        try:
            self.tell(samples(*self._of, status()))
            self._failed = False
        except Exception:
            if not self._failed:
                log.exception("%s-%d does not tell its metrics", *self._of)
            self._failed = True

    def tell(self, found: Iterable[Sample]) -> None:
        """Set gauges, and add to counters what they have grown by."""
        for metric, labels, value in found:
            name = metric.name
            if isinstance(value, Histogram):
                tags = dict(zip(metric.labels, labels, strict=True))
                for le, count in zip(LE, value.cumulated, strict=True):
                    self._add(f"{name}_bucket", tags | {"le": le}, count)
                self._add(f"{name}_count", tags, sum(value.counts))
                self._add(f"{name}_sum", tags, value.total)
            elif metric.kind is Kind.COUNTER:
                self._add(name, dict(zip(metric.labels, labels, strict=True)), value)
            else:
                gauge = self._metric("Gauge", name, metric.labels)
                gauge.set(value, tags=dict(zip(metric.labels, labels, strict=True)))

    def _add(self, name: str, tags: Mapping[str, str], value: float) -> None:
        key = (name, tuple(tags.values()))
        before, self._told[key] = self._told.get(key), value
        more = value - before if before is not None else max(value, NOTHING)
        if more > 0:
            self._metric("Counter", name, tuple(tags)).inc(more, tags=dict(tags))

    def _metric(self, kind: str, name: str, labels: tuple[str, ...]) -> Any:
        if name not in self._made:
            from ray.util import metrics

            self._made[name] = getattr(metrics, kind)(name, _HELP.get(name, ""), labels)
        return self._made[name]


class Collector:
    """The metrics of a service, for a registry of prometheus_client, which asks at each scrape."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Family]:
        """All families that have a sample."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        families: dict[str, Any] = {}
        for name, status in self._status().items():
            role, _, index = name.rpartition("-")
            for metric, labels, value in samples(role, int(index), status):
                family = families.get(metric.name)
                if family is None:
                    make = {
                        Kind.COUNTER: CounterMetricFamily,
                        Kind.GAUGE: GaugeMetricFamily,
                        Kind.HISTOGRAM: HistogramMetricFamily,
                    }[metric.kind]
                    family = families[metric.name] = make(
                        metric.name, metric.help, labels=metric.labels
                    )
                if isinstance(value, Histogram):
                    buckets = list(zip(LE, map(float, value.cumulated), strict=True))
                    family.add_metric(labels, buckets, value.total)
                else:
                    family.add_metric(labels, value)
        yield from families.values()


_PARTS = {"": "", "_bucket": ": at most so many seconds", "_count": ": count", "_sum": ": sum"}
_HELP = {f"{m.name}{part}": f"{m.help}{what}" for m in METRICS for part, what in _PARTS.items()}
