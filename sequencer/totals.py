"""Counters that actors tell as totals since their start, summed from a mark on."""

from __future__ import annotations

from collections.abc import Sequence


class Totals:
    """Of the counters `names`. An actor that was replaced counts from zero again."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._last: dict[int, Sequence[int]] = {}
        self._sums: list[int] | None = None

    def hear(self, actor: int, counts: Sequence[int]) -> None:
        """What the actor tells; the first time nothing is known of since when."""
        before, self._last[actor] = self._last.get(actor, counts), counts
        if self._sums is not None:
            again = any(now < then for now, then in zip(counts, before, strict=True))
            new = counts if again else [n - b for n, b in zip(counts, before, strict=True)]
            self._sums = [total + n for total, n in zip(self._sums, new, strict=True)]

    def mark(self) -> None:
        """Count from here: what is heard next of each actor is where it stands."""
        self._last.clear()
        self._sums = [0] * len(self._names)

    def since(self) -> dict[str, int]:
        """By name, since the mark; nothing without one."""
        return {} if self._sums is None else dict(zip(self._names, self._sums, strict=True))
