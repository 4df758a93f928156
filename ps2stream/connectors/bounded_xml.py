"""XML of strangers: no DTD, no entities, and bounds on depth and on the number of elements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element, ParseError, TreeBuilder

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

if TYPE_CHECKING:
    from xml.etree.ElementTree import TreeBuilder as _Builder

DEPTH = 32
ELEMENTS = 500_000


class _BoundedBuilder(TreeBuilder):
    """Builds a tree up to DEPTH and ELEMENTS. Raises ValueError beyond."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0
        self._count = 0

    def start(self, tag: str, attrs: Mapping[Any, Any], /) -> Element:
        self._depth += 1
        self._count += 1
        if self._depth > DEPTH:
            raise ValueError(f"the XML has more than {DEPTH} nested elements")
        if self._count > ELEMENTS:
            raise ValueError(f"the XML has more than {ELEMENTS} elements")
        return super().start(tag, dict(attrs))

    def end(self, tag: str, /) -> Element:
        self._depth -= 1
        return super().end(tag)


def parse_xml(data: bytes) -> Element:
    """Returns the root of a document. Raises ValueError for one that is no XML, has a DTD or
    entities, or is beyond the bounds."""
    builder: _Builder = _BoundedBuilder()
    parser = DefusedXMLParser(target=builder, forbid_dtd=True)
    try:
        parser.feed(data)
        root = parser.close()
    except DefusedXmlException as error:
        kind = type(error).__name__
        raise ValueError(f"the XML has a DTD or entities, which are refused ({kind})") from None
    except (ParseError, LookupError) as error:
        raise ValueError(f"expected XML: {error}") from None
    if not isinstance(root, Element):
        raise ValueError("expected XML with a root")
    return root


def local_name(element: Element) -> str:
    """Returns the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2]


def list_children(element: Element, name: str) -> list[Element]:
    """Returns the children of a name, in any namespace."""
    return [child for child in element if local_name(child) == name]


def child_text(element: Element, name: str) -> str:
    """Returns the text of the first child of a name, without the space around it; empty without
    one."""
    for child in element:
        if local_name(child) == name:
            return (child.text or "").strip()
    return ""


def child_texts(element: Element, name: str) -> list[str]:
    """Returns the texts of all children of a name that are not empty."""
    return [text for child in list_children(element, name) if (text := (child.text or "").strip())]
