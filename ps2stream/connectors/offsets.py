"""Offsets of a partitioned log that may be committed: pure, and of no system in particular."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

Partition = tuple[str, int]


class OffsetFlight:
    """Pieces of work under way, in the order they were read. An offset may be committed once all
    work before it is done."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Any, dict[Partition, int]]] = deque()
        self._due: dict[Partition, int] = {}
        self._ours: set[Partition] = set()

    def __len__(self) -> int:
        return len(self._under_way)

    def add(self, future: Any, ends: dict[Partition, int]) -> None:
        """Adds work whose `future` says when it is done; `ends`: the offsets after it. The result
        is None, or an error to stop with once these are committed."""
        self._under_way.append((future, ends))

    def advance(self) -> int:
        """Removes the oldest work as far as it is done; returns how many pieces. Raises what a
        piece failed or stopped with."""
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
        """Returns the future of the oldest work under way."""
        return self._under_way[0][0]

    def take(self) -> dict[Partition, int]:
        """Returns the offsets that may be committed and were not taken yet."""
        due, self._due = self._due, {}
        return due

    def put_back(self, failed: dict[Partition, int]) -> None:
        """Puts back offsets that could not be committed, unless they are no longer ours, or a
        higher one is due."""
        for key, end in failed.items():
            if key in self._ours:
                self._due[key] = max(end, self._due.get(key, 0))

    def gain(self, partitions: Iterable[Partition]) -> None:
        """Adds partitions that are ours from now on."""
        self._ours.update(partitions)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Removes partitions that are others' from now on, and their offsets with them."""
        for key in partitions:
            self._ours.discard(key)
            self._due.pop(key, None)
            for _, ends in self._under_way:
                ends.pop(key, None)
