"""Memory by its address, for kernels: NumPy's arrays have addresses, and Numba has no pointers."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def point_to(_context: Any, address: Any) -> Any:
    """Returns a pointer to this address, for numba.carray."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(address), codegen


@intrinsic
def prefetch(_context: Any, address: Any) -> Any:
    """Asks the CPU for the cache line of an address, without waiting; any address may be asked."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        byte, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        call = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32]),
            "llvm.prefetch.p0",
        )
        builder.call(call, [builder.inttoptr(args[0], byte), i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(address), codegen
