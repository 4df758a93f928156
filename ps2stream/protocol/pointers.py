"""Memory by its address, for kernels: NumPy's arrays have addresses, and Numba has no pointers."""

# mypy: allow-untyped-calls, disable-error-code=empty-body
from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ps2stream.protocol.frame import U8, Array

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


def _find_address(_context: Any, array: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), codegen


def _move_bytes(_context: Any, to: Any, begin: Any, size: Any) -> Any:
    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        to, begin = (builder.inttoptr(arg, byte) for arg in args[:2])
        cgutils.raw_memmove(builder, to, begin, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


def _load_word(_context: Any, address: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _load_number(builder, args[0], 64)

    return types.uint64(types.int64), codegen


def _load_half(_context: Any, address: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _load_number(builder, args[0], 32)

    return types.uint32(types.int64), codegen


def _load_number(builder: Any, address: Any, bits: int) -> Any:
    """Returns the number of so many bits at an address."""
    return builder.load(builder.inttoptr(address, ir.IntType(bits).as_pointer()), align=1)


def _store_word(_context: Any, address: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        at = builder.inttoptr(args[0], ir.IntType(64).as_pointer())
        builder.store(args[1], at, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.uint64), codegen


def _count_low_zeros(_context: Any, word: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


def _count_high_zeros(_context: Any, word: Any) -> Any:
    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.uint64(types.uint64), codegen


if TYPE_CHECKING:

    def borrow(columns: Borrowed) -> Borrowed:
        """Returns the same, see _borrow."""
        return columns

    def find_address(array: Array) -> int:
        """Returns the address of an array; array.ctypes would count references."""

    def move_bytes(to: int, begin: int, size: int) -> None:
        """Copies bytes between addresses, which may overlap."""

    def load_word(address: int) -> np.uint64:
        """Returns the word at an address, which need not be a multiple of eight."""

    def load_half(address: int) -> np.uint32:
        """Returns the four bytes at an address, which need not be a multiple of four."""

    def store_word(address: int, word: np.uint64) -> None:
        """Stores a word at an address, which need not be a multiple of eight."""

    def count_low_zeros(word: np.uint64) -> np.uint64:
        """Returns how many zeros a word ends in; 64 for 0."""

    def count_high_zeros(word: np.uint64) -> np.uint64:
        """Returns how many zeros a word begins with; 64 for 0."""

else:
    borrow = intrinsic(_borrow)
    find_address, move_bytes = intrinsic(_find_address), intrinsic(_move_bytes)
    load_word, load_half = intrinsic(_load_word), intrinsic(_load_half)
    store_word = intrinsic(_store_word)
    count_low_zeros, count_high_zeros = intrinsic(_count_low_zeros), intrinsic(_count_high_zeros)


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


@njit(inline="always")
def put_bytes(out: Array, at: int, data: Array, begin: int, end: int) -> int:
    """Copies elements of one size, which may overlap; returns where they end."""
    size = out.itemsize
    move_bytes(
        find_address(out) + size * at, find_address(data) + size * begin, size * (end - begin)
    )
    return at + end - begin


@njit(inline="always")
def is_same(data: U8, a: int, other: U8, b: int, size: int) -> bool:
    """Returns whether size bytes are the same in two places."""
    first, second = find_address(data) + a, find_address(other) + b
    # The last word, or half, may overlap the one before.
    if size >= 8:
        for k in range(0, size - 8, 8):
            if load_word(first + k) != load_word(second + k):
                return False
        return bool(load_word(first + size - 8) == load_word(second + size - 8))
    if size >= 4:
        same = load_half(first) == load_half(second)
        return bool(same and load_half(first + size - 4) == load_half(second + size - 4))
    difference = 0
    for k in range(size):
        difference |= data[a + k] ^ other[b + k]
    return bool(difference == 0)
