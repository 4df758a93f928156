"""The machines of a service of one dispatcher and one merger, wired by hand: each message is
encoded, decoded and handled in steps of a clock.

It does what the shells of actors do, on one thread and without sockets: messages to one receiver
travel together, logs are synced before what follows from them is sent, and the dispatcher's log is
synced when its machine says so.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ps2stream.benchmarks.step_clock import StepClock
from ps2stream.cluster.dispatcher_driver import DispatcherDriver
from ps2stream.cluster.dispatcher_edge import DispatcherEdge
from ps2stream.cluster.event_queue import EventQueue
from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.events import Event, LogSynced, TickPassed
from ps2stream.observability.meter import StageMeter, matched
from ps2stream.observability.process import wall_clock_ms
from ps2stream.protocol.addresses import SEQUENCER, Address, Send
from ps2stream.protocol.frame import Frame, decode
from ps2stream.protocol.messages.objects import (
    MatchBatch,
    MatchRelease,
    ReleasesKept,
    RoutedObjects,
)
from ps2stream.protocol.messages.sessions import DeliveryArrivals, StreamCredit, StreamDelivery
from ps2stream.protocol.messages.updates import (
    AppliedReport,
    LedgerBatch,
    LedgerTip,
    MergerQueries,
    UpdateDecision,
    UpdateRequest,
    WorkerUpdates,
)
from ps2stream.store.places import StoragePlace
from ps2stream.workers.machine import WorkerMachine

DISPATCHER, MERGER = Address("dispatcher", 0), Address("merger", 0)


class MessageSteps(NamedTuple):
    """The names of the steps of a message: encoding, decoding and handling it."""

    encode: str
    decode: str
    handle: str


def _name_alike(name: str) -> MessageSteps:
    return MessageSteps(name, name, name)


RELAY = MessageSteps("encode_for_stream", "decode_for_stream", "relay")
STEPS: dict[type[Frame], MessageSteps] = {
    RoutedObjects: MessageSteps("encode_for_worker", "decode_at_worker", "match"),
    MatchBatch: MessageSteps("encode_matches", "decode_matches", "gather"),
    MatchRelease: MessageSteps("encode_for_merger", "decode_at_merger", "record_and_sessions"),
    StreamDelivery: RELAY,
    ReleasesKept: RELAY,
    StreamCredit: _name_alike("credit"),
    DeliveryArrivals: _name_alike("credit"),
    UpdateRequest: MessageSteps("encode_request", "decode_request", "decide"),
    LedgerBatch: MessageSteps("encode_decisions", "decode_decisions", "apply_at_dispatcher"),
    WorkerUpdates: MessageSteps("encode_for_worker", "decode_at_worker", "apply_at_worker"),
    MergerQueries: MessageSteps("encode_for_merger", "decode_at_merger", "apply_at_merger"),
    UpdateDecision: _name_alike("acknowledge"),
    AppliedReport: _name_alike("acknowledge"),
    LedgerTip: _name_alike("acknowledge"),
}
OTHER = _name_alike("other_messages")


def find_steps(to: Address, kind: type[Frame]) -> MessageSteps:
    """Returns the steps of a message of this kind, or of the one that it refines."""
    return next((STEPS[each] for each in kind.__mro__ if each in STEPS), OTHER)


def ignore_message(to: Address, frames: Sequence[Frame], encoded: Sequence[bytes]) -> None:
    """Does nothing with a message."""


class MachineChain:
    """One dispatcher, merger and sequencer, and the workers of the plan, with ledger and logs in
    `place`. `edge` takes the service's calls; messages wait until `run`. `name_steps` names the
    steps of a message by its receiver and the kind of its first frame; `observe` is called with
    the receiver, the frames and the encoded frames of each message."""

    def __init__(
        self,
        topology: Topology,
        place: StoragePlace,
        clock: StepClock,
        name_steps: Callable[[Address, type[Frame]], MessageSteps] = find_steps,
        observe: Callable[[Address, Sequence[Frame], Sequence[bytes]], None] = ignore_message,
    ) -> None:
        self._clock, self._name_steps, self._observe = clock, name_steps, observe
        self.store = place.open_ledger(json.dumps(topology.plan.analysis.to_dict()))
        epochs = {peer: self.store.epoch(*peer) for peer in topology.addresses()}
        self._logs = {peer: place.open_log(peer.role) for peer in (DISPATCHER, MERGER)}
        self._meter = StageMeter()
        self._posted: deque[list[Send]] = deque()
        self._is_unsynced = False
        self.sequencer = topology.sequencer(self.store, epochs[SEQUENCER], restarts=True)
        self.workers = [topology.worker(i) for i in range(topology.workers)]
        self._merger = topology.merger(0, self._logs[MERGER])
        log = self._logs[DISPATCHER]
        machine = topology.dispatcher(0, epochs[DISPATCHER], log, self._meter)
        self.router = machine.router
        driver = DispatcherDriver(machine, log, self._posted.append, self._note_unsynced)
        self._events: EventQueue[Event] = EventQueue(driver.handle)
        self.edge = DispatcherEdge(machine, topology, self.store.identity, self._events.put)
        self._handlers: dict[Address, Callable[[list[Any]], None]] = {
            DISPATCHER: lambda frames: self._events.put(*frames),
            MERGER: self._handle_at_merger,
            SEQUENCER: self._handle_at_sequencer,
        }
        for worker in self.workers:
            handle = partial(self._handle_at_worker, worker)
            self._handlers[Address("worker", worker.index)] = handle
        self.tick()

    def run(self) -> None:
        """Lets the machines handle all messages."""
        while self._posted or self._is_unsynced:
            if self._is_unsynced:
                self._sync_objects()
            else:
                self._carry_messages(self._posted.popleft())

    def tick(self) -> None:
        """Does the periodic work of the machines, and handles what follows from it."""
        self._posted.append(self.sequencer.tick(wall_clock_ms()))
        for worker in self.workers:
            self._posted.append(worker.tick())
        sends = self._merger.tick(wall_clock_ms())
        self._commit_matches(sends, self._merger.hand_over())
        self._events.put(TickPassed())
        self.run()

    def log_bytes(self) -> dict[str, int]:
        """Returns the bytes of the records that each log has been given, by role."""
        return {peer.role: log.end for peer, log in self._logs.items()}

    def close(self) -> None:
        """Closes logs and ledger."""
        for log in self._logs.values():
            log.close()
        self.store.close()

    def _note_unsynced(self) -> None:
        self._is_unsynced = True

    def _carry_messages(self, sends: list[Send]) -> None:
        """Carries messages to their receivers, those to one of them together."""
        by_peer: dict[Address, list[Frame]] = {}
        for to, frame in sends:
            by_peer.setdefault(to, []).append(frame)
        for to, frames in by_peer.items():
            if to not in self._handlers:
                continue  # the controller, which this service does without
            steps = self._name_steps(to, type(frames[0]))
            with self._clock.step(steps.encode):
                encoded = [frame.encode() for frame in frames]
            self._observe(to, frames, encoded)
            with self._clock.step(steps.decode):
                decoded = [decode(data) for data in encoded]
            with self._clock.step(steps.handle):
                self._handlers[to](decoded)

    def _handle_at_worker(self, worker: WorkerMachine, frames: list[Frame]) -> None:
        for frame in frames:
            self._posted.append(matched(worker, frame, self._meter))

    def _handle_at_merger(self, frames: list[Frame]) -> None:
        with self._meter.time("merge"):
            turn = self._merger.take_turn(frames)
        self._commit_matches(turn.sends, turn.must_sync)
        while turn.is_busy:
            turn = self._merger.take_turn([])
            self._commit_matches(turn.sends, turn.must_sync)

    def _handle_at_sequencer(self, frames: list[Frame]) -> None:
        requests = [frame for frame in frames if isinstance(frame, UpdateRequest)]
        if requests:
            self._posted.append(self.sequencer.append(requests))
        for frame in frames:
            if not isinstance(frame, UpdateRequest):
                self._posted.append(self.sequencer.on(frame))

    def _commit_matches(self, sends: list[Send], must_sync: bool) -> None:
        if must_sync:
            with self._clock.step("sync_match_log"):
                self._logs[MERGER].sync()
        self._posted.append(sends)

    def _sync_objects(self) -> None:
        self._is_unsynced = False
        with self._clock.step("sync_object_log"):
            end = self._logs[DISPATCHER].sync()
        with self._clock.step("answer"):
            self._events.put(LogSynced(end))
