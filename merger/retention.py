"""Retention of the match log, by chapters with a checkpoint at their start.

The records before a chapter can be dropped once no session needs a pair of them: the checkpoint
holds everything else. A log that exceeds its bytes or its time loses the oldest chapter, and a
session that still needs pairs of that chapter has a gap.
"""

from __future__ import annotations

from typing import NamedTuple


class LogChapter(NamedTuple):
    """A chapter's position in the log, and when it began (Unix ms; 0: not known)."""

    position: int
    began: int


class LogRetention:
    """The chapters of a log, the newest of which grows."""

    def __init__(
        self,
        chapters: list[LogChapter],
        retention_bytes: int,
        retention_ms: int,
        chapter_bytes: int,
    ) -> None:
        self._chapters = chapters
        self._bytes = retention_bytes
        self._ms = retention_ms
        self._chapter_bytes = min(chapter_bytes, retention_bytes // 4)

    def is_chapter_due(self, end: int, now: int) -> bool:
        """Tells whether it is time for a new chapter, in a log that goes to `end`."""
        position, began = self._chapters[-1]
        if end == position or not began:
            self._chapters[-1] = LogChapter(position, now)
            return False
        return end - position >= self._chapter_bytes or now - began >= self._ms // 8

    def begin_chapter(self, position: int, now: int) -> None:
        self._chapters.append(LogChapter(position, now))

    def find_expired_position(self, end: int, now: int) -> int | None:
        """Returns the position before which the log is too large or too old, if there is one."""
        at = 0
        for this, following in zip(self._chapters[:-1], self._chapters[1:], strict=True):
            if end - this.position <= self._bytes and now - following.began <= self._ms:
                break
            at += 1
        return self._chapters[at].position if at else None

    def find_trim_position(self, needed: int) -> int | None:
        """Returns the start of the chapter that has `needed`, if there are chapters before it."""
        first = [i for i, chapter in enumerate(self._chapters) if chapter.position <= needed]
        return self._chapters[first[-1]].position if first and first[-1] else None

    def drop_chapters(self, before: int) -> None:
        """Drops the chapters that begin before this position."""
        self._chapters = [c for c in self._chapters if c.position >= before]

    @property
    def has_old_chapters(self) -> bool:
        return len(self._chapters) > 1
