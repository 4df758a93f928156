"""The valid objects of dispatchers that a service is started without: new queries do not meet them,
and are told so."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ps2stream.cluster.logs import ServiceLogs, list_dispatchers
from ps2stream.dispatcher.object_log import ObjectLog
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.log_records import ValidityRecord
from ps2stream.protocol.ports import Log


def note_left_out(logs: ServiceLogs, opened: Mapping[int, Log]) -> None:
    """Notes in the log of dispatcher 0, durably, up to when objects of other dispatchers are valid
    that a service with more of them left. `opened`: the logs of the dispatchers that start, by
    index. Raises Unavailable."""
    latest = 0
    for index in list_dispatchers(logs.names()):
        if index not in opened:
            with contextlib.closing(logs.open(Address("dispatcher", index), again=False)) as log:
                latest = max(latest, ObjectLog(log, index).validity.latest_end)
    if latest:
        opened[0].append(ValidityRecord(done=0, horizon=0, parts=0, left_out=latest).encode())
        opened[0].sync()
