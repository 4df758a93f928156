"""Where the object logs and match logs of a service lie, and whose they are."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.errors import DataDirectoryError
from ps2stream.messages import Address
from ps2stream.ports import Log
from ps2stream.store.segments import SegmentLog

_KIND = {"dispatcher": "objects", "merger": "matches"}


class Logs(NamedTuple):
    """Those of a data directory."""

    data_dir: Path

    def open(self, address: Address) -> Log:
        """The log of a dispatcher or merger. Raises DataDirectoryError."""
        return SegmentLog.open(self._path(address))

    def check(self, topology: Topology) -> None:
        """Whether a service of this shape may go on with the logs. A session belongs to a
        merger and its number follows from theirs; a dispatcher's objects must be complete
        before it goes. Raises DataDirectoryError."""
        mergers = self._count("merger")
        if mergers and mergers != topology.mergers:
            raise DataDirectoryError(
                f"{self.data_dir}: its sessions are spread over {mergers} mergers, not "
                f"{topology.mergers}; start it with mergers = {mergers}"
            )
        for index in range(topology.dispatchers, self._count("dispatcher")):
            log = self.open(Address("dispatcher", index))
            left = len(ObjectLog(log).recover())
            log.close()
            if left:
                raise DataDirectoryError(
                    f"{self.data_dir}: dispatcher {index} has {left} batches that are not "
                    f"complete; start it once more with dispatchers = {index + 1} or more"
                )

    def _path(self, address: Address) -> Path:
        return self.data_dir / f"{_KIND[address.role]}-{address.index}"

    def _count(self, role: str) -> int:
        found = (p.name.rpartition("-")[2] for p in self.data_dir.glob(f"{_KIND[role]}-*"))
        return 1 + max((int(n) for n in found if n.isdigit()), default=-1)
