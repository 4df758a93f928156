"""The in-process runtime: every machine in one process, without a network between them.

It is the fastest embedded mode and the easiest to debug: a message is passed as the value that
it is, and the thread that publishes does the matching.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from ps2stream.cluster.dispatcher_driver import DispatcherDriver
from ps2stream.cluster.dispatcher_edge import DispatcherEdge, begin_call
from ps2stream.cluster.event_queue import EventQueue
from ps2stream.cluster.logs import LogReporter
from ps2stream.cluster.topology import Topology
from ps2stream.dispatcher.events import (
    Event,
    LogFailed,
    LogSynced,
    StatusRequested,
    StopBegun,
    TickPassed,
)
from ps2stream.errors import DataDirectoryError, NothingDone, Unavailable
from ps2stream.observability.meter import StageMeter, matched
from ps2stream.observability.process import counters_of, log_figures, wall_clock_ms
from ps2stream.protocol.addresses import CONTROLLER, SEQUENCER, Address, Send
from ps2stream.protocol.messages.updates import UpdateRequest
from ps2stream.protocol.ports import Log, Store
from ps2stream.store.group_sync import sync_logs
from ps2stream.store.memory import MemoryLog

log = logging.getLogger("ps2stream.cluster")
RuntimeEvent = tuple[Address, Event] | TickPassed | StatusRequested
"""An event of a dispatcher, or one of the runtime itself."""
LOGGED = ("dispatcher", "merger")
"""The roles that have a log."""


class LocalRuntime:
    """All machines, behind one queue of events; `edges[i]` is the edge of dispatcher i. `open_log`
    opens the log of a dispatcher or merger, and `make_log` makes that of one that joins.

    Events are taken in between two steps. In a step one machine handles all that has gathered for
    it: first the sequencer, then workers and mergers; then the logs are synced; and only then do
    dispatchers route what came meanwhile.
    """

    def __init__(
        self,
        topology: Topology,
        store: Store,
        open_log: Callable[[Address], Log] = lambda _: MemoryLog(),
        meter: Callable[[], StageMeter] = StageMeter,
        make_log: Callable[[Address], None] = lambda _: None,
    ) -> None:
        self._events: EventQueue[RuntimeEvent] = EventQueue(self._handle_events, _refuse_event)
        epochs = {peer: store.epoch(*peer) for peer in topology.addresses()}
        self._topology = topology
        self._store = store
        self._open_log, self._make_log = open_log, make_log
        self._unmade = ""  # why an actor that joins has no log yet
        self._sequencer = topology.sequencer(store, epochs[SEQUENCER], restarts=True)
        self._controller = topology.controller(epochs[CONTROLLER])
        self._workers = [topology.worker(i) for i in range(topology.workers)]
        self._epochs = epochs
        self._make_meter = meter
        self._meters = {peer: meter() for peer in epochs}
        self._logs = {peer: open_log(peer) for peer in epochs if peer.role in LOGGED}
        self._reporters = {peer: LogReporter(peer, log) for peer, log in self._logs.items()}
        self._mergers = [
            topology.merger(i, self._logs[Address("merger", i)]) for i in range(topology.mergers)
        ]
        self._unsynced: set[Address] = set()
        self._held: list[Send] = []  # what mergers send once their logs are synced
        self._routing: set[Address] = set()  # dispatchers that have more to do without events
        self._busy: set[int] = set()  # mergers that send more in a turn without messages
        self._drivers: list[DispatcherDriver] = []
        self.edges: list[DispatcherEdge] = []
        for i in range(topology.dispatchers):
            self._add_dispatcher(Address("dispatcher", i))
        self._inboxes: dict[Address, list[Any]] = {}
        self._make_inboxes()
        self._post_sends(self._sequencer.tick(wall_clock_ms()))
        while self._handle_events([]):
            pass

    def tick(self) -> None:
        """Does the periodic work; to be called ten times a second."""
        self._events.put(TickPassed())

    def status(self) -> dict[str, Any]:
        """Returns the counters of every machine, by name (`worker-0`). Raises Unavailable after
        `close`."""
        found: dict[Address, dict[str, Any]] = {}
        for i, edge in enumerate(self.edges[:]):
            with suppress(Unavailable):  # it has left
                found[Address("dispatcher", i)] = edge.status()
        call = begin_call()
        self._events.put(StatusRequested(call))
        found |= call.result()
        common = {peer: {"up": 1, "epoch": self._epochs.get(peer, 0)} for peer in found}
        return {f"{p.role}-{p.index}": common[p] | status for p, status in found.items()}

    def close(self) -> None:
        """Closes the logs, of which those of dispatchers tell then how far objects are complete.
        Calls that come afterwards end with Unavailable."""
        dispatchers = [Address("dispatcher", i) for i in range(len(self._drivers))]
        with ExitStack() as ends:  # all logs, also after something that fails
            for log in self._logs.values():
                ends.callback(log.close)
                ends.callback(log.sync)
            for merger in self._mergers:
                ends.callback(merger.end)
            self._events.end(*((address, StopBegun()) for address in dispatchers))

    # --- the turn of a thread -------------------------------------------------

    def _handle_events(self, events: list[RuntimeEvent]) -> bool:
        for event in events:
            match event:
                case TickPassed():
                    self._tick_machines()
                case StatusRequested(call):
                    call.set_result(self._list_figures())
                case (to, what):
                    if (inbox := self._inboxes.get(to)) is not None:
                        inbox.append(what)
                    else:
                        _refuse_event(event)  # a dispatcher that has left
        return (
            self._handle_inbox(of_dispatchers=False)
            or self._sync_logs()
            or self._handle_inbox(of_dispatchers=True)
            or self._continue_mergers()
        )

    def _handle_inbox(self, of_dispatchers: bool) -> bool:
        """Lets the first machine that has messages, a dispatcher or another one, handle them."""
        for to, inbox in self._inboxes.items():
            is_dispatcher = to.role == "dispatcher"
            if is_dispatcher is of_dispatchers and (inbox or to in self._routing):
                self._inboxes[to] = []
                self._handle_frames(to, inbox)
                return True
        return False

    def _handle_frames(self, to: Address, frames: list[Any]) -> None:
        if to.role == "dispatcher":
            more = self._drivers[to.index].handle(frames)
            (self._routing.add if more else self._routing.discard)(to)
        elif to.role == "worker":
            for frame in frames:
                self._post_sends(matched(self._workers[to.index], frame, self._meters[to]))
        elif to.role == "merger":
            self._turn_merger(to.index, frames)
        elif to.role == "controller":
            for frame in frames:
                self._post_sends(self._controller.on(frame))
        else:
            updates = [frame for frame in frames if isinstance(frame, UpdateRequest)]
            if updates:
                self._post_sends(self._sequencer.append(updates))
            for frame in frames:
                if not isinstance(frame, UpdateRequest):
                    self._post_sends(self._sequencer.on(frame))

    def _post_sends(self, sends: list[Send]) -> None:
        for to, frame in sends:
            if (inbox := self._inboxes.get(to)) is not None:  # otherwise it was stopped
                inbox.append(frame)

    def _turn_merger(self, merger: int, frames: list[Any]) -> None:
        address = Address("merger", merger)
        with self._meters[address].time("merge"):
            turn = self._mergers[merger].take_turn(frames)
        (self._busy.add if turn.is_busy else self._busy.discard)(merger)
        self._commit_merger(address, turn.sends, turn.must_sync)

    def _commit_merger(self, merger: Address, sends: list[Send], must_sync: bool) -> None:
        """Sends what a merger returned, once what it follows from is durable."""
        if must_sync:
            self._unsynced.add(merger)
        if self._held or must_sync:
            self._held += sends
        else:
            self._post_sends(sends)

    def _sync_logs(self) -> bool:
        """Syncs the logs that have to be, and sends what waited for that."""
        if not self._unsynced and not self._held:
            return False
        ends = sync_logs({peer: (self._logs[peer], self._meters[peer]) for peer in self._unsynced})
        self._unsynced.clear()
        held, self._held = self._held, []
        for peer, end in ends.items():
            if peer.role == "dispatcher":
                event = LogFailed(end) if isinstance(end, Unavailable) else LogSynced(end)
                self._inboxes[peer].append(event)
            elif isinstance(end, Unavailable):
                raise end
        self._post_sends(held)
        return True

    def _continue_mergers(self) -> bool:
        if not self._busy:
            return False
        for merger in tuple(self._busy):
            self._turn_merger(merger, [])
        return True

    # --- periodic work --------------------------------------------------------

    def _tick_machines(self) -> None:
        self._post_sends(self._sequencer.tick(wall_clock_ms()))
        self._post_sends(self._controller.tick())
        self._scale_workers()
        self._scale_mergers()
        self._scale_dispatchers()
        self._report_logs()
        for worker in self._workers:
            self._post_sends(worker.tick())
        for i, merger in enumerate(self._mergers):
            sends = merger.tick(wall_clock_ms())
            self._commit_merger(Address("merger", i), sends, merger.hand_over())
        for i in range(len(self._drivers)):
            self._inboxes[Address("dispatcher", i)].append(TickPassed())

    def _report_logs(self) -> None:
        """Reports to the sequencer how far the logs have come, where that is due."""
        for address, reporter in self._reporters.items():
            if reporter.due:
                if address.role == "merger":
                    highest = self._mergers[address.index].highest
                else:
                    highest = self.edges[address.index].machine.router.offset
                self._post_sends(reporter.report(highest))

    def _scale_workers(self) -> None:
        """Runs as many workers as the plans need that are in force or requested."""
        wanted = self._sequencer.run_actors("worker", len(self._workers))
        if wanted != len(self._workers):
            more = range(len(self._workers), wanted)
            self._workers = self._workers[:wanted] + [self._topology.worker(i) for i in more]
            self._make_inboxes()
            self._sequencer.run_actors("worker", wanted)

    def _scale_mergers(self) -> None:
        """Runs as many mergers as the tables of sessions need, or were requested."""
        wanted = self._sequencer.run_actors("merger", len(self._mergers))
        if wanted == len(self._mergers):
            return
        while len(self._mergers) < wanted:
            merger = Address("merger", len(self._mergers))
            if (log := self._add_log(merger)) is None:
                break
            self._mergers.append(self._topology.merger(merger.index, log))
        while len(self._mergers) > wanted and not self._held:
            self._remove_merger(Address("merger", len(self._mergers) - 1))
        self._make_inboxes()
        self._sequencer.run_actors("merger", len(self._mergers))

    def _scale_dispatchers(self) -> None:
        """Runs as many dispatchers as count, or were requested."""
        wanted = self._sequencer.run_actors("dispatcher", len(self._drivers))
        if wanted == len(self._drivers):
            return
        while len(self._drivers) < wanted:
            dispatcher = Address("dispatcher", len(self._drivers))
            if self._add_log(dispatcher) is None:
                break
            self._add_dispatcher(dispatcher)
        while len(self._drivers) > wanted:
            self._remove_dispatcher(Address("dispatcher", len(self._drivers) - 1))
        self._make_inboxes()
        self._sequencer.run_actors("dispatcher", len(self._drivers))

    def _add_log(self, owner: Address) -> Log | None:
        """Makes and opens the log of an actor that joins. Returns None if it cannot join now, which
        is logged once; that is tried again."""
        try:
            self._make_log(owner)
            found = self._logs[owner] = self._open_log(owner)
        except (Unavailable, DataDirectoryError) as error:
            if str(error) != self._unmade:
                self._unmade = str(error)
                log.warning("%s-%d was not started; retrying: %s", *owner, error)
            return None
        self._unmade = ""
        self._epochs[owner] = self._store.epoch(*owner)
        self._meters.setdefault(owner, self._make_meter())
        self._reporters[owner] = LogReporter(owner, found)
        return found

    def _remove_merger(self, merger: Address) -> None:
        self._mergers.pop().end()
        self._busy.discard(merger.index)
        self._remove_log(merger)

    def _remove_dispatcher(self, dispatcher: Address) -> None:
        self.edges.pop()
        self._drivers.pop()
        self._routing.discard(dispatcher)
        self._remove_log(dispatcher)

    def _remove_log(self, owner: Address) -> None:
        """Closes the log of an actor that is needed no more."""
        self._unsynced.discard(owner)
        del self._reporters[owner]
        log = self._logs.pop(owner)
        log.sync()
        log.close()

    # --- parts ----------------------------------------------------------------

    def _add_dispatcher(self, address: Address) -> None:
        log, meter = self._logs[address], self._meters[address]
        machine = self._topology.dispatcher(address.index, self._epochs[address], log, meter)
        wake = partial(self._unsynced.add, address)
        self._drivers.append(DispatcherDriver(machine, log, self._post_sends, wake))
        put: Callable[[Event], None] = lambda event: self._events.put((address, event))  # noqa: E731
        self.edges.append(DispatcherEdge(machine, self._topology, self._store.identity, put))

    def _make_inboxes(self) -> None:
        """Makes the inboxes of all machines that run, in the order of the data flow."""
        workers = [Address("worker", i) for i in range(len(self._workers))]
        mergers = [Address("merger", i) for i in range(len(self._mergers))]
        dispatchers = [Address("dispatcher", i) for i in range(len(self._drivers))]
        order = (SEQUENCER, CONTROLLER, *workers, *mergers, *dispatchers)
        self._inboxes = {peer: self._inboxes.get(peer, []) for peer in order}
        for peer in workers:
            self._meters.setdefault(peer, self._make_meter())

    def _list_figures(self) -> dict[Address, dict[str, Any]]:
        machines: dict[Address, Any] = {
            SEQUENCER: self._sequencer,
            CONTROLLER: self._controller,
            **{Address("worker", i): w for i, w in enumerate(self._workers)},
            **{Address("merger", i): m for i, m in enumerate(self._mergers)},
        }
        found = {peer: self._figures_of(peer, machine) for peer, machine in machines.items()}
        found[SEQUENCER] |= log_figures(self._store.find_problem())
        return found

    def _figures_of(self, peer: Address, machine: object) -> dict[str, Any]:
        meter, log = self._meters.get(peer), self._logs.get(peer)
        found: dict[str, Any] = {} if meter is None else {"stages": meter.stages}
        if log is not None:
            found |= log_figures(log.problem, log.bytes)
        return found | counters_of(machine)


def _refuse_event(event: RuntimeEvent) -> None:
    """Answers a call that came after the end, which would wait for ever, and of which nothing was
    done; a machine's message to another one needs no answer."""
    what: Any = event if isinstance(event, TickPassed | StatusRequested) else event[1]
    if (call := getattr(what, "call", None)) is not None:
        call.set_exception(NothingDone("this dispatcher has stopped"))
