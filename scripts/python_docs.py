"""Writes the Python client's reference into docs/reference/python.md, from signatures and
docstrings: python scripts/python_docs.py"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "reference" / "python.md"
BEGIN = "<!-- of the package's signatures and docstrings, written by scripts/python_docs.py -->\n"
SHOWN = {
    "client.client": ("Client",),
    "client.subscription": ("Subscription",),
    "client.matches": ("Match", "Matches", "Gap"),
    "client.shed_load": ("ShedLoad",),
    "client.requests": ("Query",),
    "space.regions": ("Rect", "Circle", "Polygon", "World"),
    "client.answers": ("InsertedQuery", "Receipt", "RefusedRow", "TokenInfo", "MigrationHistory",
                       "MigrationInfo", "WatchReport", "WatchedObject", "WatchedMatch"),
    "errors": (),
}  # fmt: skip
"""Modules and the classes of them to show, in this order; without names, all of them."""
INNER = {"Subscription", "Matches"}
"""Classes that other code makes."""
BASES = {"AdminCaller": "client/admin.py", "Caller": "client/caller.py"}
WIDTH = 92
Function = ast.FunctionDef | ast.AsyncFunctionDef


def reference() -> str:
    """Returns the generated part of docs/reference/python.md."""
    parts = [BEGIN]
    for module, names in SHOWN.items():
        tree = ast.parse((ROOT / "ps2stream" / f"{module.replace('.', '/')}.py").read_text("utf-8"))
        found = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        parts.append(f"\n## ps2stream.{module}\n")
        for name in names or found:
            parts += _render_class(module, found[name])
    return "".join(parts)


def _render_class(module: str, node: ast.ClassDef) -> Iterator[str]:
    code = _render_code(_render_constructor(module, node))
    yield f"\n### {node.name}\n{code}{_render_docstring(node)}"
    for method in _find_methods(node):
        if not isinstance(method, Function) or method.name.startswith("_"):
            continue
        if module == "space.regions" and method.name != "contains":
            continue  # bounds, GeoJSON: the package's own
        anchor = f"{node.name}.{method.name}"
        code = _render_code(_render_signature(method))
        yield f"\n#### {anchor}\n{code}{_render_docstring(method)}"


def _find_methods(node: ast.ClassDef) -> Iterator[ast.stmt]:
    """Yields a class's own methods, and those of its bases in the client."""
    yield from node.body
    for base in map(ast.unparse, node.bases):
        if module := BASES.get(base):
            tree = ast.parse((ROOT / "ps2stream" / module).read_text("utf-8"))
            for found in tree.body:
                if isinstance(found, ast.ClassDef) and found.name == base:
                    yield from _find_methods(found)


def _render_constructor(module: str, node: ast.ClassDef) -> str:
    """Returns the constructor of a class, or its bases if it is an error."""
    if module == "errors":
        return f"class {node.name}({', '.join(ast.unparse(base) for base in node.bases)})"
    fields = [
        _space_defaults(ast.unparse(item))
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and not ast.unparse(item.target).startswith("_")
        and "ClassVar" not in ast.unparse(item.annotation)
    ]
    methods = (f for f in _find_methods(node) if isinstance(f, Function))
    init = next((f for f in methods if f.name == "__init__"), None)
    if init is None:
        return _wrap_items(node.name, fields, "")
    return "" if node.name in INNER else _wrap_items(node.name, _list_arguments(init), "")


def _render_signature(method: Function) -> str:
    kinds = {ast.unparse(decorator) for decorator in method.decorator_list}
    gives = f" -> {ast.unparse(method.returns)}" if method.returns is not None else ""
    gives = gives.replace("builtins.", "")
    if kinds & {"property", "cached_property"}:
        return f"{method.name}: {gives.removeprefix(' -> ')}"
    head = "async def " if isinstance(method, ast.AsyncFunctionDef) else "def "
    return _wrap_items(head + method.name, _list_arguments(method), gives)


def _list_arguments(method: Function) -> list[str]:
    parameters = method.args
    plain = parameters.posonlyargs + parameters.args
    defaults = [None] * (len(plain) - len(parameters.defaults)) + list(parameters.defaults)
    out = [_render_argument(a, value) for a, value in zip(plain, defaults, strict=True)][1:]
    if parameters.kwonlyargs:
        out.append("*")
        rest = zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True)
        out += [_render_argument(a, value) for a, value in rest]
    return out


def _render_argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _wrap_items(head: str, items: list[str], tail: str) -> str:
    line = f"{head}({', '.join(items)}){tail}"
    if len(line) <= WIDTH:
        return line
    return "\n".join((f"{head}(", *(f"    {item}," for item in items), f"){tail}"))


def _space_defaults(text: str) -> str:
    return re.sub(r"(?<=[\w\]])=(?=\S)", " = ", text)


def _render_code(text: str) -> str:
    return f"\n```python\n{text}\n```\n" if text else ""


def _render_docstring(node: ast.ClassDef | Function) -> str:
    text = ast.get_docstring(node)
    return f"\n{text}\n" if text else ""


if __name__ == "__main__":
    head = DOCS.read_text("utf-8").split(BEGIN)[0]
    DOCS.write_text(head + reference(), "utf-8")
