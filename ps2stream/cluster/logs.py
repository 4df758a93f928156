"""The object logs and match logs of a service: their names, and whose they are."""

from __future__ import annotations

from typing import NamedTuple

from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.errors import DataDirectoryError
from ps2stream.messages import Address
from ps2stream.ports import Log
from ps2stream.store.places import Place

_KIND = {"dispatcher": "objects", "merger": "matches"}


class Logs(NamedTuple):
    """Those of a place."""

    place: Place

    def open(self, address: Address, again: bool = True) -> Log:
        """The log of a dispatcher or merger, by the service that has the ledger. Raises
        DataDirectoryError, Unavailable."""
        return self.place.open_log(f"{_KIND[address.role]}-{address.index}", again=again)

    def check(self, topology: Topology) -> None:
        """Whether a service of this shape may go on with the logs. A session belongs to a
        merger and its number follows from theirs; a dispatcher's objects must be complete
        before it goes. Raises DataDirectoryError."""
        mergers = self._count("merger")
        if mergers and mergers != topology.mergers:
            raise DataDirectoryError(
                f"{self.place}: its sessions are spread over {mergers} mergers, not "
                f"{topology.mergers}; start it with mergers = {mergers}"
            )
        for index in range(topology.dispatchers, self._count("dispatcher")):
            log = self.open(Address("dispatcher", index), again=False)
            left = len(ObjectLog(log).recover())
            log.close()
            if left:
                raise DataDirectoryError(
                    f"{self.place}: dispatcher {index} has {left} batches that are not "
                    f"complete; start it once more with dispatchers = {index + 1} or more"
                )

    def _count(self, role: str) -> int:
        names = (name.rpartition("-") for name in self.place.logs())
        found = (int(n) for kind, _, n in names if kind == _KIND[role] and n.isdigit())
        return 1 + max(found, default=-1)
