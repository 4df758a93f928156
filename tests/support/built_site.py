"""A built site, read: its pages, their links, and what they load."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

LOADED = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "input": "src",
    "link": "href", "object": "data", "script": "src", "source": "src", "track": "src",
    "use": "href", "video": "src",
}  # fmt: skip
"""Attributes whose address a browser asks for by itself."""
KEPT = {"canonical", "next", "prev"}
"""A link's `rel` that makes a browser load nothing."""


class Link(NamedTuple):
    """An address in a page; loaded: a browser asks for it by itself."""

    page: str
    tag: str
    address: str
    loaded: bool


class Page(HTMLParser):
    """The addresses and the anchors of a page of HTML."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__()
        self.name = name
        self.anchors: set[str] = set()
        self.links: list[Link] = []
        self.images: list[dict[str, str | None]] = []
        self.styles = ""
        self.classes: set[str] = set()
        self._style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        self.classes |= set((found.get("class") or "").split())
        self.styles += found.get("style") or ""
        self._style = tag == "style"
        if tag == "img":
            self.images.append(found)
        for address in (found.get(LOADED.get(tag, "")), *_set(found.get("srcset"))):
            if address and not (tag == "link" and found.get("rel") in KEPT):
                self.links.append(Link(self.name, tag, address, loaded=True))
        if tag in ("a", "area") and (address := found.get("href")):
            self.links.append(Link(self.name, tag, address, loaded=False))

    def handle_endtag(self, tag: str) -> None:
        self._style = False

    def handle_data(self, data: str) -> None:
        if self._style:
            self.styles += data


def pages(site: Path) -> Iterator[Page]:
    """Every page of HTML."""
    for path in sorted(site.rglob("*.html")):
        yield Page(str(path.relative_to(site)), path.read_text("utf-8"))


def is_foreign(address: str) -> bool:
    """Whether another origin would be asked. Data in the address itself asks nobody."""
    parts = urlsplit(address)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def problems(site: Path) -> list[str]:
    """Links of the site to pages, files and anchors that it does not have."""
    found = {page.name: page for page in pages(site)}
    out = []
    for page in found.values():
        for link in page.links:
            if is_foreign(link.address) or link.address.startswith("data:"):
                continue
            parts = urlsplit(link.address)
            here = Path() if parts.path.startswith("/") else Path(page.name).parent
            name = page.name if not parts.path else _normal(here, unquote(parts.path).lstrip("/"))
            if parts.path in (".", "./", "..", "../") or name.endswith("/"):
                name = _normal(Path(name), "index.html")
            if not (site / name).is_file():
                out.append(f"{page.name}: {link.address}: there is no {name}")
            elif parts.fragment and name in found:
                anchor = unquote(parts.fragment)
                if anchor not in found[name].anchors:
                    out.append(f"{page.name}: {link.address}: there is no #{anchor}")
    return out


def _set(value: str | None) -> list[str]:
    return [part.split()[0] for part in (value or "").split(",") if part.strip()]


def _normal(folder: Path, path: str) -> str:
    parts: list[str] = []
    for part in (folder / path).parts:
        if part == "..":
            parts.pop() if parts else parts.append(part)
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
