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
_FLAGS = ir.VectorType(ir.IntType(1), _LANES)
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
    behind it, without gaps; what is behind them to out[to + 15] may be overwritten. words, out:
    pointers to uint32, readable to at + 15."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        source = _load_words(builder, args[0], args[1])
        mask = builder.bitcast(builder.trunc(args[2], ir.IntType(_LANES)), _FLAGS)
        # Not compressstore, which is dear on some machines: it may not write behind its words.
        name = f"llvm.experimental.vector.compress.v{_LANES}i32"
        kind = ir.FunctionType(_WORDS, [_WORDS, _FLAGS, _WORDS])
        call = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        packed = builder.call(call, [source, mask, ir.Constant(_WORDS, ir.Undefined)])
        where = builder.bitcast(builder.gep(args[3], [args[4]]), _WORDS.as_pointer())
        builder.store(packed, where).align = 4
        return context.get_dummy_value()

    return types.void(words, types.intp, types.uint64, out, types.intp), codegen


def _look_up_bits(builder: Any, numbers: Any, bits: Any) -> Any:
    """Returns for each of 16 numbers below 512 whether that bit is set in `bits`, 16 words."""

    def constant(value: int) -> Any:
        return ir.Constant(_WORDS, [value] * _LANES)

    which = builder.lshr(numbers, constant(5))
    chosen = ir.Constant(_WORDS, ir.Undefined)
    for i in range(_LANES):  # which becomes one permutation
        one = builder.extract_element(bits, builder.extract_element(which, _I32(i)))
        chosen = builder.insert_element(chosen, one, _I32(i))
    shifted = builder.lshr(chosen, builder.and_(numbers, constant(31)))
    return builder.trunc(shifted, _FLAGS)


def _load_prints(builder: Any, pointer: Any, at: Any) -> tuple[Any, Any]:
    """Returns the first and the second bytes of 16 postings as vectors."""
    halves = ir.VectorType(ir.IntType(16), _LANES)
    both = builder.load(builder.bitcast(builder.gep(pointer, [at]), halves.as_pointer()))
    both.align = 2
    both = builder.zext(both, _WORDS)
    low, high = (ir.Constant(_WORDS, [value] * _LANES) for value in (255, 8))
    return builder.and_(both, low), builder.lshr(both, high)


def _judge(builder: Any, args: Any, with_codes: bool) -> Any:
    """Returns what `judge_postings` does, or what `judge_comparisons` does."""

    def constant(value: int) -> Any:
        return ir.Constant(_WORDS, [value] * _LANES)

    def place(mask: Any, at: int) -> Any:
        return builder.shl(_mask_of(builder, mask), ir.IntType(64)(at))

    own = _load_words(builder, args[4], args[5])
    first, second = _load_prints(builder, args[2], args[3])
    modes = builder.lshr(_load_words(builder, args[0], args[1]), constant(30))
    free, every, any_, general = (
        builder.icmp_unsigned("==", modes, constant(mode)) for mode in range(4)
    )
    behind = behind_second = constant(0)
    if with_codes:
        coded = builder.and_(any_, builder.icmp_unsigned("<", first, second))
        codes = builder.or_(free, general)
        behind = builder.select(codes, constant(256), constant(0))
        behind_second = builder.select(builder.or_(codes, coded), constant(256), constant(0))
    has_first = _look_up_bits(builder, builder.or_(first, behind), own)
    has_second = _look_up_bits(builder, builder.or_(second, behind_second), own)
    either = builder.or_(has_first, has_second)
    if with_codes:
        either = builder.select(coded, has_first, either)
        any_ = builder.and_(any_, builder.or_(has_second, builder.not_(coded)))
    none = builder.icmp_unsigned("==", second, constant(0))
    whole = builder.and_(has_first, builder.or_(has_second, none))
    kept = builder.and_(any_, builder.not_(either))
    left = builder.or_(builder.and_(every, whole), builder.and_(any_, either))
    if not with_codes:
        kept, left = builder.or_(kept, free), builder.or_(left, general)
        return builder.or_(_mask_of(builder, kept), place(left, _LANES))
    sure = _load_words(builder, args[4], builder.add(args[5], args[5].type(_LANES)))
    surely = builder.and_(_look_up_bits(builder, first, sure), _look_up_bits(builder, second, sure))
    may = builder.and_(has_first, has_second)
    kept = builder.or_(kept, builder.and_(free, surely))
    left = builder.or_(left, builder.and_(free, builder.and_(may, builder.not_(surely))))
    left = builder.or_(left, builder.and_(general, may))
    whole = builder.icmp_unsigned(">", first, second)
    emits = builder.and_(builder.and_(general, surely), whole)
    out = builder.or_(_mask_of(builder, kept), place(left, _LANES))
    return builder.or_(out, place(emits, 2 * _LANES))


@_intrinsic
def judge_postings(
    _context: Any, words: Any, at: Any, prints: Any, print_at: Any, bits: Any, bit_at: Any
) -> Any:
    """Judges 16 postings by the fingerprints of an object, given as eight words of bits, of which
    bit 0 is not set. Returns bit i set for each mode << 30 | slot words[at + i] of which nothing is
    left to be checked, and bit 16 + i for each of which something is. words, bits: pointers to
    uint32, prints: a pointer to uint16, all readable for 16 postings.

    The modes are those of `layout`. The fingerprint 0 stands for none: of a conjunction it is
    there, of a disjunction not.
    """

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _judge(builder, args, False)

    sig = types.uint64(words, types.intp, prints, types.intp, bits, types.intp)
    return sig, codegen


@_intrinsic
def find_printed(_context: Any, prints: Any, print_at: Any, bits: Any, bit_at: Any) -> Any:
    """Returns bit i set for each of 16 postings of mode ALL that `judge_postings` leaves to be
    checked, by their fingerprints alone."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        first, second = _load_prints(builder, args[0], args[1])
        own = _load_words(builder, args[2], args[3])
        none = builder.icmp_unsigned("==", second, ir.Constant(_WORDS, [0] * _LANES))
        has_second = builder.or_(_look_up_bits(builder, second, own), none)
        return _mask_of(builder, builder.and_(_look_up_bits(builder, first, own), has_second))

    return types.uint64(prints, types.intp, bits, types.intp), codegen


@_intrinsic
def judge_comparisons(
    _context: Any, words: Any, at: Any, prints: Any, print_at: Any, bits: Any, bit_at: Any
) -> Any:
    """Judges 16 postings like `judge_postings`, where FREE and GENERAL ones have codes. Behind the
    fingerprints of the object are eight words of the codes that may hold and eight of those that
    surely do, 0 among both; eight more are readable. Nothing is left of a FREE one whose codes
    surely hold, and nothing holds of one whose codes cannot. The second byte of an ANY one is a
    code if it is greater than the first: one that surely holds if it may, and must hold. Sets bit
    32 + i, beside bit 16 + i, for each of which is left only whether the object has a smaller
    posting term: the codes of a GENERAL one, of which the first is the greater, surely hold."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _judge(builder, args, True)

    sig = types.uint64(words, types.intp, prints, types.intp, bits, types.intp)
    return sig, codegen


@_intrinsic
def is_in_box(_context: Any, boxes: Any, at: Any, points: Any, point_at: Any) -> Any:
    """Returns whether the point (points[point_at], points[point_at + 1]) lies in the box of four
    bounds from boxes[at] on: west, south, east, north. boxes, points: pointers to float64."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        def load(pointer: Any, at: Any, kind: Any) -> Any:
            where = builder.bitcast(builder.gep(pointer, [at]), kind.as_pointer())
            value = builder.load(where)
            value.align = 8
            return value

        two, four = (ir.VectorType(ir.DoubleType(), n) for n in (2, 4))
        box, point = load(args[0], args[1], four), load(args[2], args[3], two)
        twice = ir.Constant(ir.VectorType(_I32, 4), [0, 1, 0, 1])
        point = builder.shuffle_vector(point, ir.Constant(two, ir.Undefined), twice)
        halves = ir.VectorType(_I32, 4)
        low = builder.shuffle_vector(box, point, ir.Constant(halves, [0, 1, 4, 5]))
        high = builder.shuffle_vector(box, point, ir.Constant(halves, [4, 5, 2, 3]))
        flags = builder.bitcast(builder.fcmp_ordered("<=", low, high), ir.IntType(4))
        return builder.icmp_unsigned("==", flags, ir.Constant(ir.IntType(4), 15))

    return types.boolean(boxes, types.intp, points, types.intp), codegen


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
def find_term(_context: Any, words: Any, at: Any, term: Any) -> Any:
    """Returns bit i, below 4, set where words[at + i] is the term. words: a pointer to uint64,
    readable to at + 3."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        lanes = ir.VectorType(ir.IntType(64), 4)
        empty = ir.Constant(lanes, ir.Undefined)
        zeros = ir.Constant(ir.VectorType(_I32, 4), [0] * 4)
        one = builder.insert_element(empty, args[2], _I32(0))
        wanted = builder.shuffle_vector(one, empty, zeros)
        where = builder.gep(args[0], [args[1]])
        terms = builder.load(builder.bitcast(where, lanes.as_pointer()))
        terms.align = 8
        same = builder.icmp_unsigned("==", terms, wanted)
        return builder.zext(builder.bitcast(same, ir.IntType(4)), ir.IntType(64))

    return types.uint64(words, types.intp, types.uint64), codegen


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
