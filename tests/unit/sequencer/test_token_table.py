"""The tokens of a running service, over restarts and with stores that fail."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.tokens import Token, TokensRequest, decode, encode, make
from ps2stream.security import AccessScope
from ps2stream.sequencer.token_table import TokenTable
from ps2stream.store.memory import MemoryStore

ONE, TWO = (
    make(bytes([i]) * 40, "", frozenset({AccessScope.PUBLISH}), created_ms=i).token for i in (1, 2)
)


def change(table: TokenTable, *add: Token, drop: str = "") -> tuple[int, list[Token]]:
    raw = np.frombuffer(encode(add) if add else b"", np.uint8)
    reply = table.change(TokensRequest(0, 7, raw, np.frombuffer(drop.encode(), np.uint8)))
    assert reply.seq == 7
    return reply.status, list(decode(reply.tokens.tobytes()))


def test_tokens_are_kept_until_they_are_dropped() -> None:
    store = MemoryStore()
    assert change(TokenTable(store)) == (UpdateStatus.OK, [])
    assert change(TokenTable(store), ONE, TWO) == (UpdateStatus.OK, [ONE, TWO])
    table = TokenTable(store)
    assert change(table) == (UpdateStatus.OK, [ONE, TWO])
    assert change(table, drop=ONE.id) == (UpdateStatus.OK, [TWO])
    assert change(TokenTable(store)) == (UpdateStatus.OK, [TWO])


def test_a_change_that_is_refused_changes_nothing() -> None:
    store = MemoryStore()
    table = TokenTable(store)
    change(table, ONE)
    assert change(table, TWO, ONE) == (UpdateStatus.ALREADY_EXISTS, [ONE])
    assert change(table, TWO, drop="0" * 16) == (UpdateStatus.NOT_FOUND, [ONE])
    assert list(store.tokens()) == [ONE]


class RefusingStore(MemoryStore):
    """Keeps no tokens while it has a `problem`."""

    problem: Exception | None = None

    def keep_tokens(self, tokens: Sequence[Token]) -> None:
        if self.problem is not None:
            raise self.problem
        super().keep_tokens(tokens)


def test_reading_the_tokens_writes_nothing() -> None:
    """Each dispatcher reads them every second, also while the disk is full."""
    store = RefusingStore()
    table = TokenTable(store)
    change(table, ONE)
    store.problem = Unavailable("full")
    assert change(table) == (UpdateStatus.OK, [ONE])


def test_a_full_store_changes_nothing_and_is_tried_again() -> None:
    store = RefusingStore()
    table = TokenTable(store)
    store.problem = Unavailable("the disk is full")
    assert change(table, ONE) == (UpdateStatus.UNAVAILABLE, [])
    assert (list(store.tokens()), change(table)[1]) == ([], [])
    store.problem = None
    assert change(table, ONE) == (UpdateStatus.OK, [ONE])


def test_an_open_outcome_is_not_answered() -> None:
    store = RefusingStore()
    store.problem = StoreFailed("I/O error")
    with pytest.raises(StoreFailed):
        change(TokenTable(store), ONE)
