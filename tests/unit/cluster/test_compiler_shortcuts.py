"""Numba with its shortcuts: what replaces its functions gives what they give, and kernels that are
compiled by them do what Python does."""

# mypy: allow-untyped-calls
from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit, types
from numba.core import analysis, ir
from numba.core.compiler import Flags, run_frontend

from ps2stream.cluster import compiler_shortcuts as cs
from ps2stream.workers.radix import layout, probe_kernels, raster_kernels, tree_kernels

SOURCES: list[Callable[..., Any]] = [
    probe_kernels.descend_trees.py_func,
    tree_kernels.split_leaf.py_func,
    raster_kernels.draw_raster.py_func,
    layout.take_words.py_func,
    lambda a, *rest: [(x, len(rest)) for x in a if x > a[0]],  # a closure
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda f: f.__name__)
def test_variables_are_used_and_defined_where_numba_says_so(source: Any) -> None:
    blocks = run_frontend(source).blocks
    assert cs._find_used(blocks) == analysis.compute_use_defs(blocks)
    statements = [statement for block in blocks.values() for statement in block.body]
    for statement in statements:
        for value in vars(statement).values():
            assert cs._list_value_vars(statement, value) == statement._rec_list_vars(value)
    assert len(statements) > 5


def parts_of(value: Any) -> list[int]:
    """The ids of what may change in an instruction or a scope."""
    if isinstance(value, ir.Var):
        return [id(value), id(value.scope)]
    if isinstance(value, ir.Inst):
        return [id(value), *(i for each in vars(value).values() for i in parts_of(each))]
    if isinstance(value, dict):
        return [id(value), *(i for each in value.values() for i in parts_of(each))]
    if isinstance(value, list):
        return [id(value), *(i for each in value for i in parts_of(each))]
    return []


@pytest.mark.parametrize("source", SOURCES, ids=lambda f: f.__name__)
def test_a_copy_of_code_is_equal_and_shares_nothing_that_changes(source: Any) -> None:
    code = run_frontend(source)
    copied = cs._copy_code(code)
    assert copied.blocks.keys() == code.blocks.keys()
    scopes = set()
    for label, block in code.blocks.items():
        new = copied.blocks[label]
        assert [str(statement) for statement in new.body] == [str(s) for s in block.body]
        assert not set(parts_of(new.body)) & set(parts_of(block.body))
        assert new.scope.localvars._con.keys() == block.scope.localvars._con.keys()
        assert all(var.scope is new.scope for var in new.scope.localvars._con.values())
        scopes.add(id(new.scope))
        names = {name: id(var) for name, var in new.scope.localvars._con.items()}
        for statement in new.body:
            for var in statement.list_vars():
                assert names.get(var.name, id(var)) == id(var)
    assert len(scopes) == 1


def test_configurations_are_the_same_if_all_values_are_and_then_have_one_hash() -> None:
    three: list[Any] = [Flags() for _ in range(3)]
    three[1].nrt = True
    three[2].nrt = Flags.options["nrt"].default
    for a in three:
        for b in three:
            assert cs._is_same_config(a, b) == (a.values() == b.values())
            if cs._is_same_config(a, b):
                assert cs._hash_config(a) == cs._hash_config(b)
    assert cs._is_same_config(three[0], 3) is NotImplemented


def test_operators_are_remembered_for_numbers_alone() -> None:
    asked: list[tuple[Any, ...]] = []

    class Function:
        pass

    def resolve(_function: Any, _context: Any, args: Any, _kws: Any) -> Any:
        asked.append(tuple(args))
        return len(asked)

    ask, function = cs._remember(resolve), Function()
    array = types.Array(types.int64, 1, "C")
    for _ in range(2):
        for args in ([types.int64, types.int64], [types.int64, types.float64], [array, types.int8]):
            ask(function, 7, args, {})
    ask(function, 8, [types.int64, types.int64], {})
    ask(Function(), 7, [types.int64, types.int64], {})
    assert len(asked) == 6
    assert asked.count((array, types.int8)) == 2


FUNCTIONS = """
import numpy as np

@njit(inline="always")
def clamp(value, last):
    found = value
    if value > last:
        found = last
    return found

@njit(inline="always")
def twice(value, last):
    found = clamp(value, last)
    return found + clamp(value + 1, last)

@njit()
def _inner(values, last):
    total = 0
    for value in values:
        found = clamp(value, last)
        total += found * twice(value, last) - clamp(found, 3)
    return total

@njit()
def outer(values, last):
    ends = np.zeros(2, np.int64)
    ends[0] = _inner(values, last)
    ends[1] = min(np.int64(len(values)), np.int64(7))
    found = clamp(ends[1], 5)
    return ends, found, _inner(values[::-1], last + 1)
"""

PROGRAM = """
import sys
import numba
from numba.core import event
from ps2stream.cluster.compiler_shortcuts import take_shortcuts
from ps2stream.cluster.warm_halves import KernelPrinter

take_shortcuts()
python, kernels = {"njit": lambda **_: lambda f: f}, {"njit": numba.njit}
exec(sys.argv[1], python)
exec(sys.argv[1], kernels)
inner, outer = kernels["_inner"], kernels["outer"]
for kernel in (inner, outer):
    kernel.py_func.__module__ = "ps2stream.here"
values = python["np"].arange(20) % 9
with event.install_listener("numba:compile", KernelPrinter()):
    got = outer(values, 6)
want = python["outer"](values, 6)
assert got[0].tolist() == want[0].tolist() and got[1:] == want[1:], (got, want)
found = [c.library.get_pointer_to_function(c.fndesc.llvm_func_name)
         for kernel in (inner, outer) for c in kernel.overloads.values()]
print("addresses", [address != 0 for address in found])
"""


def test_a_kernel_of_inlined_and_linked_functions_does_what_python_does() -> None:
    command = [sys.executable, "-c", PROGRAM, FUNCTIONS]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "addresses [False, False, True]"


def test_other_processes_have_numba_as_it_is() -> None:
    assert analysis.compute_use_defs.__module__ == "numba.core.analysis"
    assert np.asarray(njit(lambda x: x + 1)(np.arange(3))).tolist() == [1, 2, 3]


def test_another_numba_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ir.Inst._rec_list_vars
    monkeypatch.setattr("numba.__version__", "0.69.0")
    cs.take_shortcuts()
    assert ir.Inst._rec_list_vars is before
