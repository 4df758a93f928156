"""The documentation site: it builds without a warning, holds together, and asks nobody else."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from mkdocs.config import load_config

from scripts import site as hooks
from tests.support import built_site

HOSTS = {
    "docs.bsky.app",
    "docs.kuzzle.io",
    "github.com",
    "kafka.apache.org",
    "keepachangelog.com",
    "tile38.com",
    "www.elastic.co",
    "www.postgresql.org",
    "www.ray.io",
    "www.unicode.org",
}
"""Other sites that a page may lead to."""


def leaves(nav: Any) -> list[str]:
    """The pages of a navigation."""
    if isinstance(nav, str):
        return [nav]
    values = nav.values() if isinstance(nav, dict) else nav
    return [page for value in values for page in leaves(value)]


@pytest.mark.takes_turns
def test_every_link_leads_somewhere(site: Path) -> None:
    assert built_site.problems(site) == []
    assert len(list(built_site.pages(site))) > 20


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#x">x</a><a href="c.html">c</a>')
    (tmp_path / "b.html").write_text('<p id="y"><img src="d.png"><a href="a.html">a</a>')
    assert built_site.problems(tmp_path) == [
        "a.html: b.html#x: there is no #x",
        "a.html: c.html: there is no c.html",
        "b.html: d.png: there is no d.png",
    ]


def test_nothing_is_loaded_from_another_origin(site: Path) -> None:
    for page in built_site.pages(site):
        for link in page.links:
            host = re.sub(r"^https?://([^/]+).*", r"\1", link.address)
            foreign = built_site.is_foreign(link.address)
            assert not (link.loaded and foreign), link
            assert not foreign or host in HOSTS, link
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", page.styles), page.name
        # Material would fetch a renderer for these from a CDN.
        assert not page.classes & {"mermaid", "arithmatex"}, page.name
    for style in site.rglob("*.css"):
        text = style.read_text("utf-8")
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", text), style
    assert not list(site.rglob("*.woff*"))


def test_every_picture_has_words_and_is_light(site: Path, root: Path) -> None:
    shown = [image for page in built_site.pages(site) for image in page.images]
    assert shown
    assert all(image.get("alt") for image in shown), shown
    for path in (root / "docs").rglob("*"):
        if path.suffix in (".svg", ".webp", ".png"):
            assert path.stat().st_size < 100_000, path


def test_every_page_is_in_the_navigation(root: Path) -> None:
    docs = root / "docs"
    there = sorted(str(path.relative_to(docs)) for path in docs.rglob("*.md"))
    there += hooks.PAGES.values()
    named = leaves(hooks.on_config(load_config(str(root / "mkdocs.yml")))["nav"])
    assert sorted(named) == sorted(there)


def test_links_out_of_the_docs_lead_to_pages_or_lose_themselves() -> None:
    relinked = hooks.relinked
    assert relinked("[s](../SECURITY.md#ray)", "map.md") == "[s](security.md#ray)"
    assert relinked("[s](../../SECURITY.md)", "howto/x.md") == "[s](../security.md)"
    assert relinked("[m](docs/map.md#a)", "architecture.md") == "[m](map.md#a)"
    assert relinked("[m](../map.md)", "howto/x.md") == "[m](../map.md)"
    assert relinked("see [it](../Makefile).", "map.md") == "see it."
    assert relinked("[no](../none.md)", "map.md") == "[no](../none.md)"
    assert relinked("[r](https://www.ray.io)", "map.md") == "[r](https://www.ray.io)"
