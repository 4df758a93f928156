"""The status as text."""

from __future__ import annotations

from typing import Any

from ps2stream.client.answers import status_of
from ps2stream.commands.status import status_lines
from ps2stream.v1 import admin_pb2


def shown(archive: dict[str, Any] | None, problems: list[str] | None = None) -> list[str]:
    """The lines of the status of a service with this archive."""
    told = None if archive is None else admin_pb2.ArchiveStatus(**archive)
    census = admin_pb2.Census(archive=told)
    answer = admin_pb2.GetStatusResponse(version="1", census=census, problems=problems)
    return status_lines(status_of(answer))


def archive_row(archive: dict[str, Any]) -> str:
    (row,) = [line for line in shown(archive) if line.startswith("archive")]
    return row.removeprefix("archive").strip()


def test_only_a_service_with_an_archive_shows_it() -> None:
    assert not [line for line in shown(None) if "archive" in line]
    row = "0 objects, 0 B not compacted, 0 B of the logs not in it yet"
    assert archive_row({"objects": 0}) == row


def test_the_archive_shows_what_it_lacks() -> None:
    full = {"objects": 12_345, "bytes": 1 << 20, "lag_bytes": 700, "lost_objects": 1_002}
    row = "12,345 objects, 1,024 KiB not compacted, 700 B of the logs not in it yet"
    assert archive_row(full | {"lost_objects": 0}) == row
    assert archive_row(full) == f"{row}; 1,002 objects lost to it (archive show tells the gaps)"


def test_problems_come_first() -> None:
    assert shown(None)[0] == "healthy"
    assert shown(None, ["a", "b"])[:3] == ["NOT healthy", "  - a", "  - b"]
