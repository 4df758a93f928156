"""Writes the synchronous client from the asynchronous one, module by module.

python scripts/sync_client.py
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

CLIENT = Path(__file__).resolve().parent.parent / "ps2stream" / "client"
MODULES = ("caller", "admin", "client", "subscription")
NAMES = {
    "AsyncReports": "Reports",
    "AsyncBatches": "Batches",
    "AsyncCall": "Call",
    "AsyncChannel": "Channel",
    "AsyncStream": "Stream",
    "AsyncEvent": "Event",
    "AsyncLock": "Lock",
    "AsyncCaller": "Caller",
    "AsyncAdminCaller": "AdminCaller",
    "AsyncClient": "Client",
    "AsyncSubscription": "Subscription",
    "async_sleep": "sleep",
    "aiter": "iter",
    **{f"async_{name}": name for name in (*MODULES, "channel")},
}
# What docstrings and messages say otherwise of the synchronous client. Each must be found.
PHRASES = {
    "asynchronous client": "synchronous client",
    "or several, for one event loop.": "or several. It may be used by several threads.",
    "however many batches later": "from any thread and however\n        many batches later",
    "The stream opens in `async with`, or when it is first read.": "The stream is open when this "
    "returns.",
}


def convert_modules() -> dict[str, str]:
    """Returns the source of each module of the synchronous client by its name."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "async"), Path(folder, "sync")
        source.mkdir()
        for name in MODULES:
            (source / f"{name}.py").write_text((CLIENT / f"async_{name}.py").read_text())
        rule = unasync.Rule(f"{source}/", f"{target}/", additional_replacements=NAMES)
        unasync.unasync_files([str(source / f"{name}.py") for name in MODULES], [rule])
        found = {name: (target / f"{name}.py").read_text() for name in MODULES}
    return {name: _convert_prose(text, name) for name, text in found.items()}


def _convert_prose(text: str, name: str) -> str:
    for phrase, other in PHRASES.items():
        pattern = r"\s+".join(map(re.escape, phrase.split()))
        text = re.sub(pattern, other, text)
    text = re.sub(r"\basync (with|for)\b|\bawait ", lambda m: m[1] or "", text)
    text = re.sub("|".join(NAMES), lambda m: NAMES[m[0]], text)
    head = f"# Written from async_{name}.py by scripts/sync_client.py: change that one.\n"
    for step in (("check", "--fix", "--quiet", "--select", "I,F401", "-"), ("format", "-")):
        command = [sys.executable, "-m", "ruff", *step, f"--stdin-filename={CLIENT / name}.py"]
        text = subprocess.run(
            command, input=text, capture_output=True, text=True, check=True
        ).stdout
    return head + text


def main() -> None:
    for name, text in convert_modules().items():
        (CLIENT / f"{name}.py").write_text(text)


if __name__ == "__main__":
    main()
