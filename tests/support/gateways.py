"""Gateways behind a server of the tests: one with a disk that fills up, and one never asked."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ps2stream.cluster.local_runtime import LocalRuntime
from ps2stream.cluster.service import fitted_plan
from ps2stream.cluster.topology import Topology
from ps2stream.config import Settings
from ps2stream.dispatcher.gateway import AcceptedBatch
from ps2stream.errors import ResourceExhausted, Unavailable
from ps2stream.protocol.ports import LedgerChange
from ps2stream.service.server import serve
from ps2stream.store.memory import MemoryStore


class Disk(MemoryStore):
    """A ledger whose disk may be full."""

    full = False

    def commit(self, change: LedgerChange) -> None:
        if self.full:
            raise Unavailable("the disk is full")
        super().commit(change)


class Busy:
    """A dispatcher that is full for the next `refusals` batches."""

    def __init__(self, edge: Any) -> None:
        self._edge = edge
        self.refusals = 0

    def publish(
        self, rows: Any, wait_s: float = 0.0, durable: bool = True, identity: Any = None
    ) -> Future[AcceptedBatch]:
        found: Future[AcceptedBatch] = Future()
        if self.refusals:
            self.refusals -= 1
            problem = "publish: 64 batches are in flight, the limit"
            found.set_exception(ResourceExhausted(problem, 10))
        else:
            found = self._edge.publish(rows, wait_s, durable, identity)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._edge, name)


@contextmanager
def running(
    tmp_path: Path, quota: int = 1 << 16, never_blocks: bool = False
) -> Iterator[tuple[str, Disk, Any]]:
    settings = Settings(runtime="local", workers=1, data_dir=tmp_path / "data")
    disk = Disk()
    runtime = LocalRuntime(Topology(fitted_plan(settings, None), session_quota=quota), disk)
    runtime.edges[0].never_blocks = never_blocks
    edge: Any = Busy(runtime.edges[0])
    server = serve(edge, "127.0.0.1", 0)
    edge.server_status = server.status
    try:
        yield f"127.0.0.1:{server.port}", disk, edge
    finally:
        server.stop(0)


class Nothing:
    """A gateway that is never asked."""

    @staticmethod
    def clock_ms() -> int:
        return 0

    never_blocks = False
    sharers = 1

    def tell_congestion(self, *_: object) -> None:
        """There is none."""


GATEWAY: Any = Nothing()
