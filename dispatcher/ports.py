"""The ports of the dispatcher's machine: to its router machine, and to a worker's index, by which
queries are explained and priced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from ps2stream.dispatcher.gridt import Gridt
from ps2stream.dispatcher.hot_units import HotUnitCounter
from ps2stream.dispatcher.literal_table import LiteralTable
from ps2stream.dispatcher.reservoir import ObjectSample
from ps2stream.dispatcher.retro_queue import RetroQueue
from ps2stream.dispatcher.shedding import LoadShedding
from ps2stream.protocol.addresses import Address, Reply, Send
from ps2stream.protocol.frame import F64, I64, U8, U32, U64, Array, Frame
from ps2stream.protocol.log_records import RetroRecord
from ps2stream.protocol.messages.loads import HotUnitsRequest
from ps2stream.protocol.messages.objects import MatchBatch
from ps2stream.protocol.messages.updates import UpdateRequest
from ps2stream.protocol.producer_map import ProducerMap
from ps2stream.protocol.rows import ObjectRows, QueryRows
from ps2stream.protocol.session_map import SessionMaps
from ps2stream.space.grid import Grid


class PublishingRouter(Protocol):
    """The port to `ps2stream.dispatcher.router.RouterMachine`, as publications need it."""

    index: int
    epoch: int
    max_in_flight: int
    shedding: LoadShedding

    @property
    def producers(self) -> ProducerMap: ...
    @property
    def dispatchers(self) -> int: ...
    @property
    def counted(self) -> int: ...
    @property
    def is_current(self) -> bool: ...
    @property
    def applied(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def oldest(self) -> int: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def active(self) -> int: ...
    @property
    def ready(self) -> bool: ...
    def publish(
        self, rows: ObjectRows, may_shed: Array | None = None
    ) -> tuple[int, int, list[Send]]: ...
    def reserve(self, rows: ObjectRows) -> tuple[int, int]: ...
    def route_reserved(self, batch: int) -> list[Send]: ...


class RetroRouter(Protocol):
    """The same port, as matching against valid objects needs it."""

    index: int
    retro: RetroQueue

    @property
    def producers(self) -> ProducerMap: ...
    @property
    def ready(self) -> bool: ...
    @property
    def offset(self) -> int: ...
    @property
    def reserved_from(self) -> int: ...
    def reserve_found(self, batch: int, size: int, lsn: int) -> None: ...
    def release_found(self, record: RetroRecord, rows: ObjectRows) -> list[Send]: ...


class RouterPort(PublishingRouter, RetroRouter, Protocol):
    """The same port, as the dispatcher's machine needs it."""

    gridt: Gridt
    literals: LiteralTable
    hot_units: HotUnitCounter
    stall_report: str

    @property
    def sessions(self) -> SessionMaps: ...
    @property
    def plan_version(self) -> int: ...
    @property
    def term_counts(self) -> Mapping[str, int] | None: ...
    @property
    def route(self) -> int: ...
    def owned_by(self, handle: int) -> int: ...
    @property
    def undecided(self) -> int: ...
    def update(self, request: UpdateRequest) -> list[Send | Reply]: ...
    def report_hot_units(
        self, request: HotUnitsRequest, find_texts: Callable[[], ObjectSample]
    ) -> Send: ...
    def list_lost_terms(self, find_texts: Callable[[], ObjectSample]) -> dict[str, int]: ...
    def on(self, frame: Frame) -> list[Send | Reply]: ...
    def take_answer(self, frame: MatchBatch, now: float) -> list[Send | Reply]: ...
    def release_late(self, now: float) -> list[Send | Reply]: ...
    def announce_shedding(self, now_ms: int) -> list[Send]: ...
    @property
    def answers_due(self) -> float: ...
    def take_closed(self) -> list[int]: ...
    def joined(self, peer: Address) -> list[Send | Reply]: ...
    def lost(self, peer: Address) -> list[Send | Reply]: ...
    def tick(self) -> list[Send | Reply]: ...


class FoundRows(Protocol):
    """The matches of a batch, in no order; row: the object's row, uint32[n]; handle: of the query,
    int64[n]."""

    @property
    def row(self) -> U32: ...
    @property
    def handle(self) -> I64: ...


class TrialIndex(Protocol):
    """An index of one query, used once: the part of a worker's Index port that this needs."""

    def insert(self, rows: QueryRows, tag_off: I64, tag_cell: U32, tag_term: U64) -> None:
        """Stores the inserts among `rows` under their tags (ragged)."""

    def match(
        self,
        lsn: int,
        lon: F64,
        lat: F64,
        term_off: I64,
        term: U64,
        chosen: U8 = ...,
        value_off: I64 = ...,
        value: U64 = ...,
    ) -> FoundRows:
        """Returns all pairs of objects (degrees; terms and compared values ragged) and queries live
        as of `lsn`; without `chosen` under any term."""
        ...


NewIndex = Callable[[Grid], TrialIndex]
