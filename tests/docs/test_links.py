"""Pages as a repository shows them: every relative link leads to a file, and to a heading."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

PAPER = "Distributed Publish/Subscribe Query Processing on the Spatio-Textual Data Stream"
_CODE = re.compile(r"^(```+).*?^\1$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(\s*([^)\s]+)[^)]*\)|<(?:a href|img [^>]*src)=\"([^\"]+)\"")


def pages(root: Path) -> list[Path]:
    """The pages of the repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    return [root / name for name in listed.splitlines() if (root / name).is_file()]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", _CODE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in found}


def dead_links(root: Path, page: Path) -> list[str]:
    """Relative links of a page to files or headings that are not in the repository."""
    dead = []
    for found in _LINK.finditer(_CODE.sub("", page.read_text("utf-8"))):
        address = found[1] or found[2]
        if re.match(r"[a-z]+:", address):
            continue
        path, _, anchor = address.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_there = target.exists() and target.is_relative_to(root.resolve())
        if is_there and anchor and target.suffix == ".md":
            is_there = anchor in anchors(target)
        if not is_there:
            dead.append(f"{page.relative_to(root)}: {address}")
    return dead


def test_every_relative_link_works_on_the_repositorys_page(root: Path) -> None:
    checked = pages(root)
    assert len(checked) > 20
    assert [link for page in checked for link in dead_links(root, page)] == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One `two`, three\n")
    page = tmp_path / "a.md"
    page.write_text(
        "[a](b.md#one-two-three) [b](b.md#no)\n[c\nd](c.md) [e](#nowhere) [f](https://x.org/c.md)\n"
        "```sh\n[g](never.md)\n```\n[h](../out.md)\n"
    )
    want = ["a.md: b.md#no", "a.md: c.md", "a.md: #nowhere", "a.md: ../out.md"]
    assert dead_links(tmp_path, page) == want


def test_the_paper_is_named_as_it_is_called(root: Path) -> None:
    for name in ("README.md", "docs/index.md", "docs/explanation/algorithms.md"):
        assert PAPER in " ".join((root / name).read_text("utf-8").split()), name
    for page in pages(root):
        assert "Processing and Sharing" not in " ".join(page.read_text("utf-8").split()), page
