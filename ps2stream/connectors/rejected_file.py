"""A file for what was refused for good: JSON lines, each on disk before anything follows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def append_records(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Appends the records and syncs the file. Raises OSError."""
    append_lines(path, (json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def append_lines(path: Path, lines: Iterable[str]) -> None:
    """Appends lines of JSON and syncs the file. Raises OSError."""
    with path.open("a", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
