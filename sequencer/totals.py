"""Counters that actors report as totals since their start, summed from a mark on."""

from __future__ import annotations

from collections.abc import Sequence


class CounterTotals:
    """Sums the counters `names`. An actor that was replaced counts from zero again."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._last: dict[int, Sequence[int]] = {}
        self._sums: list[int] | None = None

    def hear(self, actor: int, counts: Sequence[int]) -> None:
        """Takes an actor's totals. The first ones after the mark only show where it stands."""
        before, self._last[actor] = self._last.get(actor, counts), counts
        if self._sums is not None:
            again = any(now < then for now, then in zip(counts, before, strict=True))
            new = counts if again else [n - b for n, b in zip(counts, before, strict=True)]
            self._sums = [total + n for total, n in zip(self._sums, new, strict=True)]

    def mark(self) -> None:
        """Starts to count anew, from the totals that each actor reports next."""
        self._last.clear()
        self._sums = [0] * len(self._names)

    def since(self) -> dict[str, int]:
        """Returns the sums since the mark, by name; an empty dict without a mark."""
        return {} if self._sums is None else dict(zip(self._names, self._sums, strict=True))
