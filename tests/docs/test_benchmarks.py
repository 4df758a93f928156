"""docs/benchmarks.md: a figure without the commit that reached it says nothing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

COMMIT = re.compile(r"Measured at commit\s+([0-9a-f]{7,40})\b")
NAMED = re.compile(r"\bcommit\s+([0-9a-f]{7,40})\b")


def test_every_section_names_a_commit_that_there_is(root: Path) -> None:
    text = (root / "docs" / "benchmarks.md").read_text("utf-8")
    sections = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    assert len(sections) >= 8
    git = ["git", "-C", str(root)]
    shallow = subprocess.run(
        [*git, "rev-parse", "--is-shallow-repository"], capture_output=True, text=True, check=False
    )
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        assert COMMIT.search(body), title
        if shallow.stdout.strip() == "false":  # a whole clone, not an archive
            for commit in NAMED.findall(body):
                ancestor = [*git, "merge-base", "--is-ancestor", commit, "HEAD"]
                there = subprocess.run(ancestor, capture_output=True, check=False)
                assert there.returncode == 0, (title, commit)
