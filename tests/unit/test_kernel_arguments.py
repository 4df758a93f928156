"""Kernels take the compiler no longer than they must: none is compiled once for a constant and once
more for any number, and none assigns slices. No service compiles those of the planner.

Numba gives a constant a type of its own, and compiles a kernel for it that another kernel calls
with a constant, or with a variable that begins as one: `np.int64(0)` is none.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.test_tidy import modules


def kernels_of(path: Path) -> Iterator[tuple[ast.FunctionDef, bool]]:
    """The kernels of a module, and whether each is compiled apart from its callers."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            for decorator in map(ast.unparse, node.decorator_list):
                if decorator.startswith("njit") or decorator == "kernel":
                    yield node, "inline" not in decorator


def list_kernels(root: Path) -> list[tuple[ast.FunctionDef, bool]]:
    """The kernels of a service."""
    paths = [path for path in modules(root) if path.relative_to(root).parts[0] != "planner"]
    return [kernel for path in paths for kernel in kernels_of(path)]


def is_constant(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return is_constant(value.body) and is_constant(value.orelse)
    if isinstance(value, ast.UnaryOp):
        return is_constant(value.operand)
    return isinstance(value, ast.Constant) and isinstance(value.value, int)


def begin_as_constants(kernel: ast.FunctionDef) -> set[str]:
    """The variables to which the first value that is assigned is a constant."""
    first = {argument.arg: False for argument in kernel.args.args}
    found = (node for node in ast.walk(kernel) if isinstance(node, ast.Assign))
    for node in sorted(found, key=lambda node: node.lineno):
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple):
                values = [node.value] * len(target.elts)
                if isinstance(node.value, ast.Tuple):
                    values = node.value.elts
                pairs = list(zip(target.elts, values, strict=True))
            for name, value in pairs:
                if isinstance(name, ast.Name):
                    first.setdefault(name.id, is_constant(value))
    return {name for name, constant in first.items() if constant}


def find_constants(
    kernels: list[tuple[ast.FunctionDef, bool]],
) -> Iterator[tuple[str, str, str]]:
    """Each (caller, kernel, argument) that is a constant."""
    apart = {kernel.name for kernel, alone in kernels if alone}
    for caller, _ in kernels:
        variables = begin_as_constants(caller)
        for call in ast.walk(caller):
            if isinstance(call, ast.Call) and ast.unparse(call.func) in apart:
                for value in call.args:
                    varies = isinstance(value, ast.Name) and value.id in variables
                    if varies or is_constant(value):
                        yield caller.name, ast.unparse(call.func), ast.unparse(value)


def test_kernels_pass_no_constants_to_each_other(root: Path) -> None:
    kernels = list_kernels(root)
    assert len(kernels) > 300
    assert list(find_constants(kernels)) == []


def test_a_constant_and_what_begins_as_one_are_found() -> None:
    source = """
@njit(cache=True)
def called(x, y): return x + y
@njit(inline="always")
def shared(x): return x
@njit(cache=True)
def caller(values):
    n, m = 0, values[0]
    k = np.int64(0)
    shared(0)
    called(k, m)
    m = 1
    called(n, -1)
"""
    kernels = [
        (node, "inline" not in ast.unparse(node.decorator_list[0]))
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    ]
    assert list(find_constants(kernels)) == [("caller", "called", "n"), ("caller", "called", "-1")]


def test_private_kernels_that_kernels_call_are_called_by_no_other_function(root: Path) -> None:
    """They are compiled without what a caller in Python needs (`warm_halves`)."""
    found = []
    for path in modules(root):
        kernels = {kernel.name for kernel, _ in kernels_of(path)}
        by_kernels: set[str] = set()
        by_others: set[str] = set()
        for node in ast.parse(path.read_text("utf-8")).body:
            is_kernel = isinstance(node, ast.FunctionDef) and node.name in kernels
            named = {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
            (by_kernels if is_kernel else by_others).update(named & kernels)
        found += [name for name in by_kernels & by_others if name.startswith("_")]
    assert found == []


def test_kernels_assign_no_slices(root: Path) -> None:
    """What Numba compiles for the shapes of both sides takes longer than the rest of a kernel."""
    found = [
        (kernel.name, ast.unparse(target))
        for kernel, _ in list_kernels(root)
        for node in ast.walk(kernel)
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Slice)
    ]
    assert found == []
