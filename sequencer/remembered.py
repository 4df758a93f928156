"""The memory that repeated requests are answered from: unsettled answers, recent deletes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np

from ps2stream.protocol.frame import strings_to_column
from ps2stream.protocol.messages.updates import UpdateDecision, UpdateRequest
from ps2stream.protocol.ports import DeleteRequests, SettledAnswer
from ps2stream.sequencer.decide import Key
from ps2stream.sequencer.registry import split


class RequestKey(NamedTuple):
    """The identity of an UpdateRequest."""

    dispatcher: int
    epoch: int
    seq: int


class RememberedAnswers:
    """The answers that the store keeps, and the number below which each dispatcher needs none."""

    def __init__(self, kept: Iterable[SettledAnswer]) -> None:
        self._answers: dict[RequestKey, SettledAnswer] = {}
        self._settled: dict[int, tuple[int, int]] = {}  # epoch, seq
        self.keep(kept)

    def sift(
        self, requests: Iterable[UpdateRequest]
    ) -> tuple[dict[RequestKey, UpdateRequest], dict[RequestKey, UpdateDecision]]:
        """Returns (requests to decide, answers to send again); what is settled is in neither."""
        requests = list(requests)
        for request in requests:
            self._settle_answers(request.dispatcher, request.epoch, request.settled)
        fresh: dict[RequestKey, UpdateRequest] = {}
        known: dict[RequestKey, UpdateDecision] = {}
        for request in requests:
            key = RequestKey(request.dispatcher, request.epoch, request.seq)
            if key[1:] < self._settled[request.dispatcher]:
                continue
            if (answer := self._answers.get(key)) is not None:
                known[key] = answer.decision
            else:
                fresh[key] = request
        return fresh, known

    def make_answer(self, key: RequestKey, decision: UpdateDecision) -> SettledAnswer:
        """Returns the decision as an Answer to be committed with it."""
        return SettledAnswer(*key, self._settled[key.dispatcher][1], decision)

    def keep(self, answers: Iterable[SettledAnswer]) -> None:
        """Keeps committed answers, and drops those that they settle, as the store has done."""
        for answer in answers:
            self._answers[RequestKey(*answer[:3])] = answer
            self._settle_answers(answer.dispatcher, answer.epoch, answer.settled)
        old = [key for key in self._answers if key[1:] < self._settled[key.dispatcher]]
        deque(map(self._answers.pop, old), maxlen=0)

    def _settle_answers(self, dispatcher: int, epoch: int, seq: int) -> None:
        """Notes that a dispatcher needs no answer below this number."""
        known = self._settled.get(dispatcher, (0, 0))
        self._settled[dispatcher] = max(known, (epoch, seq))


class RememberedDeletes:
    """The LSNs of the last `bound` deletes with a request id."""

    def __init__(self, kept: Iterable[DeleteRequests], bound: int) -> None:
        self._bound = bound
        self._recent: dict[Key, int] = {}
        for seen in kept:
            ids, request_ids = split(seen.id_off, seen.id), split(seen.request_off, seen.request)
            self.add(dict(zip(zip(ids, request_ids, strict=True), seen.lsn.tolist(), strict=True)))

    @property
    def recent(self) -> Mapping[Key, int]:
        return self._recent

    @property
    def first(self) -> int:
        """The LSN of the oldest one; 0 without any."""
        return next(iter(self._recent.values()), 0)

    def add(self, requests: Mapping[Key, int]) -> None:
        self._recent.update(requests)
        excess = len(self._recent) - self._bound
        if excess > 0:
            deque(map(self._recent.pop, list(islice(self._recent, excess))), maxlen=0)


def make_delete_requests(deletes: Mapping[Key, int]) -> DeleteRequests | None:
    """Returns the request ids of these deletes, to be committed with them; None without any."""
    if not deletes:
        return None
    ids = strings_to_column(key[0] for key in deletes)
    request_ids = strings_to_column(key[1] for key in deletes)
    return DeleteRequests(np.fromiter(deletes.values(), np.int64, len(deletes)), *ids, *request_ids)
