"""State and events of the service for all open pages; without a page nothing is requested."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from ps2stream.client.answers import WatchedObject, WatchReport
from ps2stream.client.async_client import AsyncClient
from ps2stream.errors import NotFound, Ps2StreamError, ResourceExhausted
from ps2stream.web.mailbox import PageEvent, PageMailbox
from ps2stream.web.own import DrawnQueries
from ps2stream.web.shapes import Feature, plan_picture, query_feature

MAX_PAGES = 32
MAX_REGIONS = 1000
"""Queries whose regions are shown, besides those that matches name."""
MAX_KNOWN = 4000
MAX_LOOKUPS = 8
"""Queries that are looked up at a time."""
MAX_BATCHES = 4096
"""Batches of a second whose latency counts."""
HISTORY_S = 120
STATUS_S, LOAD_S, QUERIES_S = 2.0, 5.0, 15.0
LOST_S = 0.5
"""Pause before a lost service is asked again."""
FAILURES = (Ps2StreamError, TimeoutError)
Step = Callable[[], Awaitable[None]]


class PageHub:
    """All pages of one map. `own` are the queries that were drawn on it; `others` are
    dispatchers whose objects are shown, too."""

    def __init__(
        self, client: AsyncClient, own: DrawnQueries, others: Sequence[AsyncClient] = ()
    ) -> None:
        self.own = own
        self.plan: dict[str, Any] = {}
        self._client = client
        self._others = tuple(others)
        self._away: dict[str, str | None] = {}  # by dispatcher: why; None while it is there
        self._pages: set[PageMailbox] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._state: PageEvent = {}  # what each page is sent when it opens
        self._known: dict[str, Feature] = {}
        self._asked: set[str] = set()
        self._lookups: set[asyncio.Task[None]] = set()
        self._accepted = self._matched = 0
        self._latency: list[float] = []
        self._history = deque[PageEvent](maxlen=HISTORY_S)
        own.tell = self.tell

    @property
    def pages(self) -> int:
        """Number of open pages."""
        return len(self._pages)

    def join(self) -> PageMailbox:
        """Opens a page. Raises ResourceExhausted beyond MAX_PAGES."""
        if len(self._pages) >= MAX_PAGES:
            raise ResourceExhausted(f"{MAX_PAGES} pages are open, the limit (pages)")
        page = PageMailbox()
        self._pages.add(page)
        if not self._tasks:
            self._begin_tasks()
        page.put(
            self._state
            | {"mine": self.own.features(), "history": list(self._history)}
            | {"queries": list(self._known.values())[-MAX_REGIONS:]}
        )
        return page

    def leave(self, page: PageMailbox) -> None:
        """Removes a page that is gone."""
        self._pages.discard(page)
        if not self._pages:
            self._end_tasks()

    def tell(self, event: PageEvent) -> None:
        """Sends an event to every page at once."""
        for page in self._pages:
            page.put(event)

    async def close(self) -> None:
        """Ends all requests to the service."""
        tasks = [*self._tasks, *self._lookups]
        self._end_tasks()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin_tasks(self) -> None:
        steps: list[Coroutine[Any, Any, None]] = [
            self._watch_dispatcher(self._client, self._take_watched),
            *(self._watch_dispatcher(other, self._take_objects) for other in self._others),
            self._send_seconds(),
            self._repeat_step(STATUS_S, "status", self._fetch_status),
            self._repeat_step(LOAD_S, "load", self._fetch_load),
            self._repeat_step(QUERIES_S, "queries_problem", self._fetch_queries),
            self.own.receive(),
        ]
        self._tasks = [asyncio.create_task(step) for step in steps]

    def _end_tasks(self) -> None:
        for task in (*self._tasks, *self._lookups):
            task.cancel()
        self._tasks = []
        self._asked.clear()
        self._history.clear()
        self._known = {}

    def _keep_state(self, event: PageEvent) -> None:
        """Sends values now, and to each page that opens later."""
        self._state |= event
        self.tell(event)

    async def _watch_dispatcher(
        self, client: AsyncClient, take: Callable[[WatchReport], None]
    ) -> None:
        while True:
            try:
                async with contextlib.aclosing(client.watch()) as stream:
                    async for watched in stream:
                        self._set_link(client.target, None)
                        take(watched)
            except FAILURES as error:
                self._set_link(client.target, str(error) or "no answer in time")
            await asyncio.sleep(LOST_S)

    def _set_link(self, target: str, why: str | None) -> None:
        """Records whether this dispatcher is there, and sends it to the pages if it changed."""
        if self._away.get(target, "") == why:
            return
        self._away[target] = why
        lost = [target for target, why in self._away.items() if why is not None]
        link = {"up": not lost, "server": ", ".join(lost or self._away)}
        self._keep_state({"link": link | ({"why": self._away[lost[0]]} if lost else {})})
        if why is None:
            self.tell({"forget": True})  # what was withdrawn meanwhile is not known

    def _take_objects(self, watched: WatchReport) -> None:
        """Takes what one dispatcher alone knows; all of them report the same matches."""
        self._accepted += watched.accepted
        self._latency += watched.latency_ms[: MAX_BATCHES - len(self._latency)]
        event: PageEvent = {"missed": watched.missed} if watched.missed else {}
        if watched.objects:
            event["objects"] = [_describe_object(o) for o in watched.objects]
        if watched.withdrawn:
            event["withdrawn"] = list(watched.withdrawn)
        if event:
            self.tell(event)

    def _take_watched(self, watched: WatchReport) -> None:
        self._take_objects(watched)
        self._matched += watched.matched
        # Matches of the map's own queries arrive through their session, every one of them.
        matches = [m for m in watched.matches if not self.own.has(m.query_id)]
        if matches:
            found = [_describe_object(m.object) | {"query": m.query_id} for m in matches]
            self.tell({"matches": found})
            for match in matches:
                self._look_up(match.query_id)

    def _look_up(self, id: str) -> None:
        if id in self._known or id in self._asked or len(self._asked) >= MAX_LOOKUPS:
            return

        async def ask() -> None:
            try:
                self._keep_queries([query_feature(await self._client.get(id), self.own.has(id))])
            except NotFound:
                self._known[id] = {"properties": {"id": id}, "geometry": None}
            except FAILURES:
                pass  # requested again at its next match
            finally:
                self._asked.discard(id)

        self._asked.add(id)
        task = asyncio.create_task(ask())
        self._lookups.add(task)
        task.add_done_callback(self._lookups.discard)

    def _keep_queries(self, features: list[Feature]) -> None:
        for feature in features:
            self._known[feature["properties"]["id"]] = feature
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self.tell({"queries": features})

    async def _send_seconds(self) -> None:
        """Sends the chart's numbers, once a second."""
        since = time.monotonic()
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            accepted, self._accepted = self._accepted, 0
            matched, self._matched = self._matched, 0
            latency, self._latency = self._latency, []
            second: PageEvent = {
                "objects": round(accepted / (now - since), 1),
                "matches": round(matched / (now - since), 1),
                "p50": None,
                "p99": None,
            }
            if latency:
                second["p50"], second["p99"] = np.percentile(latency, [50, 99]).round(2).tolist()
            since = now
            self._history.append(second)
            self.tell({"seconds": [second]})

    async def _repeat_step(self, seconds: float, name: str, step: Step) -> None:
        """Repeats a step every so many seconds; sends a failure as `name`: {"problem": ...}."""
        while True:
            try:
                await step()
            except FAILURES as error:
                self._keep_state({name: {"problem": str(error) or "no answer in time"}})
            await asyncio.sleep(seconds)

    async def _fetch_status(self) -> None:
        found = await self._client.status()
        names = ("live_queries", "in_flight", "streams", "dispatcher", "version")
        self._keep_state({"status": {name: found[name] for name in names}})

    async def _fetch_load(self) -> None:
        load = await self._client.load()
        if load["plan_version"] != self.plan.get("version"):
            raw = await self._client.plan()
            self.plan = await asyncio.to_thread(plan_picture, raw)
        names = (
            "plan_version",
            "following_version",
            "coexisting",
            "period_s",
            "balance",
            "workers",
            "hottest",
            "leaves",
            "replicated",
        )
        self._keep_state({"load": {name: load[name] for name in names}})

    async def _fetch_queries(self) -> None:
        features = []
        async for query in self._client.list():
            features.append(query_feature(query, self.own.has(query.id)))
            if len(features) == MAX_REGIONS:
                break
        self._known = {f["properties"]["id"]: f for f in features}
        self._keep_state({"queries_problem": None})
        self.tell({"regions": features})


def _describe_object(o: WatchedObject) -> PageEvent:
    return {"id": o.id, "lon": o.lon, "lat": o.lat, "text": o.text, "time": o.time_ms}
