"""A file for what was refused for good: JSON lines, each on disk before what follows it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def put_away(path: Path, letters: Iterable[Mapping[str, Any]]) -> None:
    """Append and sync. Raises OSError."""
    with path.open("a", encoding="utf-8") as file:
        for letter in letters:
            file.write(json.dumps(letter, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
