"""The tokens of a service that runs, as the sequencer keeps and changes them."""

from __future__ import annotations

import numpy as np

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.messages.updates import Status
from ps2stream.protocol.ports import Store
from ps2stream.protocol.tokens import TokensReply, TokensRequest, changed, decode, encode


class TokenTable:
    """Those of `store`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held = store.tokens()

    def change(self, ask: TokensRequest) -> TokensReply:
        """Add or drop, durably, and tell which there are then. Raises StoreFailed."""
        add = decode(ask.add.tobytes()) if len(ask.add) else []
        status, wanted = changed(self._held, add, ask.drop.tobytes().decode())
        if wanted is not self._held:
            try:
                self._store.keep_tokens(wanted)
            except StoreFailed:
                raise
            except Unavailable:
                status = Status.UNAVAILABLE
            else:
                self._held = wanted
        return TokensReply(ask.seq, status, np.frombuffer(encode(self._held), np.uint8))
