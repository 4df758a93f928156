"""The file `tokens` of a data directory: replaced whole, so that it is the old or the new."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from ps2stream.errors import DataDirectoryError, Unavailable
from ps2stream.protocol import tokens
from ps2stream.protocol.tokens import Token
from ps2stream.store.directory import lock_directory, replace_file

NAME = "tokens"
_HEAD = b"ps2stream tokens 1 %08x\n"


def read(directory: Path) -> list[Token]:
    """Returns the tokens; none without the file, so that its loss locks everyone out and lets
    nobody in. Raises DataDirectoryError when it is damaged."""
    path = directory / NAME
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be used: {error.strerror}") from None
    head, _, body = raw.partition(b"\n")
    try:
        if head + b"\n" != _HEAD % zlib.crc32(body):
            raise ValueError("the checksum does not match")
        return tokens.decode(body)
    except ValueError as error:
        raise DataDirectoryError(f"{path} is damaged ({error}); restore a copy") from None


def write(directory: Path, held: Sequence[Token]) -> None:
    """Replaces the tokens; durable when it returns. Raises Unavailable, with the old file in its
    place."""
    path = directory / NAME
    body = tokens.encode(held)
    try:
        replace_file(path, _HEAD % zlib.crc32(body) + body)
    except OSError as error:
        raise Unavailable(f"{path} could not be written: {error.strerror}") from None


class FileTokens:
    """The part of a Store that keeps tokens in the file of its data directory."""

    path: Path

    def tokens(self) -> Sequence[Token]:
        return read(self.path)

    def keep_tokens(self, tokens: Sequence[Token]) -> None:
        write(self.path, tokens)


class FileTokenStore(FileTokens):
    """The tokens of a directory that no service uses; holds its lock. A context manager."""

    def __init__(self, path: Path) -> None:
        """Makes the directory if need be. Raises DataDirectoryError, also when a service
        runs on it."""
        self.path = path
        self._lock = lock_directory(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()
