"""Hooks of mkdocs.yml: the guides, pages from the top of the checkout, links that leave docs/."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Files of the checkout that are pages of the site, under these names."""
GUIDES = "How-to guides"
"""The section of the navigation where every page of docs/howto/ is, named there or not."""
_LINK = re.compile(r"\[([^\]\n]*(?:\n[^\]\n]+)?)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Completes the navigation."""
    (guides,) = (part[GUIDES] for part in config["nav"] if GUIDES in part)
    named = {page for entry in guides if isinstance(entry, dict) for page in entry.values()}
    there = sorted(f"howto/{path.name}" for path in (ROOT / "docs" / "howto").glob("*.md"))
    guides += [page for page in there if page not in named]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that are outside docs/."""
    from mkdocs.structure.files import File

    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Points links to where their targets are on the site."""
    return relinked(markdown, page.file.src_uri)


def relinked(markdown: str, uri: str) -> str:
    """Returns the page at `uri` with links to files of the checkout turned into links of the
    site. A link to a file that the site does not have, such as code, keeps its words only; a link
    whose target does not exist stays as it is, so that the build refuses it."""
    source = next((name for name, made in PAGES.items() if made == uri), None)
    folder = PurePosixPath(source or f"docs/{uri}").parent

    def relink(found: re.Match[str]) -> str:
        text, path, anchor = found[1], found[2], found[3] or ""
        target = _normalise_path(folder / path)
        if target in PAGES:
            return f"[{text}]({_make_relative(uri, PAGES[target])}{anchor})"
        if target.startswith("docs/"):
            return f"[{text}]({_make_relative(uri, target.removeprefix('docs/'))}{anchor})"
        return text if (ROOT / target).exists() else found[0]

    return _LINK.sub(relink, markdown)


def _normalise_path(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop() if parts else parts.append(part)
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _make_relative(uri: str, target: str) -> str:
    return "../" * uri.count("/") + target
