"""The windows of producers when the number of dispatchers changes: another one remembers them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from ps2stream.cluster.logs import ServiceLogs, list_dispatchers
from ps2stream.dispatcher.producers import ProducerWindows, find_owner, read_windows
from ps2stream.protocol.addresses import Address
from ps2stream.protocol.ports import Log


def move_windows(logs: ServiceLogs, dispatchers: int, opened: Mapping[int, Log]) -> None:
    """Copies windows to the logs of the dispatchers that remember their producers from now on,
    durably, unless they are there already. `opened`: the logs of all `dispatchers`, by index. Logs
    that a service with more dispatchers left are read too. Raises Unavailable."""
    made = list_dispatchers(logs.names())
    if len(made) < 2:
        return
    found: dict[int, ProducerWindows] = {}
    for index in made:
        if index in opened:
            found[index] = read_windows(opened[index], index)
            continue
        left = logs.open(Address("dispatcher", index), again=False)
        with contextlib.closing(left):
            found[index] = read_windows(left, index)
    changed: set[int] = set()
    for index, windows in list(found.items()):
        for record in windows.make_records():
            owner = find_owner(record.producer.tobytes().decode(), dispatchers)
            if owner == index:
                continue
            if found.setdefault(owner, ProducerWindows()).merge(record):
                opened[owner].append(record.encode())
                changed.add(owner)
    for owner in changed:
        opened[owner].sync()
