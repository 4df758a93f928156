"""Instructions over vectors, for kernels that scan leaves; LLVM has them on every machine."""

# mypy: allow-untyped-decorators, allow-untyped-calls
from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_LANES = 16
_I32 = ir.IntType(32)
_WORDS = ir.VectorType(_I32, _LANES)
_BYTES = ir.VectorType(ir.IntType(8), 4 * _LANES)
_intrinsic: Any = intrinsic  # or mypy takes the context for an argument


def _load_words(builder: Any, pointer: Any, at: Any) -> Any:
    """Returns the 16 words from pointer[at] on as a vector."""
    where = builder.gep(pointer, [at])
    words = builder.load(builder.bitcast(where, _WORDS.as_pointer()))
    words.align = 4
    return words


def _repeat_word(builder: Any, value: Any) -> Any:
    """Returns a vector of 16 times this word."""
    empty = ir.Constant(_WORDS, ir.Undefined)
    one = builder.insert_element(empty, value, _I32(0))
    return builder.shuffle_vector(one, empty, ir.Constant(_WORDS, [0] * _LANES))


def _mask_of(builder: Any, equal: Any) -> Any:
    """Returns 16 truth values as the low bits of a uint64."""
    return builder.zext(builder.bitcast(equal, ir.IntType(_LANES)), ir.IntType(64))


@_intrinsic
def find_holding(_context: Any, words: Any, at: Any, point: Any) -> Any:
    """Returns bit i set for each of the 16 rectangles words[at + i] that holds the point: none of
    its four bytes is above that of the point. words: a pointer to uint32, readable to at + 15."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        words = _load_words(builder, args[0], args[1])
        points = _repeat_word(builder, args[2])
        rects, bounds = (builder.bitcast(v, _BYTES) for v in (words, points))
        higher = builder.select(builder.icmp_unsigned(">", rects, bounds), rects, bounds)
        same = builder.icmp_unsigned("==", builder.bitcast(higher, _WORDS), points)
        return _mask_of(builder, same)

    return types.uint64(words, types.intp, types.uint32), codegen


@_intrinsic
def find_equal(_context: Any, words: Any, at: Any, want: Any, bits: Any) -> Any:
    """Returns bit i set for each of the 16 words words[at + i] that equals `want` in `bits`.
    words: a pointer to uint32, readable to at + 15."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        words = _load_words(builder, args[0], args[1])
        wanted, mask = (_repeat_word(builder, each) for each in args[2:])
        same = builder.icmp_unsigned("==", builder.and_(words, mask), builder.and_(wanted, mask))
        return _mask_of(builder, same)

    return types.uint64(words, types.intp, types.uint32, types.uint32), codegen


@_intrinsic
def find_below(_context: Any, words: Any, at: Any, bound: Any) -> Any:
    """Returns bit i set for each of the 16 words words[at + i] below `bound`. words: a pointer to
    uint32, readable to at + 15."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        words = _load_words(builder, args[0], args[1])
        return _mask_of(builder, builder.icmp_unsigned("<", words, _repeat_word(builder, args[2])))

    return types.uint64(words, types.intp, types.uint32), codegen


@_intrinsic
def repeat_word(_context: Any, words: Any, at: Any, value: Any) -> Any:
    """Sets words[at] to words[at + 15] to `value`. words: a pointer to uint32."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        where = builder.bitcast(builder.gep(args[0], [args[1]]), _WORDS.as_pointer())
        builder.store(_repeat_word(builder, args[2]), where).align = 4
        return context.get_dummy_value()

    return types.void(words, types.intp, types.uint32), codegen


@_intrinsic
def pack_words(_context: Any, words: Any, at: Any, chosen: Any, out: Any, to: Any) -> Any:
    """Copies those of the 16 words words[at + i] whose bit i is chosen to out[to] and the places
    behind it, without gaps. words, out: pointers to uint32, readable to at + 15."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        source = _load_words(builder, args[0], args[1])
        lanes = ir.IntType(_LANES)
        flags = ir.VectorType(ir.IntType(1), _LANES)
        mask = builder.bitcast(builder.trunc(args[2], lanes), flags)
        where = builder.gep(args[3], [args[4]])
        name = f"llvm.masked.compressstore.v{_LANES}i32"
        kind = ir.FunctionType(ir.VoidType(), [_WORDS, where.type, flags])
        call = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        builder.call(call, [source, where, mask])
        return context.get_dummy_value()

    return types.void(words, types.intp, types.uint64, out, types.intp), codegen


@_intrinsic
def count_bits(_context: Any, word: Any) -> Any:
    """Returns the number of bits that are set in a uint64."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), codegen


@_intrinsic
def find_in_bucket(_context: Any, words: Any, at: Any, term: Any, root: Any) -> Any:
    """Returns bit i, below 4, set where words[at + i] is the term and words[at + 4 + i] >> 32 & 255
    is the root, and bit 8 if none of the last four of these eight words is 0. words: a pointer to
    uint64, readable to at + 7."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        i8, i64 = ir.IntType(8), ir.IntType(64)
        lanes = ir.VectorType(i64, 8)
        empty, zeros = (
            ir.Constant(lanes, ir.Undefined),
            ir.Constant(ir.VectorType(_I32, 8), [0] * 8),
        )

        def repeat(value: Any) -> Any:
            return builder.shuffle_vector(
                builder.insert_element(empty, value, _I32(0)), empty, zeros
            )

        def bits_of(flags: Any) -> Any:
            return builder.bitcast(flags, i8)

        where = builder.bitcast(builder.gep(args[0], [args[1]]), lanes.as_pointer())
        bucket = builder.load(where)
        bucket.align = 8
        same = bits_of(builder.icmp_unsigned("==", bucket, repeat(args[2])))
        roots = builder.and_(bucket, ir.Constant(lanes, [0xFF << 32] * 8))
        wanted = repeat(builder.shl(args[3], i64(32)))
        rooted = bits_of(builder.icmp_unsigned("==", roots, wanted))
        none = bits_of(builder.icmp_unsigned("==", bucket, ir.Constant(lanes, [0] * 8)))
        held = builder.and_(builder.and_(same, builder.lshr(rooted, i8(4))), i8(15))
        full = builder.icmp_unsigned("==", builder.lshr(none, i8(4)), i8(0))
        return builder.or_(builder.zext(held, i64), builder.shl(builder.zext(full, i64), i64(8)))

    return types.uint64(words, types.intp, types.uint64, types.uint64), codegen


@_intrinsic
def holds_term(_context: Any, terms: Any, count: Any, want: Any) -> Any:
    """Returns whether `want` is among the first `count` words, at most 16, that a pointer to
    uint64 refers to. No word behind them is read."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        i64, lanes = ir.IntType(64), _LANES
        words, flags = ir.VectorType(i64, lanes), ir.VectorType(ir.IntType(1), lanes)
        zeros = ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)

        def repeat(value: Any) -> Any:
            empty = ir.Constant(words, ir.Undefined)
            return builder.shuffle_vector(
                builder.insert_element(empty, value, _I32(0)), empty, zeros
            )

        numbers = ir.Constant(words, list(range(lanes)))
        valid = builder.icmp_unsigned("<", numbers, repeat(args[1]))
        where = builder.bitcast(args[0], words.as_pointer())
        name = f"llvm.masked.load.v{lanes}i64.p0"
        kind = ir.FunctionType(words, [words.as_pointer(), _I32, flags, words])
        load = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        found = builder.call(load, [where, _I32(8), valid, ir.Constant(words, [0] * lanes)])
        same = builder.and_(builder.icmp_unsigned("==", found, repeat(args[2])), valid)
        bits = builder.bitcast(same, ir.IntType(lanes))
        return builder.icmp_unsigned("!=", bits, ir.Constant(ir.IntType(lanes), 0))

    return types.boolean(terms, types.intp, types.uint64), codegen


@_intrinsic
def lowest_bit(_context: Any, word: Any) -> Any:
    """Returns the number of the lowest bit that is set in a uint64 other than 0."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), codegen
