"""Arrays as kernels pass them on: bare pointers, which nobody counts references to.

Numba counts the references to arrays, with an atomic instruction each time that one is taken out
of a tuple or handed to a function. In kernels that spend some hundred nanoseconds on a row that is
most of the time. A pointer is indexed like a one-dimensional array and knows no length, so rows of
a two-dimensional array are counted out by hand. The arrays must live as long as the call.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
# mypy: no-check-untyped-defs, no-warn-unreachable
from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from ps2stream.protocol.frame import I64
from ps2stream.workers.arrays import MatchedObjects, StoredRowColumns, TagColumns
from ps2stream.workers.index import MetPostings
from ps2stream.workers.radix.arrays import (
    RadixArrays,
    RadixMatches,
    RadixScratch,
    UpdateScratch,
)
from ps2stream.workers.radix.layout import (
    CELLS_SIZE,
    DIRECTORY_SIZE,
    HOLDER_SIZE,
    NODE_ROOM,
    PLACES_SIZE,
    POOL_SIZE,
    SLACK,
    TAGS_SIZE,
)

_ARRAYS, _SCRATCH = len(RadixArrays._fields), len(RadixScratch._fields)
ADDRESSES = _ARRAYS + _SCRATCH + len(RadixMatches._fields)
"""Of the arrays of a match, behind which are its sizes."""
_intrinsic: Any = intrinsic  # or mypy takes the context for an argument


@_intrinsic
def pointer_to(_context: Any, array: Any) -> Any:
    """Returns a pointer to the first element of a C-contiguous array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), codegen


@_intrinsic
def advance(_context: Any, pointer: Any, by: Any) -> Any:
    """Returns a pointer to the element pointer[by]."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.intp), codegen


@_intrinsic
def prefetch(_context: Any, pointer: Any, at: Any) -> Any:
    """Asks the CPU for the cache line of pointer[at], without waiting; it need not exist."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        where = builder.gep(args[0], [args[1]])
        byte, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        name = "llvm.prefetch.p0"
        call = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(call, [builder.bitcast(where, byte), i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(pointer, types.intp), codegen


@njit(inline="always")
def point_index(fields):
    """Returns RadixArrays of pointers, for a match."""
    a = RadixArrays(*fields)
    return RadixArrays(
        pointer_to(a.directory), pointer_to(a.nodes), pointer_to(a.n32), pointer_to(a.n16),
        pointer_to(a.node_free), pointer_to(a.wide), pointer_to(a.pool), pointer_to(a.pool_f),
        pointer_to(a.pool_free), pointer_to(a.slots_f), pointer_to(a.slots_i), pointer_to(a.dead),
        pointer_to(a.places), pointer_to(a.holders), pointer_to(a.cells), pointer_to(a.counts),
        pointer_to(a.state), pointer_to(a.bands),
    )  # fmt: skip


def note_sizes(arrays: RadixArrays, scratch: UpdateScratch) -> None:
    """Notes the sizes of these arrays in their state, as updates look them up there."""
    state = arrays.state
    state[NODE_ROOM] = len(arrays.nodes) - SLACK
    state[DIRECTORY_SIZE] = len(arrays.directory)
    state[CELLS_SIZE] = len(arrays.cells)
    state[POOL_SIZE] = len(arrays.pool)
    state[HOLDER_SIZE] = len(arrays.holders) >> 1
    state[PLACES_SIZE] = len(arrays.places)
    state[TAGS_SIZE] = len(scratch.cell)


@njit(inline="always")
def point_updated(fields):
    """Returns RadixArrays of pointers, for an update, with the sizes of the arrays in `state`."""
    a = RadixArrays(*fields)
    a.state[NODE_ROOM] = a.nodes.shape[0] - SLACK
    a.state[DIRECTORY_SIZE] = a.directory.shape[0]
    a.state[CELLS_SIZE] = a.cells.shape[0]
    a.state[POOL_SIZE] = a.pool.shape[0]
    a.state[HOLDER_SIZE] = a.holders.shape[0] >> 1
    a.state[PLACES_SIZE] = a.places.shape[0]
    return point_index(fields)


@njit(inline="always")
def point_update_scratch(fields, state):
    """Returns UpdateScratch of pointers, with its size in `state`."""
    a = UpdateScratch(*fields)
    state[TAGS_SIZE] = a.cell.shape[0]
    return UpdateScratch(
        pointer_to(a.trail), pointer_to(a.roots), pointer_to(a.cell), pointer_to(a.term),
        pointer_to(a.tag_cell), pointer_to(a.tag_term), pointer_to(a.stack),
        pointer_to(a.walks), pointer_to(a.leaves),
    )  # fmt: skip


@njit(inline="always")
def point_rows(fields):
    """Returns StoredRowColumns of pointers."""
    a = StoredRowColumns(*fields)
    return StoredRowColumns(
        pointer_to(a.kind), pointer_to(a.handle), pointer_to(a.session), pointer_to(a.form),
        pointer_to(a.post), pointer_to(a.term_off), pointer_to(a.term), pointer_to(a.prog_off),
        pointer_to(a.prog), pointer_to(a.box_off), pointer_to(a.box), pointer_to(a.shape),
        pointer_to(a.geom_off), pointer_to(a.geom),
    )  # fmt: skip


@njit(inline="always")
def point_tags(fields):
    """Returns TagColumns of pointers."""
    a = TagColumns(*fields)
    return TagColumns(pointer_to(a.off), pointer_to(a.cell), pointer_to(a.term))


@njit(inline="always")
def point_objects(fields):
    """Returns MatchedObjects of pointers."""
    a = MatchedObjects(*fields)
    return MatchedObjects(
        pointer_to(a.lon), pointer_to(a.lat), pointer_to(a.term_off), pointer_to(a.term),
        pointer_to(a.chosen), pointer_to(a.value_off), pointer_to(a.value),
    )  # fmt: skip


@_intrinsic
def pointer_at(_context: Any, address: Any, kind: Any) -> Any:
    """Returns a pointer to the address of an element of this NumPy type."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(kind.dtype)(types.int64, kind), codegen


@njit(inline="always")
def _point_arrays(a):
    """Returns RadixArrays of pointers, by the first of these addresses."""
    return RadixArrays(
        pointer_at(a[0], np.uint64), pointer_at(a[1], np.uint64), pointer_at(a[2], np.uint32),
        pointer_at(a[3], np.uint16), pointer_at(a[4], np.int64), pointer_at(a[5], np.uint64),
        pointer_at(a[6], np.uint64), pointer_at(a[7], np.float64), pointer_at(a[8], np.int64),
        pointer_at(a[9], np.float64), pointer_at(a[10], np.int64), pointer_at(a[11], np.uint64),
        pointer_at(a[12], np.uint32), pointer_at(a[13], np.int64), pointer_at(a[14], np.uint32),
        pointer_at(a[15], np.int64), pointer_at(a[16], np.int64), pointer_at(a[17], np.uint64),
    )  # fmt: skip


@njit(inline="always")
def point_addresses(addresses):
    """Returns RadixArrays, RadixScratch and RadixMatches of pointers, by the addresses of their
    arrays in this order; see `list_addresses`."""
    a = pointer_to(addresses)
    index = _point_arrays(a)
    b = advance(a, _ARRAYS)
    scratch = RadixScratch(
        pointer_at(b[0], np.uint64), pointer_at(b[1], np.uint64), pointer_at(b[2], np.uint64),
        pointer_at(b[3], np.float64), pointer_at(b[4], np.uint32), pointer_at(b[5], np.uint64),
        pointer_at(b[6], np.uint32), pointer_at(b[7], np.uint16), pointer_at(b[8], np.uint64),
        pointer_at(b[9], np.uint64), pointer_at(b[10], np.uint32), pointer_at(b[11], np.uint32),
        pointer_at(b[12], np.int64), pointer_at(b[13], np.uint64), pointer_at(b[14], np.int64),
        pointer_at(b[15], np.int64), pointer_at(b[16], np.uint8),
    )  # fmt: skip
    c = advance(b, _SCRATCH)
    matches = RadixMatches(
        pointer_at(c[0], np.int64), pointer_at(c[1], np.int64), pointer_at(c[2], np.uint32),
        pointer_at(c[3], np.int64), pointer_at(c[4], np.int64),
    )  # fmt: skip
    return index, scratch, matches


@njit(inline="always")
def point_update_addresses(addresses):
    """Returns RadixArrays and UpdateScratch of pointers, by the addresses of their arrays in this
    order. The sizes of the arrays are in `state`; see `note_sizes`."""
    a = pointer_to(addresses)
    index = _point_arrays(a)
    b = advance(a, _ARRAYS)
    scratch = UpdateScratch(
        pointer_at(b[0], np.int64), pointer_at(b[1], np.int64), pointer_at(b[2], np.uint32),
        pointer_at(b[3], np.uint64), pointer_at(b[4], np.uint32), pointer_at(b[5], np.uint64),
        pointer_at(b[6], np.uint64), pointer_at(b[7], np.int64), pointer_at(b[8], np.int64),
    )  # fmt: skip
    return index, scratch


def find_entry(kernel: Any, *arguments: Any) -> Callable[..., Any]:
    """Returns the code of a kernel for arguments of these types, which is compiled or loaded if
    need be. It is called like the kernel, but looks at no types, which takes 3 us with a dozen
    arrays: they must be as long an element, and contiguous; they may be writable or not."""
    code: Callable[..., Any] = kernel.compile(tuple(map(kernel.typeof_pyval, arguments)))
    return code


def list_addresses(*groups: Iterable[Any]) -> I64:
    """Returns the addresses of the arrays of these groups, which are good as long as they live."""
    return np.array([array.ctypes.data for group in groups for array in group], np.int64)


@njit(inline="always")
def point_met(fields):
    """Returns MetPostings of pointers."""
    a = MetPostings(*fields)
    return MetPostings(pointer_to(a.base), pointer_to(a.levels))
