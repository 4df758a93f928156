"""Memory by its address, for kernels: NumPy's arrays have addresses, and Numba has no pointers."""

# mypy: allow-untyped-calls
from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

Borrowed = TypeVar("Borrowed")


@intrinsic
def point_to(_context: Any, address: Any) -> Any:
    """Returns a pointer to this address, for numba.carray."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.voidptr(address), codegen


def _borrow(_context: Any, columns: Any) -> Any:
    """Returns an array, or a tuple of arrays and numbers, without its counts of references: each
    use in a loop would be an atomic operation. The caller of the kernel holds the arrays."""

    def lend(context: Any, builder: Any, kind: Any, value: Any) -> Any:
        if isinstance(kind, types.Array):
            array = context.make_array(kind)(context, builder, value)
            array.meminfo = cgutils.get_null_value(array.meminfo.type)
            return array._getvalue()
        if isinstance(kind, types.BaseTuple):
            parts: Any = kind
            for i, part in enumerate(parts):
                lent = lend(context, builder, part, builder.extract_value(value, i))
                value = builder.insert_value(value, lent, i)
        return value

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return lend(context, builder, signature.return_type, args[0])

    return columns(columns), codegen


if TYPE_CHECKING:

    def borrow(columns: Borrowed) -> Borrowed:
        """Returns the same, see _borrow."""
        return columns

else:
    borrow = intrinsic(_borrow)


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
