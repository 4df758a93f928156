"""Scaling of the workers to the number that the plans need: more are started before a plan with
more begins, and those that own nothing are stopped once a plan with fewer is in force.

The sequencer knows both numbers, and refuses a plan that needs more workers than run. So the
lower number is reported to it first, and workers are stopped unless a plan needs them by then.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from ps2stream.cluster.intervals import JOIN_S, LOOK_S
from ps2stream.errors import Unavailable

log = logging.getLogger("ps2stream.cluster")


class WorkerPool(Protocol):
    """The port that starts and stops workers. A call that fails is tried again; Unavailable
    means that the sequencer does not answer."""

    @property
    def workers(self) -> int:
        """The number of workers that run, numbered from 0."""
        ...

    def tell(self, workers: int) -> int:
        """Reports to the sequencer how many workers run, and returns how many are wanted; see
        SequencerMachine.run."""
        ...

    def start_worker(self, worker: int) -> None:
        """Starts a worker and makes it known to all. Raises Unavailable where it has no place."""
        ...

    def dismiss(self, worker: int) -> None:
        """Stops a worker and makes that known to all."""
        ...


class WorkerScaler:
    """Adapts the number of workers of `service`, on a thread of its own."""

    def __init__(self, service: WorkerPool) -> None:
        self._service = service
        self._stopping = threading.Event()
        self._without_place = ""
        self._thread = threading.Thread(target=self._run_steps, daemon=True, name="worker-scaling")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the scaling: no worker is started or stopped any more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _run_steps(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                self.look()
            except Unavailable as error:
                log.debug("the workers cannot be counted now: %s", error)
            except Exception:
                if not self._stopping.is_set():
                    log.exception("the number of workers could not be adjusted; retrying")

    def look(self) -> None:
        """Does one step: starts the workers that are missing, or stops those that are too many."""
        service = self._service
        running = service.workers
        wanted = service.tell(running)
        for worker in range(running, wanted):
            if self._stopping.is_set():
                return
            if not self._start_worker(worker):
                return
        if wanted > running:
            service.tell(wanted)
        elif service.tell(wanted) <= wanted:
            for worker in reversed(range(wanted, running)):
                log.info("worker-%d is stopped", worker)
                service.dismiss(worker)

    def _start_worker(self, worker: int) -> bool:
        """Starts a worker; returns False if it has no place now, which is logged once."""
        if not self._without_place:
            log.info("worker-%d is started", worker)
        try:
            self._service.start_worker(worker)
        except Unavailable as error:
            if str(error) != self._without_place:
                self._without_place = str(error)
                log.warning("worker-%d was not started; retrying: %s", worker, error)
            return False
        self._without_place = ""
        return True
