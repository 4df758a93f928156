"""`ps2stream token keep`: a token whose text comes from where secrets are kept."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from click.testing import CliRunner

from ps2stream.cli import main
from ps2stream.client.client import Client
from ps2stream.cluster.service import start
from ps2stream.config import Settings
from ps2stream.errors import PermissionDenied

ID = "0123456789abcdef"
SECRET = "00112233445566778899aabbccddeeff" * 2


def keep(
    folder: Path, text: str, *options: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    """Runs it as a pod does: settings by a file, the token in another."""
    (folder / "token").write_text(text + "\n")
    (folder / "ps2stream.toml").write_text(f'data_dir = "{folder / "data"}"\n')
    monkeypatch.setenv("PS2STREAM_CONFIG", str(folder / "ps2stream.toml"))
    found = CliRunner().invoke(main, ["token", "keep", str(folder / "token"), *options])
    assert SECRET not in found.output
    return found.exit_code, found.output


def test_it_holds_from_the_next_start_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"ps2s_{secrets.token_hex(8)}_{secrets.token_hex(32)}"
    made = keep(tmp_path, text, "--scope", "admin", monkeypatch=monkeypatch)
    assert made == (0, f"kept {text.split('_')[1]}\n")
    settings = Settings(runtime="local", port=0, workers=1, auth=True, data_dir=tmp_path / "data")
    with start(settings) as service, Client(service.targets[0], token=text) as client:
        assert [each.scopes for each in client.tokens()] == [("admin",)]
        code, said = keep(tmp_path, text, "--scope", "admin", monkeypatch=monkeypatch)
        assert code == 8, said
        with pytest.raises(PermissionDenied):
            client.publish([{"lon": 0, "lat": 0, "text": "x"}])


def test_repeating_changes_nothing_and_another_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    for scopes, tenant in (("admin", ""), ("admin", ""), ("publish,subscribe", "acme")):
        options = ["--scope", scopes, "--tenant", tenant]
        code, said = keep(tmp_path, f"ps2s_{ID}_{SECRET}", *options, monkeypatch=monkeypatch)
        assert code == 0, said
        where = ["token", "list", "--json", "--data-dir", str(tmp_path / "data")]
        [line] = CliRunner().invoke(main, where).output.splitlines()
        told = json.loads(line)
        listed.append((told["id"], told["tenant"], told["scopes"]))
    assert listed == [(ID, "", ["admin"])] * 2 + [(ID, "acme", ["publish", "subscribe"])]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "expected ps2s_, 16 hexadecimal digits, _ and 64 more"),
        (f"ps2s_{ID}_{SECRET[:-1]}", "expected ps2s_"),
        (f"ps2s_{ID}_{SECRET.upper()}", "expected ps2s_"),
        (f"ps2s_{ID}_{'01' * 32}", "its digits are not random"),
    ],
)
def test_what_is_no_token_is_refused(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = keep(tmp_path, text, "--scope", "admin", monkeypatch=monkeypatch)
    assert code == 2
    assert problem in said
    assert "01010101" not in said
    assert not (tmp_path / "data").exists()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["token", "keep", str(tmp_path / "no"), "--scope", "admin"])
    assert found.exit_code == 2
    assert "No such file" in found.output
