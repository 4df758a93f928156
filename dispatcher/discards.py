"""Whether a dispatcher with one worker needs to look objects up in H2.

There the look-up only finds the objects that go to nobody, and the terms under which no query can
be. Where nearly every object goes somewhere, it takes the dispatcher longer than it saves the
worker; so all objects go to the worker then, and one batch in PROBED is still looked up.
"""

from __future__ import annotations

PROBED = 16
FEW = 0.25
"""The share of objects that go to nobody up to which they are not looked for; set by judgement:
one that is sent in vain costs little more than its look-up."""
MEMORY = 4096
"""The objects over which the share is taken, about: what is older counts half."""


class DiscardMonitor:
    """The share of a dispatcher's objects that went to nobody, of those that were looked up."""

    def __init__(self) -> None:
        self._seen = self._discarded = 0.0
        self._batches = 0  # since the last that was looked up

    def may_skip(self) -> bool:
        """Returns whether the next batch may go to the only worker without a look-up."""
        self._batches += 1
        is_known = self._seen >= MEMORY / 4
        return is_known and self._discarded <= FEW * self._seen and self._batches < PROBED

    def note(self, objects: int, discarded: int) -> None:
        """Notes how many of the objects of a batch went to nobody."""
        self._batches = 0
        self._seen += objects
        self._discarded += discarded
        if self._seen > MEMORY:
            self._seen, self._discarded = self._seen / 2, self._discarded / 2
