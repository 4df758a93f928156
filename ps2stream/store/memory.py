"""The ledger's twin in memory: for in-process use without durability, and for simulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ps2stream.messages import Applied
from ps2stream.ports import DeleteRequests
from ps2stream.tokens import Token


class MemoryStore:
    """A Store that keeps encoded frames in lists; it outlives the machine that writes it,
    so a simulated restart finds what was committed."""

    def __init__(self) -> None:
        self._log: list[bytes] = []
        self._sessions: dict[int, bytes] = {}
        self._requests: list[tuple[int, bytes]] = []
        self._tokens: Sequence[Token] = ()

    def sessions(self) -> list[tuple[int, bytes]]:
        return sorted(self._sessions.items())

    def replay(self) -> Iterator[Applied]:
        return map(Applied.decode, list(self._log))

    def requests(self) -> Iterator[DeleteRequests]:
        return (DeleteRequests.decode(blob) for _, blob in list(self._requests))

    def commit(
        self,
        batches: Sequence[Applied],
        sessions: Sequence[tuple[int, bytes]] = (),
        requests: DeleteRequests | None = None,
        forget: int = 0,
    ) -> None:
        self._log += [batch.encode() for batch in batches]
        self._sessions.update(sessions)
        if requests is not None:
            self._requests = [r for r in self._requests if r[0] >= forget]
            self._requests.append((int(requests.lsn[-1]), requests.encode()))

    def tokens(self) -> Sequence[Token]:
        return self._tokens

    def keep_tokens(self, tokens: Sequence[Token]) -> None:
        self._tokens = tuple(tokens)

    def close(self) -> None:
        """Nothing to release."""
