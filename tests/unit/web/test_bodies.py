"""Bodies of requests: unpacked as gzip does it, and bounded before any work."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from ps2stream.errors import InvalidArgument, ResourceExhausted
from ps2stream.web.api import bodies
from ps2stream.web.api.bodies import (
    BODIES,
    BODIES_EACH,
    DEPTH,
    OBJECTS,
    BodyRoom,
    parse_json,
    read_body,
)


class SentBody:
    """A request whose body comes in these chunks; `taken` counts those that were asked for."""

    def __init__(self, chunks: list[bytes], packing: str = "gzip", pause: float = 0) -> None:
        self.headers = {"Content-Encoding": packing}
        self.content = self
        self.taken = 0
        self._chunks = chunks
        self._pause = pause

    async def iter_chunked(self, _: int) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            await asyncio.sleep(self._pause)
            self.taken += 1
            yield chunk


def read(sent: Any, limit: int = 1000) -> bytes:
    return asyncio.run(read_body(sent, limit))


def split(data: bytes, rng: random.Random) -> list[bytes]:
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if b > a]


@pytest.mark.parametrize("seed", range(40))
def test_bodies_are_unpacked_as_gzip_unpacks_them(seed: int) -> None:
    rng = random.Random(seed)
    parts = [rng.randbytes(rng.choice((0, 1, 30, 400))) * rng.randrange(3) for _ in range(3)]
    packed = b"".join(gzip.compress(part) for part in parts)
    whole = gzip.decompress(packed)
    assert read(SentBody(split(packed, rng)), max(len(whole), len(packed))) == whole
    if len(whole) > len(packed):
        with pytest.raises(web.HTTPRequestEntityTooLarge):
            read(SentBody(split(packed, rng)), len(whole) - 1)
    cut = packed[: rng.randrange(len(packed) - 30)]
    with pytest.raises(InvalidArgument, match="body: is not"):
        read(SentBody(split(cut, rng)), 5000)


def test_no_more_is_taken_than_may_be_had() -> None:
    bomb = gzip.compress(bytes(10 << 20))
    sent = SentBody([bomb[:200], *[bomb[200:]] * 1000])
    with pytest.raises(web.HTTPRequestEntityTooLarge, match="more than 1000 bytes"):
        read(sent)
    assert sent.taken == 1
    nothing = SentBody([gzip.compress(b"")] * 1000)  # packed bytes without end
    with pytest.raises(web.HTTPRequestEntityTooLarge):
        read(nothing)
    assert nothing.taken < 60
    plain = SentBody([bytes(400)] * 10, "identity")
    with pytest.raises(web.HTTPRequestEntityTooLarge):
        read(plain)
    assert plain.taken == 3
    with pytest.raises(web.HTTPUnsupportedMediaType):
        read(SentBody([], "br"))


def test_a_body_that_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.05)
    with pytest.raises(web.HTTPRequestTimeout, match="did not come within"):
        read(SentBody([b"x"] * 1000, "identity", 0.02), 10_000)


def find_depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(find_depth, inner), default=0)


@pytest.mark.parametrize("seed", range(60))
def test_nesting_is_what_the_parser_finds(seed: int) -> None:
    rng = random.Random(seed)
    value: Any = 1
    depth = rng.randint(DEPTH - 3, DEPTH + 3)
    for _ in range(depth):
        text = "".join(rng.choice('[]{}"\\a') for _ in range(rng.randrange(6)))
        value = rng.choice(([text, value], {text: value, text + "b": [text]}, [value, [], {}]))
    data = json.dumps(value, indent=rng.choice((None, 1))).encode()
    found = find_depth(value)
    if found <= DEPTH:
        assert parse_json(data, "body") == value
    else:
        with pytest.raises(InvalidArgument, match=f"more than {DEPTH} nested levels"):
            parse_json(data, "body")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"[" * 2_000_000, "nested levels"),
        (b'{"":' * 500_000, "over the limit"),
        (b"[" + b"{}," * OBJECTS + b"{}]", f"over the limit {OBJECTS}"),
        (b'"' + b'\\"' * 1_000_000, "not JSON"),
        (b'{"a":1,"b":2,"a":3}', "'a' occurs 2 times"),
        (b"-Infinity", "-Infinity is not a number"),
        (b"\xff", "UTF-8"),
        (b"9" * 5000, "not JSON"),
        (b"", "not JSON"),
    ],
)
def test_bad_json_is_told(data: bytes, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        parse_json(data, "body")


def test_a_number_that_cannot_be_is_named() -> None:
    for data, field in ((b'[{"a": [1, -1e400]}]', "objects[3][0].a[1]"), (b"NaN", "objects[3]")):
        with pytest.raises(InvalidArgument) as caught:
            parse_json(data, "objects[3]")
        assert [v.field for v in caught.value.violations] == [field]


def test_room_is_for_one_and_for_all() -> None:
    room = BodyRoom()
    held = [room.hold(f"caller{i // BODIES_EACH}") for i in range(BODIES)]
    for each in held:
        each.__enter__()
    for identity, words in (("caller0", "of one identity"), ("new", f"{BODIES} requests")):
        with pytest.raises(ResourceExhausted, match=words), room.hold(identity):
            pass
    held.pop().__exit__(None, None, None)
    with room.hold("new"):
        pass
    assert not (BODIES % BODIES_EACH)
