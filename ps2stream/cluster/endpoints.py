"""Where clients reach the dispatchers of a service of Ray actors."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ps2stream.cluster.actor_home import ActorHome, here
from ps2stream.cluster.intervals import READY_S
from ps2stream.cluster.running_service import find_port, target
from ps2stream.config import Settings
from ps2stream.errors import Unavailable

log = logging.getLogger("ps2stream.cluster")


class DispatcherEndpoints:
    """The gRPC endpoints of dispatchers. `find_socket` returns the path of a second endpoint of a
    dispatcher, if it should have one; `get_result` waits for a call of an actor."""

    def __init__(
        self,
        settings: Settings,
        find_socket: Callable[[int], Path | None],
        get_result: Callable[[Any], Any],
    ) -> None:
        self._settings = settings
        self._find_socket = find_socket
        self._get_result = get_result
        self._ports: dict[int, int] = {}
        self._targets: dict[int, str] = {}
        self._refusal = ""  # the last one that was logged

    def __contains__(self, dispatcher: int) -> bool:
        """Returns whether this dispatcher, or an incarnation before it, has listened."""
        return dispatcher in self._targets

    @property
    def targets(self) -> list[str]:
        """HOST:PORT of those that have listened, by their numbers."""
        return [found for _, found in sorted(self._targets.items())]

    def open(self, dispatcher: int, actor: Any, home: ActorHome | None) -> None:
        """Opens the endpoint of a dispatcher at its earlier port, if any. Raises InvalidArgument
        if it is in use."""
        settings = self._settings
        port = self._ports.get(dispatcher, find_port(settings, dispatcher))
        where = settings.host, port, settings.security, self._find_socket(dispatcher)
        port = self._ports[dispatcher] = self._get_result(actor.serve.remote(*where))
        before = self._targets.get(dispatcher)
        now = self._targets[dispatcher] = target(settings.host, port, home or here())
        if before not in (None, now):
            log.warning("dispatcher-%d now listens at %s", dispatcher, now)

    def forget(self, dispatcher: int) -> None:
        """Forgets the endpoint of a dispatcher that has left. Another one of its number listens at
        the same port again, if there ever is one."""
        self._targets.pop(dispatcher, None)

    def announce(self, dispatchers: Sequence[Any]) -> list[str]:
        """Lets these actors know where clients reach the dispatchers, and returns that."""
        targets = self.targets
        for dispatcher in dispatchers:
            dispatcher.locate.remote(targets)
        return targets

    def note_refusal(self, dispatcher: int, error: Exception) -> None:
        """Logs, once, that the endpoint of a dispatcher could not be opened for now."""
        if str(error) != self._refusal:
            self._refusal = str(error)
            log.warning("dispatcher-%d has no endpoint; retrying: %s", dispatcher, error)

    def is_ready(self, actor: Any) -> bool:
        """Returns whether a dispatcher may serve."""
        return bool(self._get_result(actor.ready.remote()))

    def await_ready(self, actor: Any) -> None:
        """Waits until a dispatcher may serve. Raises Unavailable after READY_S."""
        deadline = time.monotonic() + READY_S
        while not self.is_ready(actor):
            if time.monotonic() > deadline:
                raise Unavailable(f"the ledger was not replayed within {READY_S:.0f} s")
            time.sleep(0.02)
