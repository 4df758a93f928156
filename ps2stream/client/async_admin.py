"""The administrator's calls of the asynchronous client."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any

from ps2stream.client import answers
from ps2stream.client.answers import MigrationHistory, TokenInfo
from ps2stream.client.async_caller import ADMIN, AsyncCaller
from ps2stream.client.async_channel import AsyncReports
from ps2stream.client.inputs import import_frames, request_of
from ps2stream.client.requests import Query
from ps2stream.client.scaling import DispatcherScale, MergerScale
from ps2stream.errors import invalid
from ps2stream.limits import PLAN_BYTES
from ps2stream.v1 import admin_pb2

if TYPE_CHECKING:
    import pyarrow as pa


class AsyncAdminCaller(AsyncCaller):
    """Calls that need the scope admin, and `watch`, which any caller may use."""

    async def status(self) -> dict[str, Any]:
        """Returns the state of the dispatcher: version, live_queries, in_flight, problems, counters
        and more. Needs the scope admin."""
        request = admin_pb2.GetStatusRequest()
        return answers.status_of(
            await self._call_rpc(f"{ADMIN}GetStatus", request, admin_pb2.GetStatusResponse)
        )

    async def sample(self) -> pa.Table:
        """Returns a sample of the objects that the dispatcher accepted lately, as a table with the
        columns id, time (Unix ms), lon, lat (degrees), text, weight (how many objects the row
        stands for), accepted (Unix ms) and attributes (bytes of an Attributes message, empty for
        none). `ps2stream.posts.sample.since_of` returns the time since which the table covers all
        objects. Needs the scope admin."""
        request = admin_pb2.SampleObjectsRequest().SerializeToString()

        async def attempt(left: float) -> list[bytes]:
            return await self._channel.collect(f"{ADMIN}SampleObjects", request, left)

        return import_frames().read_sample(await self._retry_call(attempt, True))

    async def watch(self) -> AsyncReports:
        """Yields, ten times a second, some of the objects that the dispatcher accepts and some
        matches of the caller's own queries. The first message, which is empty, comes at once."""
        request = admin_pb2.WatchRequest().SerializeToString()
        feed = self._channel.open_feed(f"{ADMIN}Watch", request)
        try:
            while True:
                yield answers.watched_of(await feed.read())
        finally:
            feed.cancel()

    async def list_all(self, *, page_size: int = 500) -> AsyncIterator[Query]:
        """Yields the live queries of all tenants, with ids and sessions as their tenants name them.
        Needs the scope admin."""
        request = request_of(admin_pb2.ListAllQueriesRequest, page_size=page_size)
        kind = admin_pb2.ListAllQueriesResponse
        async for page in self._list_pages(f"{ADMIN}ListAllQueries", kind, request):
            for query in page.queries:
                yield answers.query_of(query)

    # --- load -----------------------------------------------------------------

    async def load(self) -> dict[str, Any]:
        """Returns the work of the workers in the last periods and the hottest parts of cells, as a
        dict with the names and units of GetLoadResponse. Needs the scope admin."""
        request = admin_pb2.GetLoadRequest()
        found = await self._call_rpc(f"{ADMIN}GetLoad", request, admin_pb2.GetLoadResponse)
        return answers.plain(found)

    async def rebalance(self, algorithm: str = "gr+", *, dry_run: bool = False) -> dict[str, Any]:
        """Begins to migrate parts of cells from the most to the least loaded workers, or with
        `dry_run` only finds what would migrate. Returns a dict with the fields of
        RebalanceResponse. Raises FailedPrecondition during a plan change, and until a whole period
        has passed since. Needs the scope admin."""
        request = request_of(admin_pb2.RebalanceRequest, algorithm=algorithm, dry_run=dry_run)
        found = await self._call_rpc(
            f"{ADMIN}Rebalance", request, admin_pb2.RebalanceResponse, repeatable=False
        )
        return answers.plain(found)

    # --- plans ----------------------------------------------------------------

    async def migrations(self) -> MigrationHistory:
        """Returns the plan in force, the plan change under way and those that ended. Needs the
        scope admin."""
        found = await self._call_rpc(
            f"{ADMIN}GetMigrations",
            admin_pb2.GetMigrationsRequest(),
            admin_pb2.GetMigrationsResponse,
        )
        return answers.migrations_of(found)

    async def plan(self) -> bytes:
        """Returns the plan in force as JSON. Needs the scope admin."""
        request = admin_pb2.GetPlanRequest()
        found = await self._call_rpc(f"{ADMIN}GetPlan", request, admin_pb2.GetPlanResponse)
        return found.plan

    async def apply_plan(
        self, plan: bytes, *, coexist: bool = False, regrid: bool = False
    ) -> tuple[int, int]:
        """Begins the change to this plan (JSON) and returns its LSN and the plan's version. With
        `coexist` both plans serve: new queries belong to this one, earlier queries stay with the
        plan in force. With `regrid` the plan, which has another grid, waits for the next start of
        the service. Waits for workers to start. Raises FailedPrecondition when the plan was not
        derived from the plan in force, during a plan change, while two plans coexist, and for
        another grid without `regrid`, and InvalidArgument for a plan over the limit plan_bytes.
        Needs the scope admin."""
        if len(plan) > PLAN_BYTES:  # gRPC would refuse it without its name
            raise invalid("plan", f"{len(plan)} bytes are over the limit plan_bytes {PLAN_BYTES}")
        request = request_of(admin_pb2.ApplyPlanRequest, plan=plan, coexist=coexist, regrid=regrid)
        found = await self._call_rpc(f"{ADMIN}ApplyPlan", request, admin_pb2.ApplyPlanResponse)
        return found.lsn, found.version

    async def unite_plans(self) -> tuple[int, int]:
        """Begins to migrate what is left of the old plan to the one that coexists with it, and
        returns the LSN and the version of the latter. Raises FailedPrecondition when no two plans
        coexist. Needs the scope admin."""
        request = admin_pb2.UnitePlansRequest()
        found = await self._call_rpc(f"{ADMIN}UnitePlans", request, admin_pb2.UnitePlansResponse)
        return found.lsn, found.version

    async def abort_migration(self) -> tuple[int, int]:
        """Aborts the plan change under way, or else withdraws the plan that waits for the next
        start. Returns the LSN and the version of the plan that stays in force. Raises
        FailedPrecondition once objects are routed by the new plan. Needs the scope admin."""
        request = admin_pb2.AbortMigrationRequest()
        found = await self._call_rpc(
            f"{ADMIN}AbortMigration", request, admin_pb2.AbortMigrationResponse
        )
        return found.lsn, found.version

    async def scale(self, workers: int) -> tuple[int, int]:
        """Begins the change to this number of workers and returns the LSN and the version of the
        plan that was made for them. Waits for workers to start. Needs the scope admin."""
        request = request_of(admin_pb2.ScaleWorkersRequest, workers=workers)
        found = await self._call_rpc(
            f"{ADMIN}ScaleWorkers", request, admin_pb2.ScaleWorkersResponse
        )
        return found.lsn, found.version

    async def scale_mergers(self, mergers: int = 0) -> MergerScale:
        """Begins the move of sessions to this number of mergers, or only reports how far it is if
        that is 0. Waits for mergers to start. Needs the scope admin."""
        request = request_of(admin_pb2.ScaleMergersRequest, mergers=mergers)
        found = await self._call_rpc(
            f"{ADMIN}ScaleMergers", request, admin_pb2.ScaleMergersResponse
        )
        return MergerScale(found.mergers, found.lsn, found.moving)

    async def scale_dispatchers(self, dispatchers: int = 0) -> DispatcherScale:
        """Lets dispatchers join, or leave, until there are so many, or only reports how far that is
        if it is 0. Waits for dispatchers to start. Those with the highest numbers leave: they
        refuse calls, end their streams, and stop once all that they accepted is complete. Needs
        the scope admin."""
        request = request_of(admin_pb2.ScaleDispatchersRequest, dispatchers=dispatchers)
        found = await self._call_rpc(
            f"{ADMIN}ScaleDispatchers", request, admin_pb2.ScaleDispatchersResponse
        )
        return DispatcherScale(found.dispatchers, found.lsn, found.moving)

    # --- tokens ---------------------------------------------------------------

    async def create_token(
        self,
        tenant: str = "",
        scopes: Iterable[str] = ("publish", "subscribe"),
        expires_ms: int = 0,
    ) -> tuple[TokenInfo, str]:
        """Creates a token and returns it with its secret, which cannot be read again later. The
        scopes are publish, subscribe and admin; `expires_ms` is in Unix milliseconds, 0 for never.
        Needs the scope admin."""
        request = answers.create_token_request(tenant, scopes, expires_ms)
        name, kind = f"{ADMIN}CreateToken", admin_pb2.CreateTokenResponse
        found = await self._call_rpc(name, request, kind, repeatable=False)
        return answers.token_of(found.token), found.secret

    async def tokens(self) -> builtins.list[TokenInfo]:
        """Returns all tokens, without their secrets. Needs the scope admin."""
        request = admin_pb2.ListTokensRequest()
        found = await self._call_rpc(f"{ADMIN}ListTokens", request, admin_pb2.ListTokensResponse)
        return [answers.token_of(token) for token in found.tokens]

    async def revoke_token(self, id: str) -> None:
        """Makes a token invalid within seconds, also for open streams. Raises NotFound when there
        is no such token. Needs the scope admin."""
        request = request_of(admin_pb2.RevokeTokenRequest, id=id)
        await self._call_rpc(f"{ADMIN}RevokeToken", request, admin_pb2.RevokeTokenResponse)
