"""The object logs and match logs of a service: their names and owners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.errors import DataDirectoryError
from ps2stream.protocol.addresses import SEQUENCER, Address, Send
from ps2stream.protocol.ports import Log, LogNote, LogReached
from ps2stream.store.identity import LogIdentity
from ps2stream.store.places import StoragePlace

_KIND = {"dispatcher": "objects", "merger": "matches"}
REPORT_BYTES = 64 << 20
"""Growth of a log after which its position is reported to the ledger."""


def name_of(address: Address) -> str:
    """Returns the name of the log of a dispatcher or merger."""
    return f"{_KIND[address.role]}-{address.index}"


class ServiceLogs(NamedTuple):
    """The logs that are stored in a place."""

    place: StoragePlace

    def open(self, address: Address, again: bool = True) -> Log:
        """Opens the log of a dispatcher or merger, for the service that has the ledger open.
        Raises DataDirectoryError, Unavailable."""
        return self.place.open_log(name_of(address), again=again)

    def names(self) -> Sequence[str]:
        """Returns the names of the logs that exist."""
        return self.place.logs()

    @property
    def identified(self) -> bool:
        """True where logs are stored apart from the ledger, so that they have identities."""
        return self.place.identifies_logs

    def identity(self, name: str) -> LogIdentity | None:
        """Reads the identity of a log; see read_identity."""
        return self.place.log_identity(name)

    def describe_log(self, address: Address, ledger: int) -> str:
        """Returns what tells the log of a dispatcher or merger from any other of its name."""
        found = self.identity(name_of(address)) if self.identified else None
        return f"{ledger:x}" if found is None else f"{found.ledger:x}-{found.incarnation:x}"

    def identify(self, name: str, identity: LogIdentity, log: Log) -> None:
        """Writes the identity of a log, which is open; see StoragePlace."""
        self.place.identify_log(name, identity, log)

    @property
    def restored(self) -> bool:
        """True if the place was restored from a backup and no service has used it since."""
        return self.place.restored

    def recorded_dispatchers(self) -> str | None:
        """Returns what the ledger notes of the number of dispatchers; see StoragePlace."""
        return self.place.recorded_dispatchers()

    def forget_restored(self) -> None:
        """Notes that a service uses the place now."""
        self.place.forget_restored()

    def check(self, topology: Topology, notes: Mapping[str, LogNote]) -> None:
        """Raises DataDirectoryError unless a service of this shape may go on with the logs.

        The number of mergers is the one that the ledger has, or, if an earlier version made it,
        that of their logs. All batches of a dispatcher must be complete before it is left out.
        `notes`: the logs that the ledger knows.
        """
        made = self.names()
        recorded = self.place.recorded_mergers()
        mergers = int(recorded or _count_actors("merger", [*made, *notes]))
        if mergers and mergers != topology.mergers:
            raise DataDirectoryError(
                f"{self.place}: its sessions are spread over {mergers} mergers, not "
                f"{topology.mergers}; start the service with mergers = {mergers}, and change their "
                "number with `ps2stream scale --mergers`"
            )
        for index in range(topology.dispatchers, _count_actors("dispatcher", [*made, *notes])):
            address = Address("dispatcher", index)
            if name_of(address) not in made:
                continue
            log = self.open(address, again=False)
            left = len(ObjectLog(log).recover())
            log.close()
            if left:
                raise DataDirectoryError(
                    f"{self.place}: dispatcher {index} has {left} batches that are not complete; "
                    f"start the service once more with dispatchers = {index + 1} or more"
                )


class LogReporter:
    """Reports the position of a log to the sequencer, every REPORT_BYTES."""

    def __init__(self, address: Address, log: Log) -> None:
        self._name = np.frombuffer(name_of(address).encode(), np.uint8)
        self._log = log
        self._reported = log.synced

    @property
    def due(self) -> bool:
        """True when a report is due. Costs two loads and a comparison."""
        return self._log.synced - self._reported >= REPORT_BYTES

    def report(self, highest: int) -> list[Send]:
        """Returns the report to send; see LogNote for `highest`."""
        self._reported = self._log.synced
        return [Send(SEQUENCER, LogReached(self._reported, highest, self._name))]


def list_dispatchers(names: Sequence[str]) -> list[int]:
    """Returns the indices of the dispatchers whose logs are among these names, in order."""
    return _list_actors("dispatcher", names)


def _count_actors(role: str, names: Sequence[str]) -> int:
    return 1 + max(_list_actors(role, names), default=-1)


def _list_actors(role: str, names: Sequence[str]) -> list[int]:
    parts = (name.rpartition("-") for name in names)
    return sorted(int(n) for kind, _, n in parts if kind == _KIND[role] and n.isdigit())
