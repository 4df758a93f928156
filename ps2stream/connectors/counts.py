"""Counts of what a connector has done, reported as status lines and to Prometheus."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ps2stream.errors import invalid

HOST = "127.0.0.1"
GAUGES = {
    "lag": "Records of the source not yet read, or matches not yet passed on.",
    "waiting": "Records read, and matches received, that are not acknowledged yet.",
    "assigned": "Partitions that this process reads.",
    "read_rate": "Records a second that the last micro-batch with records read.",
    "batch_ms": "Milliseconds that the last micro-batch with records took.",
}
TOTALS = {
    "taken": "Records read, and matches received.",
    "done": "Records that the service has made durable, or matches that the receiver has accepted.",
    "bad": "Records that are not posts, or matches that the receiver refused for good.",
    "retries": "Failed attempts that were repeated.",
    "late": "Records older than the deduplication remembers, which are dropped.",
    "repeats": "Records that the deduplication dropped.",
    "batches": "Micro-batches that are committed.",
    "missed": "Matches that the service dropped because they were not taken in time.",
    "polls": "Requests for the feed that were answered.",
    "objects": "Objects that the records became; an area becomes several.",
    "expired": "Records whose end had come before they were published.",
    "coarse": "Areas with positions farther apart than --spacing-km, as they are too large.",
    "no_place": "Posts without a place, which are not published.",
    "deleted": "Deletions at the source.",
    "withdrawn": "Objects of these that were withdrawn from the service.",
    "other": "Events that are neither posts nor deletions of posts.",
}


class ConnectorCounts:
    """Numbers by name, of GAUGES and TOTALS; those of `names` are reported. Safe for threads."""

    def __init__(self, *names: str) -> None:
        self._lock = threading.Lock()
        self._values = dict.fromkeys(names, 0)

    def add(self, name: str, more: int = 1) -> None:
        with self._lock:
            self._values[name] += more

    def set(self, name: str, value: int) -> None:
        with self._lock:
            self._values[name] = value

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def now(self) -> dict[str, int]:
        """Returns all numbers by name."""
        with self._lock:
            return dict(self._values)


class CountsReporter:
    """Reports the counts every `every` seconds, when `due` is checked; 0: never by itself."""

    def __init__(
        self,
        counts: ConnectorCounts,
        tell: Callable[[dict[str, Any], str], None],
        every: float = 10.0,
    ) -> None:
        self._counts = counts
        self._tell = tell
        self._every = every
        self._next = time.monotonic() + every

    def due(self) -> bool:
        """Returns whether a report is due."""
        return bool(self._every) and time.monotonic() >= self._next

    def tell(self, event: str = "status") -> None:
        """Reports one line; the next is due after `every` seconds."""
        self._next = time.monotonic() + self._every
        found = self._counts.now()
        self._tell({"event": event, **found}, f"{event}: {_format_counts(found)}")


def _format_counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{value:,} {name}" for name, value in found.items())


@contextmanager
def metrics_port(
    port: int, connector: str, counts: ConnectorCounts, host: str = HOST
) -> Iterator[None]:
    """Serves http://HOST:PORT/metrics within the block; port 0 serves nothing. Raises
    InvalidArgument for a port in use."""
    if not port:
        yield
        return
    from prometheus_client import start_http_server
    from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector

    class CountsCollector(Collector):
        def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
            for name, value in counts.now().items():
                total = name in TOTALS
                make = CounterMetricFamily if total else GaugeMetricFamily
                found = make(
                    f"ps2stream_connector_{name}",
                    TOTALS[name] if total else GAUGES[name],
                    labels=("connector",),
                )
                found.add_metric([connector], value)
                yield found

    registry = CollectorRegistry()
    registry.register(CountsCollector())
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        problem = f"{port} on {host}: {error.strerror}"
        raise invalid("metrics_port", problem) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
