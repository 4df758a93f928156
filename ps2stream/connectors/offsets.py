"""Which offsets of a partitioned log may be committed: pure, and of no system in particular."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

Partition = tuple[str, int]


class Flight:
    """Pieces of work under way, in the order they were read. What is committed is what all
    before it is done, too."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Any, dict[Partition, int]]] = deque()
        self._due: dict[Partition, int] = {}
        self._ours: set[Partition] = set()

    def __len__(self) -> int:
        return len(self._under_way)

    def add(self, future: Any, ends: dict[Partition, int]) -> None:
        """Work whose `future` says when it is done; `ends`: the offsets after it. Its result is
        None, or an error to stop with once these are committed."""
        self._under_way.append((future, ends))

    def advance(self) -> int:
        """Look for what is done; how many pieces. Raises what the first failed or stopped with."""
        count = 0
        while self._under_way and self._under_way[0][0].done():
            future, ends = self._under_way[0]
            error = future.result()
            self._under_way.popleft()
            self._due.update(ends)
            if error is not None:
                raise error
            count += 1
        return count

    def first(self) -> Any:
        """The future of the oldest work under way."""
        return self._under_way[0][0]

    def take(self) -> dict[Partition, int]:
        """What may be committed and was not taken yet."""
        due, self._due = self._due, {}
        return due

    def put_back(self, failed: dict[Partition, int]) -> None:
        """What could not be committed, as far as it is still ours and the highest."""
        for key, end in failed.items():
            if key in self._ours:
                self._due[key] = max(end, self._due.get(key, 0))

    def gain(self, partitions: Iterable[Partition]) -> None:
        """We deal with these from now on."""
        self._ours.update(partitions)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Others deal with these from now on: their offsets are theirs."""
        for key in partitions:
            self._ours.discard(key)
            self._due.pop(key, None)
            for _, ends in self._under_way:
                ends.pop(key, None)
