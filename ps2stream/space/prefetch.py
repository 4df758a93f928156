"""An instruction for kernels that read tables larger than the caches."""

# mypy: allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def prefetch(_context: Any, array: Any, index: Any) -> Any:
    """Asks the CPU for the cache line of array[index] (first axis), without waiting."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = signature.args[0]
        value = context.make_array(kind)(context, builder, args[0])
        at = [args[1]] + [context.get_constant(types.intp, 0)] * (kind.ndim - 1)
        where = cgutils.get_item_pointer(context, builder, kind, value, at, wraparound=False)
        byte = ir.IntType(8).as_pointer()
        i32 = ir.IntType(32)
        call = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32]),
            "llvm.prefetch.p0",
        )
        builder.call(call, [builder.bitcast(where, byte), i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen
