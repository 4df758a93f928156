"""Coverage-guided fuzzing of the readers: python -m tests.fuzz.harness [TARGET] SECONDS

Without a target it fuzzes each in turn. Needs atheris (`make fuzz` installs it). What fails is
written to the working directory as crash-*, and TARGET FILE runs it again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.readers import Target

PACKAGE = Path(__file__).resolve().parents[2] / "ps2stream"


def kernels() -> list[str]:
    """Modules that Numba compiles, whose bytecode must stay as it is."""
    return [
        "ps2stream." + ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        for folder in (PACKAGE, *(child for child in PACKAGE.iterdir() if child.is_dir()))
        for file in folder.glob("*.py")
        if "numba" in file.read_text("utf-8")
    ]


def main(name: str, how: str = "") -> None:
    """Fuzz the target, or each in turn, for so many seconds, or run it on a file."""
    import atheris

    with atheris.instrument_imports(include=["ps2stream"], exclude=kernels()):
        from tests.fuzz.readers import TARGETS
    if how and not how.isdecimal():
        TARGETS[name].run(Path(how).read_bytes())
        return
    for each in [name] if how else TARGETS:
        print(f"== {each}, {how or name} s", flush=True)  # noqa: T201
        # libFuzzer ends its process at once, and leaves files to another.
        with tempfile.TemporaryDirectory(prefix="ps2stream-fuzz-") as folder:
            if (child := os.fork()) == 0:
                fuzz(TARGETS[each], how or name, folder)
            if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                sys.exit(code)


def fuzz(target: Target, seconds: str, folder: str) -> None:
    """In this process, with all temporary files in `folder`."""
    import atheris

    from tests.fuzz.readers import Unnoticed

    tempfile.tempdir = folder

    def run(data: bytes) -> None:
        with contextlib.suppress(Unnoticed):
            target.run(data)

    corpus = Path(tempfile.mkdtemp())
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", "-seed=1", "-max_len=20000", "-print_final_stats=1"]
    setup: Any = atheris.Setup
    setup([sys.argv[0], *options, str(corpus)], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
