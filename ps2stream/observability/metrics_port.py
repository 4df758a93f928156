"""The port where Prometheus scrapes the metrics of a service in one process."""

from __future__ import annotations

import os

from prometheus_client import ProcessCollector, start_http_server
from prometheus_client.core import CollectorRegistry

from ps2stream.errors import invalid
from ps2stream.observability.exporters import MetricCollector, Status

HOST = "127.0.0.1"
"""The loopback address only, since whoever reaches the port may read the metrics."""


class MetricsPort:
    """Serves http://127.0.0.1:PORT/metrics until `stop`. Raises InvalidArgument for a port in
    use."""

    def __init__(self, port: int, status: Status) -> None:
        registry = CollectorRegistry()
        registry.register(MetricCollector(status))
        ProcessCollector(registry=registry)
        try:
            self._server, self._thread = start_http_server(port, HOST, registry)
        except OSError as error:
            problem = f"{port} on {HOST}: {os.strerror(error.errno or 0)}"
            raise invalid("metrics_port", problem) from None

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
