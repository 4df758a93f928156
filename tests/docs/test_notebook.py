"""The page on matching without a service: its program prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path


def test_the_program_of_the_page_prints_what_it_says(root: Path) -> None:
    page = (root / "docs" / "howto" / "notebook.md").read_text("utf-8")
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "notebook.md", "exec"), {})
    assert said.getvalue() == shown
