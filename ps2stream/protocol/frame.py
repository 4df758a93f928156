"""Columnar batches: the unit of flow everywhere (speed.md 1).

A `Frame` is a frozen dataclass whose fields are integers or NumPy columns. It
travels as one contiguous `bytes`; decoding gives views, not copies. A column of
strings is a pair `<name>_off` (int64[n + 1]) and `<name>` (uint8[]), any other
ragged column likewise (CSR).
"""

from __future__ import annotations

import inspect
import itertools
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
I16 = NDArray[np.int16]
U64 = NDArray[np.uint64]
U16 = NDArray[np.uint16]
U32 = NDArray[np.uint32]
U8 = NDArray[np.uint8]

_DTYPES: tuple[np.dtype[Any], ...] = tuple(
    np.dtype(t) for t in ("u1", "i2", "u4", "i8", "u8", "f8", "i4", "u2", "f4")
)
_CODES = {d: i for i, d in enumerate(_DTYPES)}
_ANNOTATED = {
    "F64": "f8",
    "I64": "i8",
    "I16": "i2",
    "U64": "u8",
    "U32": "u4",
    "U16": "u2",
    "U8": "u1",
}
_MAGIC = 0x53325350  # "PS2S"
_VERSION = 1
_HEAD = struct.Struct("<IHHI")  # magic, version, kind, number of fields
_SIZE = struct.Struct("<q")
_INT = 255
_PADS = [bytes(n) for n in range(8)]
_EMPTY = {dtype: np.frombuffer(b"", dtype) for dtype in _DTYPES}


class FrameError(ValueError):
    """A byte string is not a frame of the expected kind, or is damaged."""


class Frame:
    """The base of all messages and row tables. Subclasses are frozen dataclasses with a unique
    KIND; their annotations are `int` or one of the column aliases of this module."""

    KIND: ClassVar[int]
    ADDED: ClassVar[int] = 0  # so many last fields are 0 or empty in frames of earlier versions
    _schema: ClassVar[tuple[tuple[str, np.dtype[Any] | None], ...]]
    _fields: ClassVar[tuple[tuple[str, np.dtype[Any] | None, int, Any], ...]]
    _codes: ClassVar[tuple[int, ...]]
    _widths: ClassVar[tuple[int, ...]]  # bytes of an element
    _heads: ClassVar[list[int]]  # code and size of each field, the sizes yet 0
    _sizes_at: ClassVar[dict[str, int]]  # where the size of each field is in the head
    _layout: ClassVar[struct.Struct]  # of all that comes before the columns
    _by_kind: ClassVar[dict[int, type[Frame]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "KIND" not in cls.__dict__:
            return
        if cls.KIND in Frame._by_kind:
            raise TypeError(f"frame kind {cls.KIND} is already used")
        schema: list[tuple[str, np.dtype[Any] | None]] = []
        for klass in reversed(cls.__mro__):
            for name, note in inspect.get_annotations(klass).items():
                if note == "int":
                    schema.append((name, None))
                elif note in _ANNOTATED:
                    schema.append((name, np.dtype(_ANNOTATED[note])))
                elif not str(note).startswith("ClassVar"):
                    raise TypeError(f"{cls.__name__}.{name}: a frame has no field of type {note}")
        Frame._by_kind[cls.KIND] = cls
        cls._schema = tuple(schema)
        cls._codes = tuple(_INT if dtype is None else _CODES[dtype] for _, dtype in schema)
        cls._widths = tuple(8 if dtype is None else dtype.itemsize for _, dtype in schema)
        cls._fields = tuple(
            (name, dtype, width, 0 if dtype is None else _EMPTY[dtype])
            for (name, dtype), width in zip(schema, cls._widths, strict=True)
        )
        cls._heads = [number for code in cls._codes for number in (code, 0)]
        cls._sizes_at = {name: 24 + 16 * i for i, (name, _) in enumerate(schema)}
        cls._layout = struct.Struct("<IHHI4x" + "B7xq" * len(schema))

    @classmethod
    def head_bytes(cls) -> int:
        """Returns the bytes that come before the columns, a multiple of eight."""
        return cls._layout.size

    @classmethod
    def element_bytes(cls) -> tuple[int, ...]:
        """Returns the bytes of an element of each column, and of each integer."""
        return cls._widths

    @classmethod
    def count_elements(cls, data: bytes | memoryview, name: str) -> int:
        """Returns the number of elements of a column of an encoded frame, or an integer, from the
        head alone, which must be that of a frame of this class."""
        number: int = _SIZE.unpack_from(data, cls._sizes_at[name])[0]
        return number

    @classmethod
    def view_columns(cls, data: bytes | memoryview, *names: str) -> list[Array]:
        """Returns views of some columns of an encoded frame of this class, in their order there,
        for a fraction of what it costs to decode it. Raises FrameError where it is cut short."""
        found: list[Array] = []
        try:
            heads, body = cls._layout.unpack_from(data), cls._layout.size
            for (name, dtype), width, n in zip(cls._schema, cls._widths, heads[5::2], strict=True):
                if dtype is None:
                    continue
                if name in names:
                    found.append(np.frombuffer(data, dtype, n, body) if n else _EMPTY[dtype])
                body += (n * width + 7) & -8
        except (ValueError, struct.error):
            raise FrameError(f"{cls.__name__}: cut short") from None
        return found

    @classmethod
    def from_columns(cls, columns: Mapping[str, Any]) -> Self:
        """Returns a frame of all its fields, by name, which are taken as they are: the constructor
        of a frozen dataclass sets each on its own."""
        frame = object.__new__(cls)
        frame.__dict__.update(columns)
        return frame

    def encode(self) -> bytes:
        """Returns one contiguous byte string; columns start at multiples of eight."""
        sizes: list[int] = []
        bodies: list[Any] = [b""]  # bytes and columns
        values = self.__dict__
        for name, dtype, width, _ in self._fields:
            value = values[name]
            if dtype is None:
                sizes.append(value)
                continue
            column = np.ascontiguousarray(value, dtype)
            size = column.size
            sizes.append(size)
            if size:
                bodies.append(column)
                if pad := -size * width & 7:
                    bodies.append(_PADS[pad])
        heads = self._heads[:]
        heads[1::2] = sizes
        bodies[0] = self._layout.pack(_MAGIC, _VERSION, self.KIND, len(sizes), *heads)
        return b"".join(bodies)

    @classmethod
    def allocate(cls, sizes: Sequence[int], ahead: int = 0) -> tuple[U64, list[int]]:
        """Returns room for an encoded frame of columns alone, with the number of elements of each,
        and where each one begins in it, in bytes. The head is written, and the pads are zero. There
        is room for so many bytes ahead of the frame, a multiple of eight."""
        starts, pads, end = [], [], ahead + cls._layout.size
        for width, n in zip(cls._widths, sizes, strict=True):
            starts.append(end)
            end += n * width
            if end & 7:
                pads.append(end // 8)
                end = (end | 7) + 1
        room = np.empty(end // 8, np.uint64)
        for word in pads:
            room[word] = 0
        cls.write_head(room, sizes, ahead)
        return room, starts

    @classmethod
    def write_head(cls, room: U64, values: Sequence[int], at: int = 0) -> None:
        """Writes what comes before the columns of a frame, from a byte on: the value of each
        integer and the number of elements of each column."""
        heads = cls._heads[:]
        heads[1::2] = values
        cls._layout.pack_into(room.data, at, _MAGIC, _VERSION, cls.KIND, len(values), *heads)

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Returns views over `data`; raises FrameError when it is not a frame of this class."""
        frame = decode(data)
        if not isinstance(frame, cls):
            raise FrameError(f"expected a {cls.__name__}, got a {type(frame).__name__}")
        return frame


def decode(data: bytes | memoryview) -> Frame:
    """Decodes any frame, by the kind in its head. Raises FrameError."""
    size = len(data)
    if size < _HEAD.size:
        raise FrameError(f"{size} bytes are too few for a frame")
    magic, version, kind, count = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise FrameError("not a frame: wrong magic number")
    if version != _VERSION:
        raise FrameError(f"frame version {version} is not {_VERSION}")
    cls = Frame._by_kind.get(kind)
    if cls is None or count != len(cls._schema):
        if cls is not None and len(cls._schema) - cls.ADDED <= count < len(cls._schema):
            return _decode_earlier(cls, count, data)
        raise FrameError(f"unknown frame kind {kind} with {count} fields")
    body = cls._layout.size
    if size < body:
        raise FrameError("frame is cut short in its head")
    heads = cls._layout.unpack_from(data)
    if heads[4::2] != cls._codes:
        raise _describe_wrong_type(cls, heads[4::2])
    frame = object.__new__(cls)
    values = frame.__dict__  # see from_columns
    view = np.frombuffer
    for (name, dtype, width, empty), n in zip(cls._fields, heads[5::2], strict=True):
        if not n:
            values[name] = empty
        elif dtype is None:
            values[name] = n
        else:
            nbytes = n * width
            if n < 0 or body + nbytes > size:
                raise FrameError(f"{cls.__name__}.{name}: cut short")
            values[name] = view(data, dtype, n, body)
            body += (nbytes + 7) & -8
    return frame


def _decode_earlier(cls: type[Frame], count: int, data: bytes | memoryview) -> Frame:
    """Decodes a frame that was written when its class had only these first fields; those added
    since are 0 or empty."""
    start, end = cls._layout.size - 16 * len(cls._schema), 16 * count
    if len(data) < start + end:
        raise FrameError("frame is cut short in its head")
    head = _HEAD.pack(_MAGIC, _VERSION, cls.KIND, len(cls._schema))
    added = b"".join(struct.pack("<B7xq", code, 0) for code in cls._codes[count:])
    fields = bytes(data[_HEAD.size : start + end])
    return decode(head + fields + added + bytes(data[start + end :]))


def _describe_wrong_type(cls: type[Frame], codes: tuple[int, ...]) -> FrameError:
    """Returns the error for the first field that has another type than the class says."""
    pairs = zip(cls._schema, codes, cls._codes, strict=True)
    name, dtype = next(field for field, code, right in pairs if code != right)
    wanted = "expected an integer" if dtype is None else "wrong column type"
    return FrameError(f"{cls.__name__}.{name}: {wanted}")


# --- ragged columns -------------------------------------------------------


def strings_to_column(values: Iterable[str | bytes]) -> tuple[I64, U8]:
    """Returns (offsets int64[n + 1], UTF-8 bytes uint8[]); lone surrogates are kept as WTF-8."""
    rows: Sequence[str | bytes] = values if isinstance(values, list) else list(values)
    data = _join_ascii(rows)
    if data is None:
        raw = [v if isinstance(v, bytes) else v.encode("utf-8", "surrogatepass") for v in rows]
        rows, data = raw, b"".join(raw)
    off = np.zeros(len(rows) + 1, np.int64)
    np.fromiter(map(len, rows), np.int64, len(rows)).cumsum(out=off[1:])
    return off, np.frombuffer(data, np.uint8)


def _join_ascii(rows: Sequence[str | bytes]) -> bytes | None:
    """Returns strings end to end as bytes, one a character; None if there are other characters,
    or bytes among the rows."""
    try:
        text = "".join(rows)  # type: ignore[arg-type]
    except TypeError:
        return None
    return text.encode() if text.isascii() else None


def column_to_strings(off: I64, data: U8) -> list[str]:
    """Inverts `strings_to_column`; damaged UTF-8 becomes U+FFFD."""
    raw = data.tobytes()
    at = off.tolist()
    return [raw[a:b].decode("utf-8", "replace") for a, b in itertools.pairwise(at)]


def column_to_bytes(off: I64, data: U8) -> list[bytes]:
    """Returns the rows of a ragged column of bytes."""
    raw = data.tobytes()
    return [raw[a:b] for a, b in itertools.pairwise(off.tolist())]


def take_ragged(off: I64, data: Array, rows: Array) -> tuple[I64, Array]:
    """Returns rows of a ragged column, in the order of `rows`, as a new ragged column."""
    rows = np.asarray(rows, np.int64)
    start = off[rows]
    size = off[1:][rows] - start
    out = np.zeros(len(rows) + 1, np.int64)
    size.cumsum(out=out[1:])
    where = (start - out[:-1]).repeat(size)
    where += np.arange(len(where))
    return out, data[where]


def slice_ragged(off: I64, data: Array, first: int, end: int) -> tuple[I64, Array]:
    """Returns the rows first..end of a ragged column; `data` is not copied."""
    at, to = int(off[first]), int(off[end])
    return off[first : end + 1] - at, data[at:to]


def concat_ragged(parts: Sequence[tuple[I64, Array]]) -> tuple[I64, Array]:
    """Joins several ragged columns end to end; at least one."""
    offs, datas, end = [np.zeros(1, np.int64)], [], 0
    for off, data in parts:
        first, last = int(off[0]), int(off[-1])
        offs.append(off[1:] + (end - first))
        datas.append(data[first:last])
        end += last - first
    return np.concatenate(offs), np.concatenate(datas)


def row_of(off: I64) -> I64:
    """Returns the row that each element of a ragged column belongs to."""
    return np.repeat(np.arange(len(off) - 1, dtype=np.int64), np.diff(off))


def sealed(array: Array) -> Array:
    """Returns a contiguous read-only view: kernels are compiled for one type, not for two."""
    flags = array.flags
    if flags.c_contiguous:
        if not flags.writeable:
            return array
        view = array.view()
    else:
        view = np.ascontiguousarray(array)
    view.setflags(False)  # type: ignore[call-arg] # not writable: by name it takes thrice as long
    return view
