"""The service uses what gRPC documents, and nothing else of it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ps2stream import service

PRIVATE = {"_state", "_rpc_event", "_request_call", "experimental_non_blocking"}
MODULES = sorted(Path(service.__file__).parent.glob("*.py"))


def find_private_parts(source: str) -> list[str]:
    """Names of gRPC's inner parts that a module imports, or reads or sets on what gRPC gave it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            names = [node.attr] if node.attr.startswith("experimental_") else []
            names += [node.attr] if node.attr in PRIVATE else []
            names += ["grpc._"] if ast.unparse(node).startswith(("grpc._", "grpc.aio._")) else []
        else:
            continue
        found += [
            name
            for name in names
            if name in PRIVATE
            or "experimental" in name
            or (name.startswith("grpc") and "._" in name)
        ]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_no_private_part_of_grpc_is_used(module: Path) -> None:
    assert find_private_parts(module.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "from grpc import _server",
        "from grpc._cython import cygrpc",
        "import grpc._channel",
        "state = context._state",
        "call = context._rpc_event.call",
        "handle.experimental_non_blocking = True",
        "handle.experimental_thread_pool = pool",
        "grpc.aio._server.Server()",
        "from grpc.experimental import aio",
    ],
)
def test_a_private_part_would_be_found(line: str) -> None:
    assert find_private_parts(line)
