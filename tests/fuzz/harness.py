"""Coverage-guided fuzzing of the readers: python -m tests.fuzz.harness TARGET SECONDS

Without arguments it names the targets. Needs atheris (`make fuzz` installs it). What fails is
written to the working directory as crash-*, and TARGET FILE runs it again.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[2] / "ps2stream"


def kernels() -> list[str]:
    """Modules that Numba compiles, whose bytecode must stay as it is."""
    return [
        "ps2stream." + ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        for folder in (PACKAGE, *(child for child in PACKAGE.iterdir() if child.is_dir()))
        for file in folder.glob("*.py")
        if "numba" in file.read_text("utf-8")
    ]


def main(name: str = "", how: str = "", folder: str = "") -> None:
    """Fuzz the target for so many seconds, or run it on a file."""
    if not name:
        from tests.fuzz.readers import TARGETS

        print(*TARGETS)  # noqa: T201
    elif folder or not how.isdecimal():
        fuzz(name, how, folder)
    else:  # libFuzzer ends its process at once, and leaves files to another
        with tempfile.TemporaryDirectory(prefix="ps2stream-fuzz-") as made:
            command = [sys.executable, "-m", "tests.fuzz.harness", name, how, made]
            sys.exit(subprocess.run(command, check=False).returncode)


def fuzz(name: str, how: str, folder: str) -> None:
    """In this process, with all temporary files in `folder`."""
    import atheris

    tempfile.tempdir = folder or None
    with atheris.instrument_imports(include=["ps2stream"], exclude=kernels()):
        from tests.fuzz.readers import TARGETS, Unnoticed
    target = TARGETS[name]
    if not how.isdecimal():
        target.run(Path(how).read_bytes())
        return

    def run(data: bytes) -> None:
        with contextlib.suppress(Unnoticed):
            target.run(data)

    corpus = Path(tempfile.mkdtemp())
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={how}", "-seed=1", "-max_len=20000", "-print_final_stats=1"]
    setup: Any = atheris.Setup
    setup([sys.argv[0], *options, str(corpus)], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
