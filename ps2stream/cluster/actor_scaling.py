"""Scaling of the workers to the number that the plans need, of the mergers to the number that the
tables of sessions need, and of the dispatchers to the number that count: more are started before a
change begins, and those that are needed no more are stopped once it is done.

The sequencer knows the numbers, and refuses a change that needs more actors than run. So the
lower number is reported to it first, and actors are stopped unless they are needed by then.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Protocol

from ps2stream.cluster.intervals import JOIN_S, LOOK_S
from ps2stream.errors import Unavailable
from ps2stream.protocol.addresses import Role

log = logging.getLogger("ps2stream.cluster")


class ActorPool(Protocol):
    """The port that starts and stops the actors of one role. A call that fails is tried again;
    Unavailable means that the sequencer does not answer."""

    role: Role

    @property
    def running(self) -> int:
        """The number of actors that run, numbered from 0."""
        ...

    def tell(self, running: int) -> int:
        """Reports to the sequencer how many run, and returns how many are wanted; see
        SequencerMachine.run and run_mergers."""
        ...

    def start_actor(self, index: int) -> None:
        """Starts an actor and makes it known to all. Raises Unavailable where it has no place."""
        ...

    def dismiss(self, index: int) -> None:
        """Stops an actor and makes that known to all."""
        ...


class ActorScaler:
    """Adapts the numbers of actors in these pools, on a thread of its own."""

    def __init__(self, pools: Sequence[ActorPool]) -> None:
        self._pools = pools
        self._stopping = threading.Event()
        self._without_place = ""
        self._thread = threading.Thread(target=self._run_steps, daemon=True, name="scaling")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the scaling: no actor is started or stopped any more."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN_S)

    def _run_steps(self) -> None:
        while not self._stopping.wait(LOOK_S):
            for pool in self._pools:
                try:
                    self.look(pool)
                except Unavailable as error:
                    log.debug("the actors cannot be counted now: %s", error)
                except Exception:
                    if not self._stopping.is_set():
                        log.exception("the %ss could not be scaled; retrying", pool.role)

    def look(self, pool: ActorPool) -> None:
        """Does one step: starts the actors that are missing, or stops those that are too many."""
        running = pool.running
        wanted = pool.tell(running)
        for index in range(running, wanted):
            if self._stopping.is_set():
                return
            if not self._start_actor(pool, index):
                return
        if wanted > running:
            pool.tell(wanted)
        elif pool.tell(wanted) <= wanted:
            for index in reversed(range(wanted, running)):
                log.info("%s-%d is stopped", pool.role, index)
                pool.dismiss(index)

    def _start_actor(self, pool: ActorPool, index: int) -> bool:
        """Starts an actor; returns False if it has no place now, which is logged once."""
        if not self._without_place:
            log.info("%s-%d is started", pool.role, index)
        try:
            pool.start_actor(index)
        except Unavailable as error:
            if str(error) != self._without_place:
                self._without_place = str(error)
                log.warning("%s-%d was not started; retrying: %s", pool.role, index, error)
            return False
        self._without_place = ""
        return True
