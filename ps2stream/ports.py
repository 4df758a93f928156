"""Ports: what a machine needs from the outside world, and no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

from ps2stream.batch import I64, U8, Frame
from ps2stream.messages import Applied


@dataclasses.dataclass(frozen=True, eq=False)
class DeleteRequests(Frame):
    """The request ids of committed deletes, so that a retry finds its answer also after a
    restart: lsn of the delete, id the query's string, request the request id, a row."""

    KIND = 50
    lsn: I64
    id_off: I64
    id: U8
    request_off: I64
    request: U8


class Store(Protocol):
    """The durable ledger (contract.md 2): one total order of query updates.

    One owner at a time. Reading raises DataDirectoryError when what is stored is damaged.
    """

    def sessions(self) -> list[tuple[int, bytes]]:
        """(number, name) of every session."""
        ...

    def replay(self) -> Iterator[Applied]:
        """The committed batches in LSN order: lsn_from = last lsn_to + 1, from 1. Rows of
        queries that are long deleted may be left out; ranges and other rows stay."""
        ...

    def requests(self) -> Iterator[DeleteRequests]:
        """Remembered delete requests, oldest first."""
        ...

    def commit(
        self,
        batches: Sequence[Applied],
        sessions: Sequence[tuple[int, bytes]] = (),
        requests: DeleteRequests | None = None,
        forget: int = 0,
    ) -> None:
        """Make all of it durable, or nothing; delete requests below LSN `forget` may go.

        Raises Unavailable when it cannot; nothing of the call counts then.
        """
        ...

    def close(self) -> None: ...
