"""The page on matching without a service: its program prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ps2stream


def test_the_program_of_the_page_prints_what_it_says(root: Path) -> None:
    page = (root / "docs" / "howto" / "notebook.md").read_text("utf-8")
    programs = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    shown = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        program = "".join(each for each in programs if ".parquet" not in each)
        exec(compile(program, "notebook.md", "exec"), {})
    assert said.getvalue() == "".join(shown)


def test_the_files_of_the_page_are_matched(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (root / "docs" / "howto" / "notebook.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(for .*?\.parquet.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"id": ["a"], "expression": ["flood"]}), "queries.parquet")
    posts = {"lon": [0.0, 1.0], "lat": [0.0, 1.0], "text": ["flood", "sun"]}
    pq.write_table(pa.table(posts), "posts.parquet")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(program, "notebook.md", "exec"), {"ps2stream": ps2stream})
    assert said.getvalue() == "2 1 6\n"
