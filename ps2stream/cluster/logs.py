"""The object logs and match logs of a service: their names, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.errors import DataDirectoryError
from ps2stream.protocol.addresses import Address, Send
from ps2stream.protocol.ports import Log, LogNote, LogReached
from ps2stream.store.identity import LogIdentity
from ps2stream.store.places import Place

_KIND = {"dispatcher": "objects", "merger": "matches"}
REPORT_BYTES = 64 << 20
"""Of a log, after which the ledger is told how far it has come."""


def name_of(address: Address) -> str:
    """The name of the log of a dispatcher or merger."""
    return f"{_KIND[address.role]}-{address.index}"


class Logs(NamedTuple):
    """Those of a place."""

    place: Place

    def open(self, address: Address, again: bool = True) -> Log:
        """The log of a dispatcher or merger, by the service that has the ledger. Raises
        DataDirectoryError, Unavailable."""
        return self.place.open_log(name_of(address), again=again)

    def names(self) -> Sequence[str]:
        """The names of the logs that have been made."""
        return self.place.logs()

    @property
    def identified(self) -> bool:
        """Whether logs are kept apart from the ledger, so that they have identities."""
        return self.place.folder is not None

    def identity(self, name: str) -> LogIdentity | None:
        """See read_identity."""
        return self.place.log_identity(name)

    def identify(self, name: str, identity: LogIdentity) -> None:
        """See write_identity."""
        self.place.identify_log(name, identity)

    @property
    def restored(self) -> bool:
        """Whether the place was restored from a backup, and no service has used it since."""
        return self.place.restored

    def forget_restored(self) -> None:
        """A service uses it now."""
        self.place.forget_restored()

    def check(self, topology: Topology, notes: Mapping[str, LogNote]) -> None:
        """Whether a service of this shape may go on with the logs. A session belongs to a
        merger and its number follows from theirs; a dispatcher's objects must be complete
        before it goes. `notes`: the logs that the ledger knows. Raises DataDirectoryError."""
        made = self.names()
        mergers = _count("merger", [*made, *notes])
        if mergers and mergers != topology.mergers:
            raise DataDirectoryError(
                f"{self.place}: its sessions are spread over {mergers} mergers, not "
                f"{topology.mergers}; start it with mergers = {mergers}"
            )
        for index in range(topology.dispatchers, _count("dispatcher", [*made, *notes])):
            address = Address("dispatcher", index)
            if name_of(address) not in made:
                continue
            log = self.open(address, again=False)
            left = len(ObjectLog(log).recover())
            log.close()
            if left:
                raise DataDirectoryError(
                    f"{self.place}: dispatcher {index} has {left} batches that are not "
                    f"complete; start it once more with dispatchers = {index + 1} or more"
                )


class LogReporter:
    """Tells the sequencer, every REPORT_BYTES, how far a log has come."""

    def __init__(self, address: Address, log: Log) -> None:
        self._name = np.frombuffer(name_of(address).encode(), np.uint8)
        self._log = log
        self._told = log.synced

    @property
    def due(self) -> bool:
        """Whether it is time. Costs two loads and a comparison."""
        return self._log.synced - self._told >= REPORT_BYTES

    def report(self, highest: int) -> list[Send]:
        """What to send; see LogNote for `highest`."""
        self._told = self._log.synced
        return [Send(Address("sequencer", 0), LogReached(self._told, highest, self._name))]


def _count(role: str, names: Sequence[str]) -> int:
    parts = (name.rpartition("-") for name in names)
    found = (int(n) for kind, _, n in parts if kind == _KIND[role] and n.isdigit())
    return 1 + max(found, default=-1)
