"""The metrics of an actor, for Ray; those of a service in one process, for Prometheus.

Both read a status by the table of observability/metrics.py. Ray adds to counters, and takes the
observations of a histogram one at a time, each of which it then replaces by the middle of its
bucket. So a histogram is sent as its constituents: counters of its buckets, by `le`, its sum and
its count; the Prometheus configuration of `ps2stream dashboards` gives them their names back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ps2stream.observability.metrics import (
    LE,
    METRICS,
    DurationHistogram,
    MetricKind,
    MetricSample,
    samples,
)

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

log = logging.getLogger("ps2stream.cluster")
Status = Callable[[], Mapping[str, Any]]
NOTHING = 1e-300
"""First value of a counter that is 0: Ray does not add 0, and a counter that first appears at 5
has not increased for Prometheus."""


class MetricRecorder:
    """Sends the metrics of an actor to Ray every `ticks` ticks, in the actor's process."""

    def __init__(self, role: str, index: int, ticks: int) -> None:
        self._actor = (role, index)
        self._period_ticks = max(ticks, 1)
        self._ticks = 0
        self._made: dict[str, Any] = {}
        self._sent: dict[tuple[str, tuple[str, ...]], float] = {}
        self._failed = False

    def tick(self, status: Status) -> None:
        """Sends the metrics when they are due; called ten times a second.

        A failure ends nothing else, and only the first of several in a row is logged.
        """
        self._ticks += 1
        if self._ticks % self._period_ticks:
            return
        try:
            self.send_samples(samples(*self._actor, status()))
            self._failed = False
        except Exception:
            if not self._failed:
                log.exception("the metrics of %s-%d could not be reported", *self._actor)
            self._failed = True

    def send_samples(self, found: Iterable[MetricSample]) -> None:
        """Sets gauges, and adds to counters what they have grown by."""
        for metric, labels, value in found:
            name = metric.name
            if isinstance(value, DurationHistogram):
                tags = dict(zip(metric.labels, labels, strict=True))
                for le, count in zip(LE, value.cumulated, strict=True):
                    self._add_growth(f"{name}_bucket", tags | {"le": le}, count)
                self._add_growth(f"{name}_count", tags, sum(value.counts))
                self._add_growth(f"{name}_sum", tags, value.total)
            elif metric.kind is MetricKind.COUNTER:
                self._add_growth(name, dict(zip(metric.labels, labels, strict=True)), value)
            else:
                gauge = self._get_metric("Gauge", name, metric.labels)
                gauge.set(value, tags=dict(zip(metric.labels, labels, strict=True)))

    def _add_growth(self, name: str, tags: Mapping[str, str], value: float) -> None:
        key = (name, tuple(tags.values()))
        before, self._sent[key] = self._sent.get(key), value
        more = value - before if before is not None else max(value, NOTHING)
        if more > 0:
            self._get_metric("Counter", name, tuple(tags)).inc(more, tags=dict(tags))

    def _get_metric(self, kind: str, name: str, labels: tuple[str, ...]) -> Any:
        if name not in self._made:
            from ray.util import metrics

            self._made[name] = getattr(metrics, kind)(name, _HELP.get(name, ""), labels)
        return self._made[name]


class MetricCollector:
    """The metrics of a service, for a prometheus_client registry, which collects at each scrape."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Family]:
        """Yields all families that have a sample."""
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
                        MetricKind.COUNTER: CounterMetricFamily,
                        MetricKind.GAUGE: GaugeMetricFamily,
                        MetricKind.HISTOGRAM: HistogramMetricFamily,
                    }[metric.kind]
                    family = families[metric.name] = make(
                        metric.name, metric.help, labels=metric.labels
                    )
                if isinstance(value, DurationHistogram):
                    buckets = list(zip(LE, map(float, value.cumulated), strict=True))
                    family.add_metric(labels, buckets, value.total)
                else:
                    family.add_metric(labels, value)
        yield from families.values()


_PARTS = {
    "": "",
    "_bucket": ": number of observations up to the bound",
    "_count": ": number of observations",
    "_sum": ": sum of the observations",
}
_HELP = {f"{m.name}{part}": f"{m.help}{what}" for m in METRICS for part, what in _PARTS.items()}
