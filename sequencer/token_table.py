"""The tokens of a running service, which the sequencer keeps and changes."""

from __future__ import annotations

import numpy as np

from ps2stream.errors import StoreFailed, Unavailable
from ps2stream.protocol.messages.updates import UpdateStatus
from ps2stream.protocol.ports import Store
from ps2stream.protocol.tokens import TokensReply, TokensRequest, changed, decode, encode


class TokenTable:
    """The tokens of `store`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tokens = store.tokens()

    def change(self, request: TokensRequest) -> TokensReply:
        """Adds or drops tokens, durably, and replies with all of them. Raises StoreFailed."""
        add = decode(request.add.tobytes()) if len(request.add) else []
        status, wanted = changed(self._tokens, add, request.drop.tobytes().decode())
        if wanted is not self._tokens:
            try:
                self._store.keep_tokens(wanted)
            except StoreFailed:
                raise
            except Unavailable:
                status = UpdateStatus.UNAVAILABLE
            else:
                self._tokens = wanted
        return TokensReply(request.seq, status, np.frombuffer(encode(self._tokens), np.uint8))
