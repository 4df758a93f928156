"""As many workers as the plans have: more are started before a plan begins that has more,
and who has nothing left is stopped once a plan with fewer is in force.

The sequencer knows both numbers, and refuses a plan that asks for more workers than run. So
it is told first that some will go, and they go if no plan has asked for them until then.
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from ps2stream.errors import Unavailable

log = logging.getLogger("ps2stream.cluster")
LOOK_S = 0.25
STOP_S = 2.0
"""How long the start of a worker may take to see that it is not wanted any more."""


class Service(Protocol):
    """Who starts and stops workers. What fails is tried again; Unavailable says that the
    sequencer does not answer."""

    @property
    def workers(self) -> int:
        """How many there are, numbered from 0."""
        ...

    def tell(self, workers: int) -> int:
        """See SequencerMachine.run."""
        ...

    def hire(self, worker: int) -> None:
        """Start one, and make it known to all. Raises Unavailable where it has no place."""
        ...

    def dismiss(self, worker: int) -> None:
        """Stop one, and make that known to all."""
        ...


class Manning:
    """Looks after the number of workers of `service`, on a thread of its own."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._stopping = threading.Event()
        self._without_place = ""
        self._thread = threading.Thread(target=self._run, daemon=True, name="manning")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Start and stop nobody any more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            try:
                self.look()
            except Unavailable as error:
                log.debug("workers are not counted now: %s", error)
            except Exception:
                if not self._stopping.is_set():
                    log.exception("the number of workers could not be seen to; tried again")

    def look(self) -> None:
        """One step: start whom it lacks, or stop whom it has too many."""
        service = self._service
        running = service.workers
        wanted = service.tell(running)
        for worker in range(running, wanted):
            if self._stopping.is_set():
                return
            if not self._hire(worker):
                return
        if wanted > running:
            service.tell(wanted)
        elif service.tell(wanted) <= wanted:
            for worker in reversed(range(wanted, running)):
                log.info("worker-%d is stopped", worker)
                service.dismiss(worker)

    def _hire(self, worker: int) -> bool:
        """False: it has no place now, which is said once."""
        if not self._without_place:
            log.info("worker-%d is started", worker)
        try:
            self._service.hire(worker)
        except Unavailable as error:
            if str(error) != self._without_place:
                self._without_place = str(error)
                log.warning("worker-%d was not started; tried again: %s", worker, error)
            return False
        self._without_place = ""
        return True
