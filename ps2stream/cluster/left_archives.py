"""What the logs of dispatchers have that a service is started without, and their archive has not:
nobody else writes it before they are there again, and what is withdrawn would be readable until
then."""

from __future__ import annotations

import contextlib
import logging

from ps2stream.archive.layout import ArchiveLimits, dispatcher_folder, read_mark
from ps2stream.cluster.archive_writer import ArchiveWriter
from ps2stream.cluster.logs import ServiceLogs, list_dispatchers
from ps2stream.errors import InvalidArgument
from ps2stream.protocol.addresses import Address

log = logging.getLogger("ps2stream.cluster")


def finish_archives(
    logs: ServiceLogs, dispatchers: int, limits: ArchiveLimits, ledger: int
) -> None:
    """Has the archive take in all that is in the logs of dispatchers beyond the first
    `dispatchers`, as far as their folders are here: they may be on other hosts. ledger: the
    identity of the service's. A problem of the archive is logged. Raises DataDirectoryError,
    Unavailable."""
    for index in list_dispatchers(logs.names()):
        if index < dispatchers or not _is_writable(limits, index):
            continue
        address = Address("dispatcher", index)
        with contextlib.closing(logs.open(address, again=False)) as left:
            writer = ArchiveWriter(left, limits, index, logs.describe_log(address, ledger))
            with contextlib.closing(writer):
                writer.look(is_last=True)
            if writer.problem:
                log.warning(
                    "the archive lacks objects of dispatcher %d, which the service starts without, "
                    "until it is there again: %s", index, writer.problem,
                )  # fmt: skip


def _is_writable(limits: ArchiveLimits, dispatcher: int) -> bool:
    """Returns whether anything can be done. That a writer noted an end is not asked: whoever leaves
    may have logged more behind it, and been killed before the writer looked again."""
    try:
        return read_mark(dispatcher_folder(limits.path, dispatcher)) is not None
    except (OSError, InvalidArgument):
        return False  # whoever reads the archive is told
