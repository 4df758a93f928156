"""What `publish` says of members that are no attributes, or not of the type that was meant."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.commands.output import CommandOutput

ADVICE = "ps2stream: columns of CSV are published as text; for numbers: --attributes"


class ClientStub:
    """Takes what is published."""

    def publish(self, objects: Any) -> None:
        assert objects


@contextmanager
def connect(*_: Any) -> Any:
    yield ClientStub()


@pytest.mark.parametrize(
    ("suffix", "text", "said"),
    [
        ("csv", "lat,lon,text,mag\n1,2,x,high\n", ""),
        ("csv", "lat,lon,text\n1,2,x\n", ""),
        (
            "csv",
            "lat,lon,text,mag,at\n1,2,x,4.5,now\n",
            f"{ADVICE} mag:number,at\n",
        ),
        (
            "jsonl",
            '{"lat": 1, "lon": 2, "text": "x", "a\\nb": [], "c": {}, "mag": "4.5"}',
            "ps2stream: left out, as no attributes: a b (an array), c (an object)\n",
        ),
    ],
)
def test_notes_go_to_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, text: str, said: str
) -> None:
    monkeypatch.setattr(CommandOutput, "connect", connect)
    path = tmp_path / f"posts.{suffix}"
    path.write_text(text)
    done = CliRunner().invoke(main, ["publish", str(path)])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("published 1 object")
    assert done.stderr == said
    done = CliRunner().invoke(main, ["publish", str(path), "--attributes", "x:y"])
    assert (done.exit_code, "attributes.x: expected a type of" in done.stderr) == (2, True)
