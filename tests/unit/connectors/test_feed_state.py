"""ps2stream/connectors/feed_state.py: one file, whole or as it was, of one source and process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ps2stream.connectors.feed_state import SourceState
from ps2stream.errors import FailedPrecondition, InvalidArgument


def test_values_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state"
    state = SourceState(path, "a")
    state.values["seen"] = {"é": [1, 2]}
    state.save()
    state.close()
    again = SourceState(path, "a")
    assert again.values == {"seen": {"é": [1, 2]}}
    assert path.stat().st_mode & 0o77 == 0
    again.close()


def test_without_a_path_nothing_is_kept() -> None:
    state = SourceState(None, "a")
    state.save()
    state.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    state = SourceState(tmp_path / "state", "a")
    with pytest.raises(FailedPrecondition, match="another process"):
        SourceState(tmp_path / "state", "a")
    state.close()
    SourceState(tmp_path / "state", "a").close()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not a state of a source"),
        ("[" * 100_000, "not a state of a source"),
        ("[]", "not a state of this version"),
        ('{"format": 9}', "not a state of this version"),
        ('{"format": 1, "source": "b"}', "belongs to 'b', not to 'a'"),
    ],
)
def test_another_file_is_refused_and_left_as_it_is(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "state"
    path.write_text(content)
    for _ in range(2):  # the lock of the first is gone
        with pytest.raises(InvalidArgument, match=problem):
            SourceState(path, "a")
    assert path.read_text() == content


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot write"):
        SourceState(tmp_path / "none" / "state", "a")
