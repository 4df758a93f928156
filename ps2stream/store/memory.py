"""The ledger's twin in memory: for in-process use without durability, and for simulation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from ps2stream.errors import Unavailable
from ps2stream.protocol.messages.updates import LedgerBatch
from ps2stream.protocol.ports import LedgerChange, LogNote, NamedUpdates, SettledAnswer
from ps2stream.protocol.tokens import Token


class MemoryStore:
    """A Store that keeps encoded frames in lists; it outlives the machine that writes it,
    so a simulated restart finds what was committed. `refusing`: why no commit succeeds, if so."""

    def __init__(self) -> None:
        self._log: list[bytes] = []
        self._sessions: dict[int, bytes] = {}
        self._requests: list[tuple[int, bytes]] = []
        self._answers: dict[tuple[int, int, int], SettledAnswer] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._watermark = 0
        self._tokens: Sequence[Token] = ()
        self._notes: dict[str, LogNote] = {}
        self._pending = ""
        self.refusing = ""

    @property
    def identity(self) -> int:
        return 1

    def sessions(self) -> list[tuple[int, bytes]]:
        return sorted(self._sessions.items())

    def replay(self, after: int = 0) -> Iterator[LedgerBatch]:
        return map(LedgerBatch.decode, self._log[self._find_batch(after + 1) :])

    def requests(self) -> Iterator[NamedUpdates]:
        return (NamedUpdates.decode(blob) for _, blob in list(self._requests))

    def answers(self) -> list[SettledAnswer]:
        return list(self._answers.values())

    @property
    def watermark(self) -> int:
        return self._watermark

    @property
    def lsn(self) -> int:
        return LedgerBatch.decode(self._log[-1]).lsn_to if self._log else 0

    def pending_plan(self) -> str:
        return self._pending

    def log_notes(self) -> dict[str, LogNote] | None:
        return self._notes

    def note_logs(self, notes: Mapping[str, LogNote]) -> None:
        self._check_writable()
        self._notes = dict(notes)

    def epoch(self, role: str, index: int) -> int:
        self._check_writable()
        epoch = self._epochs[role, index] = self._epochs.get((role, index), 0) + 1
        return epoch

    def commit(self, change: LedgerChange) -> None:
        self._check_writable()
        if change.batch is not None:
            self._log.append(change.batch.encode())
        self._sessions.update(change.sessions)
        if change.requests is not None:
            self._requests = [r for r in self._requests if r[0] >= change.forget]
            self._requests.append((change.requests.last, change.requests.encode()))
        for dispatcher, epoch, _, settled, _ in change.answers:
            for key in [
                k for k in self._answers if k[0] == dispatcher and k[1:] < (epoch, settled)
            ]:
                del self._answers[key]
        self._answers.update((answer[:3], answer) for answer in change.answers)
        self._watermark = max(self._watermark, change.watermark)
        self._pending = self._pending if change.pending is None else change.pending

    def replace(self, batch: LedgerBatch) -> None:
        self._check_writable()
        span = slice(self._find_batch(batch.lsn_from), self._find_batch(batch.lsn_to) + 1)
        self._log[span] = [batch.encode()]

    def _find_batch(self, lsn: int) -> int:
        """Returns the index of the first batch that ends at this LSN or above it."""
        return bisect_left(self._log, lsn, key=lambda blob: LedgerBatch.decode(blob).lsn_to)

    def find_problem(self) -> str:
        return self.refusing

    def tokens(self) -> Sequence[Token]:
        return self._tokens

    def keep_tokens(self, tokens: Sequence[Token]) -> None:
        self._tokens = tuple(tokens)

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def _check_writable(self) -> None:
        if self.refusing:
            raise Unavailable(self.refusing)


class MemoryLog:
    """A Log that keeps its records in a list."""

    def __init__(self) -> None:
        self._at: list[int] = []
        self._records: list[bytes] = []
        self.end = 0

    @property
    def first(self) -> int:
        return self._at[0] if self._at else self.end

    def append(self, record: bytes) -> int:
        self._at.append(self.end)
        self._records.append(record)
        self.end += len(record) + 1
        return self._at[-1]

    @property
    def synced(self) -> int:
        return self.end

    def sync(self) -> int:
        return self.end

    def read(self, position: int) -> bytes:
        i = bisect_left(self._at, position)
        if i == len(self._at) or self._at[i] != position:
            raise KeyError(position)
        return self._records[i]

    def scan(self, start: int = 0) -> Iterator[tuple[int, bytes]]:
        i = bisect_left(self._at, start)
        return iter(list(zip(self._at[i:], self._records[i:], strict=True)))

    def trim(self, before: int) -> None:
        i = bisect_left(self._at, before)
        del self._at[:i], self._records[:i]

    @property
    def problem(self) -> str:
        return ""

    @property
    def bytes(self) -> int:
        return self.end - self.first

    def close(self) -> None:
        """Does nothing: there is nothing to release."""
