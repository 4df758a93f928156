"""The in-process runtime: every machine in one process, no network between them.

The fastest embedded mode and the easiest to debug: a message is handed over as the
value it is, and the thread that publishes does the matching.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from ps2stream.cluster.edge import DispatcherEdge, counters_of, wall_clock_ms
from ps2stream.cluster.topology import Topology
from ps2stream.messages import Address, Send, UpdateRequest
from ps2stream.ports import Store


class LocalRuntime:
    """All machines under one lock; `edges[i]` is dispatcher i's Gateway."""

    def __init__(self, topology: Topology, store: Store) -> None:
        self._lock = threading.RLock()
        self._inbox: deque[Send] = deque()
        self._busy = False
        analyzer = topology.analyzer()
        frequencies = topology.frequencies(analyzer)
        self._sequencer = topology.sequencer(store)
        self._workers = [topology.worker(i) for i in range(topology.workers)]
        self._mergers = [topology.merger(i) for i in range(topology.mergers)]
        self.edges = [
            DispatcherEdge(
                topology.router(i, analyzer),
                analyzer,
                frequencies,
                self._post,
                wall_clock_ms,
                self._lock,
                topology.reservoir(i),
            )
            for i in range(topology.dispatchers)
        ]
        self._post(self._sequencer.start())

    def tick(self) -> None:
        """Periodic work; call it now and then."""
        with self._lock:
            for edge in self.edges:
                edge.tick()

    def status(self) -> dict[str, Any]:
        """Counters of every machine, by address."""
        with self._lock:
            return {
                "sequencer-0": counters_of(self._sequencer),
                **{f"dispatcher-{i}": e.status() for i, e in enumerate(self.edges)},
                **{f"worker-{i}": counters_of(w) for i, w in enumerate(self._workers)},
                **{f"merger-{i}": counters_of(m) for i, m in enumerate(self._mergers)},
            }

    def _post(self, sends: list[Send]) -> None:
        with self._lock:
            self._inbox.extend(sends)
            if self._busy:
                return
            self._busy = True
            try:
                while self._inbox:
                    self._hand_over(self._inbox.popleft())
            finally:
                self._busy = False

    def _hand_over(self, send: Send) -> None:
        to: Address = send.to
        if to.role == "dispatcher":
            self.edges[to.index].on(send.frame)
        elif to.role == "worker":
            self._inbox.extend(self._workers[to.index].on(send.frame))
        elif to.role == "merger":
            self._inbox.extend(self._mergers[to.index].on(send.frame))
        elif isinstance(send.frame, UpdateRequest):
            self._inbox.extend(self._sequencer.append([send.frame]))
        else:
            self._inbox.extend(self._sequencer.on(send.frame))
