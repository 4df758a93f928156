"""The upkeep of what an archive knows of withdrawn objects: lines that no file needs any more are
removed, and lines that cannot be read are reported."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from ps2stream.archive.layout import COMPACTED, WITHDRAWN, RawFile, read_manifest
from ps2stream.errors import Ps2StreamError
from ps2stream.store.directory import lock_directory, replace_file

log = logging.getLogger("ps2stream.cluster")
UPKEEP_S = 60.0


class WithdrawalUpkeep:
    """Looks after the lines of dispatcher `partition`, in `folder` of the archive `root`.
    `damaged` is the number of lines that could not be read at the last look."""

    def __init__(
        self, root: Path, folder: Path, partition: int, clock_ms: Callable[[], int]
    ) -> None:
        self.damaged = 0
        self._root = root
        self._path = folder / WITHDRAWN
        self._partition = partition
        self._clock_ms = clock_ms
        self._looked_ms = 0

    def look(self, files: Sequence[RawFile]) -> None:
        """Does what is due, now and then; `files` are those of the dispatcher, written or not.
        Lines are removed only while nobody compacts the archive: what is being compacted may need
        them. Raises OSError."""
        now = self._clock_ms()
        if 0 <= now - self._looked_ms < UPKEEP_S * 1000 or not self._path.exists():
            return
        self._looked_ms = now
        with contextlib.suppress(Ps2StreamError):  # it is compacted just now, or damaged
            self._report_damage()
            self._remove_needless(files)

    def _report_damage(self) -> None:
        from ps2stream.archive.withdrawn import describe_damage, find_damaged

        numbers = find_damaged(self._path)
        if len(numbers) > self.damaged:
            log.warning("%s", describe_damage(self._path, numbers))
        self.damaged = len(numbers)

    def _remove_needless(self, files: Sequence[RawFile]) -> None:
        from ps2stream.archive import departed, withdrawn

        def find_needless() -> tuple[int, int]:
            manifest = read_manifest(self._root)
            others = departed.find_first_rows(self._root, manifest, but=self._partition)
            needed = withdrawn.find_needed(manifest, self._partition, files, others)
            return withdrawn.find_needless(self._path, needed)

        if find_needless() == (0, 0):
            return
        with contextlib.closing(lock_directory(self._root / COMPACTED)):
            number, end = find_needless()
            if end:
                withdrawn.remove_lines(self._path, number, end, replace_file)
