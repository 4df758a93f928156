"""examples/systemd: the unit is one that systemd takes, hardened, of options that serve has."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ps2stream.commands.output import CODES
from ps2stream.commands.serve import serve

UNIT = Path("examples") / "systemd" / "ps2stream.service"
HARDENED = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "StateDirectoryMode": "0700",
    "UMask": "0077",
}


@pytest.fixture(scope="module")
def service(root: Path) -> dict[str, str]:
    parser = configparser.RawConfigParser(strict=True)  # a key that stands twice is an error
    parser.optionxform = str  # type: ignore[method-assign, assignment]
    parser.read_string((root / UNIT).read_text("utf-8"))
    assert parser.sections() == ["Unit", "Service", "Install"]
    return dict(parser["Service"])


def test_the_command_has_only_options_that_serve_has(service: dict[str, str]) -> None:
    program, command, *words = shlex.split(service["ExecStart"])
    assert (Path(program).name, command) == ("ps2stream", "serve")
    options = {option for parameter in serve.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= options
    state = f"/var/lib/{service['StateDirectory']}"
    assert words[words.index("--data-dir") + 1] == service["WorkingDirectory"] == state
    codes = {name: str(code) for _, code, name in CODES}
    hopeless = [codes["invalid_argument"], codes["data_directory"]]
    assert service["RestartPreventExitStatus"].split() == hopeless


def test_it_is_hardened(service: dict[str, str]) -> None:
    assert HARDENED.items() <= service.items()
    assert "MemoryDenyWriteExecute" not in service, "Numba compiles at run time"


def test_systemd_takes_it(root: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("there is no systemd-analyze here (Debian: apt-get install systemd)")
    here = Path(sys.executable).with_name("ps2stream")  # the program must exist
    text = (root / UNIT).read_text("utf-8")
    unit = tmp_path / UNIT.name
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={here}", text))
    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, unit.name in done.stderr) == (0, False), done.stderr


def test_the_operations_page_installs_it(root: Path) -> None:
    page = (root / "docs" / "operations.md").read_text("utf-8")
    assert f"cp {UNIT} /etc/systemd/system/" in page
