"""What a client learns of the dispatchers of a service: where all of them listen."""

from __future__ import annotations

import threading
import time

from google.protobuf.message import DecodeError

from ps2stream.client.connection import ChannelAccess, is_local
from ps2stream.client.targets import ANYWHERE
from ps2stream.limits import DISPATCHERS
from ps2stream.v1 import pubsub_pb2

LIST_DISPATCHERS = "/ps2stream.v1.PubSub/ListDispatchers"
LISTED_S = 30.0
"""Time between two questions where the dispatchers are."""
ANSWER_S = 5.0
"""Time that a dispatcher has to answer, for which the call that asked first waits."""


class DispatcherFinder:
    """The dispatchers that a client knows: those that it was given, at first, and those that were
    listed. `targets` has all of them, by their numbers; it is only ever added to."""

    def __init__(self, access: ChannelAccess) -> None:
        self.targets = list(access.targets)
        self._access = access
        self._due = 0.0 if access.discover else float("inf")
        self._lock = threading.Lock()

    def begin_question(self) -> bool:
        """Returns whether the caller is to ask now, for all threads."""
        now = time.monotonic()
        if now < self._due:
            return False
        with self._lock:
            is_due, self._due = now >= self._due, max(self._due, now + LISTED_S)
            return is_due

    def read_answer(self, data: bytes) -> list[int]:
        """Adds what was listed to `targets`; returns the numbers of those to call from now on, none
        if the client may use none of them: a token does not travel to another machine in
        plaintext."""
        try:
            listed = pubsub_pb2.ListDispatchersResponse.FromString(data).endpoints
        except DecodeError:
            return []
        found: list[int] = []
        for endpoint in list(listed)[:DISPATCHERS]:
            target = self._locate(endpoint)
            if self._access.credentials is None and self._access.metadata and not is_local(target):
                continue
            if target not in self.targets:
                self.targets.append(target)
            found.append(self.targets.index(target))
        return found

    def _locate(self, endpoint: str) -> str:
        """Returns an endpoint with the host that the client was given where it has none of its
        own."""
        host, _, port = endpoint.rpartition(":")
        first = self._access.targets[0]
        if host not in ANYWHERE or first.startswith("unix:"):
            return endpoint
        return f"{first.rpartition(':')[0]}:{port}"
