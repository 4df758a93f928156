"""The verdict: figures, and the anomalies with the events that prove them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

KINDS = {
    "lost": "a match of an acknowledged object has not come, and no gap may hold it",
    "doubled": "a match came under two numbers",
    "false": "a match came that brute force does not find",
    "after_delete": "a match came of an object accepted after the delete was acknowledged",
    "renumbered": "a number came again with another match",
    "out_of_order": "the numbers of a stream do not follow one on the other",
    "unreported_gap": "numbers were left out, and no gap was announced",
    "forgotten": "what was acknowledged before is not there",
    "backwards": "what came later in real time has the lower LSN or offset",
    "stale": "a read does not tell what was acknowledged before",
    "twice": "one operation has had two effects",
    "misplaced": "two objects or updates have the same place",
    "altered": "an object or a query came back with other contents",
    "unexpected": "a client was answered what no client should be",
    "unsettled": "the history breaks off, so that nobody knows what would have come",
}
SHOWN = 5
"""Examples of each kind."""


@dataclass
class Verdict:
    """`anomalies` by kind, of which there are none where the promises were kept."""

    figures: Counter[str] = field(default_factory=Counter)
    anomalies: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return not self.anomalies

    def report(self, kind: str, why: str, *events: object, count: int = 1) -> None:
        """An anomaly of one of KINDS, with the events from which it follows."""
        assert kind in KINDS
        self.anomalies[kind] += count
        shown = self.examples.setdefault(kind, [])
        if len(shown) < SHOWN:
            shown.append({"why": why, "events": [str(each) for each in events]})

    def to_dict(self) -> dict[str, Any]:
        return {
            "held": self.held,
            **dict(sorted(self.figures.items())),
            "anomalies": dict(sorted(self.anomalies.items())),
            "examples": self.examples,
        }
