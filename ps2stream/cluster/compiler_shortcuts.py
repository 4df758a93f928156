"""Shortcuts through Numba's compiler, for processes that do nothing but compile.

Two thirds of a compiler's time pass in Numba's own Python, much of it in a few functions that are
asked the same thing again and again. And LLVM optimises each function that only other kernels call
twice: on its own, for callers that it does not have, and once more in the kernel that calls it.

The code that comes out does the same. Other processes are left as they are.
"""

# mypy: disable-error-code="no-untyped-call, method-assign, assignment"
from __future__ import annotations

import copy
from typing import Any

import numba
from numba.core import analysis, codegen, inline_closurecall, ir, targetconfig, typed_passes, types
from numba.core.bytecode import FunctionIdentity
from numba.core.types.functions import BaseFunction

_KNOWN = "0.68."
_PLAIN = types.Integer, types.Float, types.Boolean, types.Literal


def take_shortcuts() -> None:
    """Replaces the functions of Numba in this process, if its version is known here. Another is
    left alone, and compiles kernels as slowly as ever."""
    if not numba.__version__.startswith(_KNOWN):
        return
    ir.Inst._rec_list_vars = _list_value_vars
    analysis.compute_use_defs = _find_used
    inliner = inline_closurecall.InlineWorker
    inliner.run_untyped_passes = _remember_code(inliner.run_untyped_passes)
    inliner.inline_ir = _inline_copy(inliner.inline_ir)
    inline_closurecall.copy = _NoCopies  # type: ignore[attr-defined]
    targetconfig.TargetConfig.__eq__ = _is_same_config
    targetconfig.TargetConfig.__hash__ = _hash_config
    BaseFunction.get_call_type = _remember(BaseFunction.get_call_type)
    codegen.CPUCodeLibrary._optimize_functions = _optimize_functions
    codegen.JITCPUCodegen.set_env = _skip_linked(codegen.JITCPUCodegen.set_env)
    lowering = typed_passes.NativeLowering
    lowering.run_pass = _link_only(lowering.run_pass)


def _list_value_vars(_inst: Any, value: Any) -> Any:
    """Returns the variables in a member of an instruction."""
    if isinstance(value, ir.Var):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, ir.Inst):
        return value.list_vars()
    elif not isinstance(value, list | tuple):
        return []
    found = []
    for each in value:
        if isinstance(each, ir.Var):
            found.append(each)
        elif isinstance(each, list | tuple | dict | ir.Inst):
            found += _list_value_vars(_inst, each)
    return found


def _find_used(blocks: dict[int, ir.Block]) -> Any:
    """Does what `analysis.compute_use_defs` does, without lists of what is in an assignment."""
    uses: dict[int, set[str]] = {}
    defs: dict[int, set[str]] = {}
    for offset, block in blocks.items():
        used: set[str] = uses.setdefault(offset, set())
        defined: set[str] = defs.setdefault(offset, set())
        for statement in block.body:
            kind = type(statement)
            if kind in analysis.ir_extension_usedefs:
                analysis.ir_extension_usedefs[kind](statement, used, defined)
                continue
            if kind is ir.Assign:
                value, target = statement.value, statement.target.name
                if type(value) is ir.Var:
                    names = {value.name}
                else:
                    names = {var.name for var in _list_value_vars(statement, value)}
                if target not in names:
                    defined.add(target)
                names.add(target)
            else:
                names = {var.name for var in statement.list_vars()}
            used |= names - defined
    return analysis._use_defs_result(usemap=uses, defmap=defs)


class _NoCopies:
    """Stands for `copy` where blocks are inlined, which `_inline_copy` has copied."""

    @staticmethod
    def deepcopy(block: ir.Block) -> ir.Block:
        """Returns the block."""
        return block


def _inline_copy(inline: Any) -> Any:
    """Returns `inline_ir` that copies what it inlines once, and without what never changes."""

    def inline_ir(
        worker: Any, caller: Any, block: Any, i: int, callee: Any, free: Any, arg_typs: Any = None
    ) -> Any:
        return inline(worker, caller, block, i, _copy_code(callee), free, arg_typs)

    return inline_ir


def _copy_code(code: Any) -> Any:
    """Returns a copy of a function whose blocks share nothing that may change."""
    made: dict[int, Any] = {}
    out = code.copy()
    out.blocks = {}
    for label, block in code.blocks.items():
        new = ir.Block(_copy_value(block.scope, made), block.loc)
        new.body = [_copy_value(statement, made) for statement in block.body]
        out.blocks[label] = new
    return out


def _copy_value(value: Any, made: dict[int, Any]) -> Any:
    """Returns a copy of an instruction, or of what is in one. made: the variables and scopes that
    were copied before, by their ids."""
    if isinstance(value, ir.Var):
        if id(value) not in made:
            made[id(value)] = ir.Var(_copy_value(value.scope, made), value.name, value.loc)
        return made[id(value)]
    if isinstance(value, ir.AbstractRHS):
        new = object.__new__(type(value))
        new.__dict__.update({key: _copy_value(each, made) for key, each in vars(value).items()})
        return new
    if isinstance(value, list | tuple):
        return type(value)([_copy_value(each, made) for each in value])
    if isinstance(value, dict):
        return {key: _copy_value(each, made) for key, each in value.items()}
    if isinstance(value, ir.Scope):
        if id(value) not in made:
            made[id(value)] = scope = ir.Scope(_copy_value(value.parent, made), value.loc)
            scope.redefined.update(value.redefined)
            for name, versions in value.var_redefinitions.items():
                scope.var_redefinitions[name] = set(versions)
            for name, var in value.localvars._con.items():
                scope.localvars.define(name, _copy_value(var, made))
        return made[id(value)]
    return value  # a place in the source, a type, or what the code refers to


def _remember_code(read: Any) -> Any:
    """Returns `run_untyped_passes` with a memory: small functions are inlined many times."""
    known: dict[Any, Any] = {}

    def run_untyped_passes(worker: Any, function: Any, enable_ssa: bool = False) -> Any:
        key = function, enable_ssa
        if key not in known:
            known[key] = read(worker, function, enable_ssa)
            return known[key]
        worker.flags.enable_ssa = enable_ssa
        code = known[key].copy()
        code.func_id = copy.copy(code.func_id)  # a name of its own, for its variables
        code.func_id.unique_id = next(FunctionIdentity._unique_ids)
        code.func_id.unique_name = f"{code.func_id.func_qualname}${code.func_id.unique_id}"
        return code

    return run_untyped_passes


def _is_same_config(config: Any, other: Any) -> Any:
    """Returns whether two configurations have the same values: those that are set are, nearly
    always."""
    if config is other:
        return True
    if not isinstance(other, targetconfig.TargetConfig):
        return NotImplemented
    if type(config) is type(other) and config._values == other._values:
        return True
    return config.values() == other.values()


def _hash_config(config: Any) -> int:
    """Returns a hash of a configuration: of the names of its options alone, as Numba's own is."""
    return hash(type(config))


def _remember(resolve: Any) -> Any:
    """Returns `get_call_type` with a memory for numbers and truth values: an operator tries up to
    twenty templates for each of its calls."""

    def get_call_type(function: Any, context: Any, args: Any, kws: Any) -> Any:
        if kws or not all(isinstance(arg, _PLAIN) for arg in args):
            return resolve(function, context, args, kws)
        known = function.__dict__.setdefault("_known", {})
        key = context, tuple(args)
        if key not in known:
            known[key] = resolve(function, context, args, kws)
        return known[key]

    return get_call_type


def _optimize_functions(library: Any, module: Any) -> None:
    """Runs the passes for functions, with one manager for all of a module, and few of them: the
    passes for modules do the same again, and more."""
    module.data_layout = library._codegen._data_layout
    passes, builder = library._codegen._function_pass_manager(opt=1)
    with library._recorded_timings.record("Function passes", builder):
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)


class LinkedLibrary(codegen.JITCodeLibrary):
    """The code of a function that only other kernels call: it is linked into theirs, and compiled
    there."""

    def finalize(self) -> None:
        """Links what the function calls, and leaves the rest to whoever links it."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Returns 0, as there is no code to be called."""
        self._ensure_finalized()
        return 0


def _link_only(lower: Any) -> Any:
    """Returns `run_pass` that only links a function which Python cannot call."""

    def run_pass(lowering: Any, state: Any) -> Any:
        if state.library is None and state.flags.no_cpython_wrapper:
            state.library = LinkedLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return lower(lowering, state)

    return run_pass


def _skip_linked(set_env: Any) -> Any:
    """Returns `set_env` that does nothing for a function without code of its own."""

    def set_known(target: Any, name: str, env: Any) -> None:
        if target._engine.is_symbol_defined(name):
            set_env(target, name, env)

    return set_known
