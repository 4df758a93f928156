"""How long the match log is kept: chapters, each with a checkpoint at its start.

What lies before a chapter can go once no session needs a pair of it: all that is needed of
its beginning is in the checkpoint. A log that grows beyond its bytes or its time loses the
oldest chapter, and who needs pairs of that has a gap.
"""

from __future__ import annotations

from typing import NamedTuple


class Chapter(NamedTuple):
    """Where it starts, and when it did (Unix ms; 0: not known)."""

    position: int
    began: int


class Retention:
    """The chapters of a log, the newest of which grows."""

    def __init__(
        self, chapters: list[Chapter], retention_bytes: int, retention_ms: int, chapter_bytes: int
    ) -> None:
        self._chapters = chapters
        self._bytes = retention_bytes
        self._ms = retention_ms
        self._chapter_bytes = min(chapter_bytes, retention_bytes // 4)

    def due(self, end: int, now: int) -> bool:
        """Whether it is time for a new chapter, where the log goes to `end`."""
        position, began = self._chapters[-1]
        if end == position or not began:
            self._chapters[-1] = Chapter(position, now)
            return False
        return end - position >= self._chapter_bytes or now - began >= self._ms // 8

    def begin(self, position: int, now: int) -> None:
        self._chapters.append(Chapter(position, now))

    def overdue(self, end: int, now: int) -> int | None:
        """The position before which pairs have been kept long enough, if there is one."""
        at = 0
        for this, following in zip(self._chapters[:-1], self._chapters[1:], strict=True):
            if end - this.position <= self._bytes and now - following.began <= self._ms:
                break
            at += 1
        return self._chapters[at].position if at else None

    def spare(self, needed: int) -> int | None:
        """The start of the chapter in which `needed` lies, if chapters lie before."""
        first = [i for i, chapter in enumerate(self._chapters) if chapter.position <= needed]
        return self._chapters[first[-1]].position if first and first[-1] else None

    def forget(self, before: int) -> None:
        """The chapters before this one have gone."""
        self._chapters = [c for c in self._chapters if c.position >= before]

    @property
    def several(self) -> bool:
        return len(self._chapters) > 1
