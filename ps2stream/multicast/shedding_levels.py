"""How much load is shed: levels, and the buffer whose fullness moves them (S3-TM, 5.2.2;
algorithms.md 2.6).

The buffer of objects that wait to be sent has three segments. While it is in the first, `ideal`,
the level goes down, and beyond the second, `stable`, in `overload`, it goes up: one level a step,
one step a second. A level is the largest number of workers that an object is sent to.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

from ps2stream.errors import invalid

BufferSegment = Literal["ideal", "stable", "overload"]
FIRST_TARGETS, TARGETS_STEP, HIGHEST_LEVEL = 7.0, 6.0 / 7.0, 8
"""Workers of an object at level 1, and how many fewer at each further one: 1 at level 8."""


def targets_at(level: int) -> float:
    """Returns the most workers of an object at a level: infinity at 0, 7 at 1, 1 at 8. A fraction
    is the probability of one more. Raises InvalidArgument for another level."""
    if not 0 <= level <= HIGHEST_LEVEL:
        raise invalid("level", f"expected 0 to {HIGHEST_LEVEL}, got {level}")
    return FIRST_TARGETS - (level - 1) * TARGETS_STEP if level else float("inf")


class BufferSegments(NamedTuple):
    """Where the segments end, in objects that wait: `ideal` at bi, `stable` at b = bi + bs."""

    ideal_end: float
    stable_end: float

    def find(self, waiting: float) -> BufferSegment:
        """Returns the segment that so many waiting objects reach."""
        if waiting <= self.ideal_end:
            return "ideal"
        return "stable" if waiting <= self.stable_end else "overload"


def divide_buffer(stable_end: float, loads: Sequence[float]) -> BufferSegments:
    """Returns the segments of a buffer of b objects: bi / b is the least L(l) / L(l - 1).

    loads: what an object costs the most loaded worker at each level from 0 on, L. One level less
    makes a queue at most L(l - 1) / L(l) times as long, so an ideal one does not become an
    overloaded one, nor the reverse. (Equations 8 and 9 of the paper contradict each other; this
    follows from their purpose.) Raises InvalidArgument for loads that are not positive.
    """
    if len(loads) < 2 or min(loads) <= 0:
        raise invalid("loads", f"expected at least two positive loads, got {list(loads)}")
    share = min(after / before for before, after in itertools.pairwise(loads))
    return BufferSegments(stable_end * min(share, 1.0), stable_end)


@dataclasses.dataclass
class SheddingLevel:
    """The level of one dispatcher, a machine without a clock: `step` is called once a second."""

    segments: BufferSegments
    level: int = 0
    _segment: BufferSegment | None = None
    _waiting: float = 0.0

    @property
    def targets(self) -> float:
        """The most workers of an object now."""
        return targets_at(self.level)

    def step(self, waiting: float) -> int:
        """Takes the number of objects that wait, and returns the level from now on. In the same
        segment as at the last step it moves again only if the buffer has not moved the right way
        by itself: has not become emptier in overload, or fuller in ideal."""
        segment = self.segments.find(waiting)
        stays = segment == self._segment
        if segment == "overload" and not (stays and waiting < self._waiting):
            self.level = min(self.level + 1, HIGHEST_LEVEL)
        elif segment == "ideal" and not (stays and waiting > self._waiting):
            self.level = max(self.level - 1, 0)
        self._segment, self._waiting = segment, waiting
        return self.level
