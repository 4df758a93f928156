"""Coverage-guided fuzzing of the readers: python -m tests.fuzz.harness TARGET SECONDS

Without arguments it names the targets. Needs atheris (`make fuzz` installs it). What fails is
written to the working directory as crash-*, and TARGET FILE runs it again.
"""

from __future__ import annotations

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


def main(name: str = "", how: str = "") -> None:
    """Fuzz the target for so many seconds, or run it on a file."""
    if not name:
        from tests.fuzz.readers import TARGETS

        print(*TARGETS)  # noqa: T201
        return
    import atheris

    with atheris.instrument_imports(include=["ps2stream"], exclude=kernels()):
        from tests.fuzz.readers import TARGETS
    target = TARGETS[name]
    if not how.isdecimal():
        target.run(Path(how).read_bytes())
        return
    held = tempfile.TemporaryDirectory(prefix=f"ps2stream-fuzz-{name}-")
    corpus = Path(held.name)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [f"-max_total_time={how}", "-seed=1", "-max_len=20000", "-print_final_stats=1"]
    setup: Any = atheris.Setup
    setup([sys.argv[0], *options, str(corpus)], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
