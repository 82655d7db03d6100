"""The State Store on PostgreSQL, through asyncpg.

Connections of one node: the *hot* one runs the writer's batches with pinned plans; the *direct* one holds the liveness
lock, listens for doorbells and renews the lease, so that renewing never waits for anything else; a small pool does
everything else. Every method is one statement or one transaction. Here are the connections, the batches and the node's own
lease; the rest stands in files of its own, one per role that asks.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import asyncpg

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import Conflict, StoreError, StoreFull, StoreUnreachable, StoreUnsupported
from holdfast.model import Declaration, NewRun
from holdfast.store.answers import Answer, PreconditionFailed
from holdfast.store.claims import Claims
from holdfast.store.migrations import demand_current, demand_nobody, judge, read_migrations
from holdfast.store.operations import Op
from holdfast.store.postgres.alerting import Alerting
from holdfast.store.postgres.batch import Batch
from holdfast.store.postgres.connecting import (
    AWAY,
    HANG_UP_S,
    POOLED,
    bounded,
    connect,
    hang_up,
    refuses_settings,
)
from holdfast.store.postgres.gating import Gating
from holdfast.store.postgres.learning import Learning
from holdfast.store.postgres.operating import Operating
from holdfast.store.postgres.pools import Pools
from holdfast.store.postgres.quarantining import Quarantining
from holdfast.store.postgres.retention import Retention
from holdfast.store.postgres.rows import columns
from holdfast.store.postgres.scheduling import Scheduling
from holdfast.store.postgres.supervising import Supervising
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.postgres.workflows import Workflows, declare
from holdfast.store.postgres.working import Working
from holdfast.store.protocol import Bell

OLDEST_SERVER = 14
CHANNEL = "holdfast"
PINNED = {
    # Estimates for unnest joins flip between index lookups and whole-table hash joins as statistics change; on this
    # connection every plan is by primary key or named index.
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
EPOCH_2000_US = 946_684_800 * 1_000_000

SCHEMA_LOCK = 4870117
"""The number of the advisory lock under which the schema is changed."""
SCHEMA_LOCK_S = 20.0
"""How long another process may keep it. A migration of ours takes less than a second unless tables are large."""
SCHEMA_LOCK_LOOK_S = 0.1

T = TypeVar("T")


async def _prepare_connection(connection: asyncpg.Connection[Any]) -> None:
    """Times are floats (seconds since the epoch) in Python and timestamptz in the database."""
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        format="tuple",
        encoder=lambda at: (round(at * 1_000_000) - EPOCH_2000_US,),
        decoder=lambda value: (value[0] + EPOCH_2000_US) / 1_000_000,
    )


async def _leave_as_is(connection: asyncpg.Connection[Any]) -> None:
    """Nothing that runs on the pool changes its session: the driver's own reset would be a second round trip for each."""


class PostgresStore(
    Scheduling,
    Working,
    Gating,
    Supervising,
    Quarantining,
    Alerting,
    Learning,
    Retention,
    Pools,
    Workflows,
    Operating,
):
    def __init__(self, url: str, environment: Environment, config: Config) -> None:
        self.url = url
        self._environment, self._config = environment, config
        self._pool: asyncpg.Pool[Any] | None = None
        self._hot: asyncpg.Connection[Any] | None = None
        self._direct: asyncpg.Connection[Any] | None = None
        self._lock_key: int | None = None
        self._heard: Callable[[Bell], None] | None = None
        self._lanes: dict[tuple[str, tuple[str, ...], str | None, str | None], int] = {}

    # --- connecting ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        if self._pool is None:
            await self._connect_pool()
        try:
            applied = await self._applied()
            if not applied:
                # A database without our tables needs no decision; an older one is upgraded by `holdfast migrate`.
                await self.migrate()
                applied = await self._applied()
            demand_current(applied, read_migrations(__package__ or ""), "the database")
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for connection in (self._hot, self._direct):
            await hang_up(connection)
        if self._pool is not None:
            self._pool.terminate() if self._pool.is_closing() else await self._close_pool(self._pool)
        self._hot = self._direct = self._pool = None

    @staticmethod
    async def _close_pool(pool: asyncpg.Pool[Any]) -> None:
        try:
            await asyncio.wait_for(pool.close(), 5)
        except TimeoutError:
            pool.terminate()

    async def migrate(self) -> tuple[int, int]:
        if self._pool is None:
            await self._connect_pool()
        known = read_migrations(__package__ or "")

        async def run(connection: asyncpg.Connection[Any]) -> tuple[int, int]:
            async with connection.transaction():
                await self._lock_schema(connection)
                await connection.execute(VERBS.make_schema)
                await connection.execute(VERBS.make_migrations)
                applied = [(row[0], row[1]) for row in await connection.fetch(VERBS.applied_migrations)]
                pending = judge(applied, known, "the database")
                if pending and applied:
                    demand_nobody(await connection.fetch(VERBS.nodes_in_the_way), "the database")
                for migration in pending:
                    await connection.execute(migration.sql)
                    await connection.execute(
                        VERBS.record_migration, migration.version, migration.name, migration.checksum
                    )
                return len(applied), len(known)

        return await self._on_pool(run, patiently=True)

    async def _lock_schema(self, connection: asyncpg.Connection[Any]) -> None:
        """Only one process changes the schema at a time. Asked again and again instead of waited for in the server, so that
        the wait has an end and Ctrl-C ends it."""
        monotonic = self._environment.monotonic
        begun = monotonic()
        while not await connection.fetchval(VERBS.lock_schema, SCHEMA_LOCK):
            if monotonic() - begun > SCHEMA_LOCK_S:
                holder = await connection.fetchrow(VERBS.schema_lock_holder, SCHEMA_LOCK)
                who = "another session" if holder is None else "session {} of {} ({})".format(*holder)
                raise StoreUnreachable(
                    f"{who} has kept the schema locked for {SCHEMA_LOCK_S:.0f} s: another process is migrating it; wait for "
                    "that, or end the session with pg_terminate_backend"
                )
            await self._environment.sleep(SCHEMA_LOCK_LOOK_S)

    async def _applied(self) -> list[tuple[int, str]]:
        async def run(connection: asyncpg.Connection[Any]) -> list[tuple[int, str]]:
            if not await connection.fetchval("SELECT to_regclass('holdfast.migrations') IS NOT NULL"):
                return []
            return [(row[0], row[1]) for row in await connection.fetch(VERBS.applied_migrations)]

        return await self._on_pool(run)

    async def _connect_pool(self) -> None:
        pool: asyncpg.Pool[Any] | None = None
        try:
            pool = await asyncpg.create_pool(
                self.url,
                min_size=0,  # when it cannot keep more, the driver logs a traceback each time it tries
                max_size=4,
                init=_prepare_connection,
                reset=_leave_as_is,
                connect=cast("Any", self._connect_pooled),
            )
            async with pool.acquire() as connection:
                version = connection.get_server_version()
        except AWAY as error:
            if pool is not None:
                pool.terminate()
            raise (_pooler(error) if refuses_settings(error) else _unreachable(error)) from error
        except ValueError as error:
            raise StoreUnsupported(
                f"the store's URL cannot be read: {error}: write postgresql://user@host:5432/database"
            ) from error
        self._pool = pool
        if version.major < OLDEST_SERVER:
            raise StoreUnsupported(
                f"the server is PostgreSQL {version.major}: Holdfast needs {OLDEST_SERVER} or newer"
            )

    async def _connect_pooled(self, url: str, **options: Any) -> asyncpg.Connection[Any]:
        """In the pool's own way, which says what it needs in `options`."""
        return await connect(url, self._config, {"jit": "off"}, **options)

    async def _connect_hot(self) -> asyncpg.Connection[Any]:
        if self._hot is None or self._hot.is_closed():
            try:
                self._hot = await connect(self.url, self._config, PINNED)
            except AWAY as error:
                raise _unreachable(error) from error
        return self._hot

    async def _connect_direct(self) -> asyncpg.Connection[Any]:
        """The node's own session. Reconnecting takes the liveness lock and the doorbell up again."""
        if self._direct is None or self._direct.is_closed():
            try:
                self._direct = direct = await connect(self.url, self._config)
                with bounded(direct, self._config.answer_s):
                    await _prepare_connection(direct)
                    if self._lock_key is not None:
                        await direct.execute("SELECT pg_advisory_lock($1)", self._lock_key)
                    if self._heard is not None:
                        await direct.add_listener(CHANNEL, self._on_notify)
            except AWAY as error:
                raise _unreachable(error) from error
        return self._direct

    async def _on_pool(
        self, use: Callable[[asyncpg.Connection[Any]], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        """`patiently`: what may take as long as it takes, because it reads or changes whole tables."""
        if self._pool is None:
            raise StoreUnreachable("the store is not open")
        limit_s = None if patiently else self._config.answer_s
        for attempt in range(5):
            try:
                async with self._pool.acquire(timeout=limit_s) as taken:
                    connection = cast("asyncpg.Connection[Any]", taken)
                    with bounded(connection, limit_s):
                        try:
                            return await use(connection)
                        except asyncpg.ReadOnlySQLTransactionError as error:
                            connection.terminate()  # a server that was demoted: the next connection finds the other
                            raise _read_only(error) from error
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                if attempt == 4:
                    raise
            except AWAY as error:
                # Where one connection leads nowhere, so may the others, and each would be waited for as long as this one.
                await self._pool.expire_connections()
                raise _unreachable(error) from error
            except POOLED as error:
                raise _pooler(error) from error
            except asyncpg.DiskFullError as error:
                raise StoreFull(f"the database cannot write: {error}") from error
            except asyncpg.InsufficientPrivilegeError as error:
                raise StoreError(f"the database user may not do this: {error}") from error
        raise AssertionError("unreachable")

    # --- Writes: the hot path ---------------------------------------------------------------------------------------

    async def commit(self, node: str, ops: Sequence[Op]) -> list[Any]:
        connection = await self._connect_hot()
        batch = Batch(node, ops)
        while True:
            try:
                with bounded(connection, self._config.answer_s):
                    return await self._commit_or_answer(connection, batch)
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                continue
            except asyncio.CancelledError:
                # To take the statement back the server would have to answer, and the next commit would wait for that.
                connection.terminate()
                self._hot = None
                raise
            except (*AWAY, asyncpg.NoActiveSQLTransactionError) as error:
                # What such a connection believes of its transaction is not to be trusted any more.
                connection.terminate()
                self._hot = None
                raise _unreachable(error) from error
            except asyncpg.ReadOnlySQLTransactionError as error:
                connection.terminate()
                self._hot = None
                raise _read_only(error) from error
            except asyncpg.DiskFullError as error:
                # Nothing is lost: the writer keeps the batch and tries again until there is room.
                raise StoreUnreachable(f"the database cannot write: {error}") from error
            except asyncpg.PostgresError as error:
                if len(ops) > 1:
                    raise PreconditionFailed from error
                if isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name == "steps_pkey":
                    return [
                        Answer.FENCED
                    ]  # a hop that was written before, and whose answer was lost, issues again
                raise StoreError(f"the database refused a write: {error}") from error

    @staticmethod
    async def _commit_or_answer(connection: asyncpg.Connection[Any], batch: Batch) -> list[Any]:
        try:
            return await batch.run(connection)
        except PreconditionFailed:
            if len(batch.ops) > 1:
                raise
            return [await batch.answer_alone(connection)]

    async def start_within(self, transaction: Any, run: NewRun) -> None:
        arguments = [[value] for value in Batch.start_row(run)]
        if type(transaction).__module__.startswith("asyncpg"):
            rows = await transaction.fetch(VERBS.start, *arguments)
            seen = [] if rows else await transaction.fetch(VERBS.started_as, [run.id])
            await transaction.execute("SELECT pg_catalog.pg_notify($1, $2)", CHANNEL, Bell.RUNS.value)
        elif type(transaction).__module__.startswith("psycopg"):
            import psycopg  # noqa: PLC0415  only when the caller uses it

            if isinstance(transaction, psycopg.AsyncConnection):
                cursor: Any = psycopg.AsyncRawCursor(transaction)
                rows = await (await cursor.execute(VERBS.start, arguments)).fetchall()
                seen = [] if rows else await (await cursor.execute(VERBS.started_as, [[run.id]])).fetchall()
                await cursor.execute("SELECT pg_catalog.pg_notify($1, $2)", [CHANNEL, Bell.RUNS.value])
            else:
                cursor = psycopg.RawCursor(transaction)
                rows = cursor.execute(VERBS.start, arguments).fetchall()
                seen = [] if rows else cursor.execute(VERBS.started_as, [[run.id]]).fetchall()
                cursor.execute("SELECT pg_catalog.pg_notify($1, $2)", [CHANNEL, Bell.RUNS.value])
        else:
            raise StoreUnsupported(
                f"tx= got a {type(transaction).__module__}.{type(transaction).__name__}: "
                "pass an asyncpg or psycopg 3 connection inside its transaction"
            )
        for _, workflow, digest in seen:
            if (workflow, bytes(digest)) != (run.workflow, run.digest):
                raise Conflict(f"run {run.id!r} exists and was started with another workflow or input")

    # --- NodeStore --------------------------------------------------------------------------------------------------

    async def register(
        self,
        node: str,
        *,
        host: str,
        pid: int,
        roles: str,
        offers: str,
        capacity: int,
        lease_s: float,
        declared: Sequence[Declaration] = (),
    ) -> None:
        digest = hashlib.blake2b(node.encode(), digest_size=8).digest()
        key = int.from_bytes(digest, "big", signed=True)
        if self._lock_key != key:
            self._lock_key = key
            await hang_up(self._direct)
        await self._connect_direct()
        claims = Claims.read(offers)
        row = (node, host, pid, roles, offers, capacity, key, lease_s, claims.code)

        async def run(connection: asyncpg.Connection[Any]) -> None:
            async with connection.transaction():
                await declare(connection, node, claims, declared)
                await connection.execute(VERBS.register, *row)

        await self._on_pool(run)

    @property
    def shared_url(self) -> str | None:
        return self.url

    async def renew(self, node: str, lease_s: float, pulse: str | None = None) -> float | None:
        try:
            connection = await self._connect_direct()
            with bounded(connection, min(lease_s, self._config.answer_s)):
                renewed: float | None = await connection.fetchval(VERBS.renew, node, lease_s, pulse, 0.0)
        except AWAY as error:
            raise _unreachable(error) from error
        return renewed

    async def retire(self, node: str) -> None:
        await self._fetch(VERBS.retire, node)
        self._lock_key = None
        await hang_up(self._direct)

    async def reconcile(
        self, node: str, runs: Sequence[tuple[str, int]], steps: Sequence[tuple[str, int, int]]
    ) -> tuple[int, int]:
        gone_runs = await self._fetch(VERBS.reconcile_runs, node, *columns(runs, 2))
        gone_steps = await self._fetch(VERBS.reconcile_steps, node, *columns(steps, 3))
        return len(gone_runs), len(gone_steps)

    async def ring(self, bells: set[Bell]) -> None:
        for bell in sorted(bells):
            await self._fetch("SELECT pg_catalog.pg_notify($1, $2)", CHANNEL, bell.value)

    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        self._heard = heard
        connection = await self._connect_direct()
        try:
            with bounded(connection, self._config.answer_s):
                await connection.remove_listener(CHANNEL, self._on_notify)
                await connection.add_listener(CHANNEL, self._on_notify)
        except AWAY as error:
            raise _unreachable(error) from error

        async def close() -> None:
            self._heard = None
            direct = self._direct
            if direct is not None and not direct.is_closed():
                try:
                    with bounded(direct, HANG_UP_S):
                        await direct.remove_listener(CHANNEL, self._on_notify)
                except AWAY:
                    pass  # nobody listens on a connection that is gone

        return close

    def _on_notify(self, connection: Any, pid: int, channel: str, payload: Any) -> None:
        if self._heard is not None and pid != getattr(connection, "get_server_pid", lambda: 0)():
            try:
                bell = Bell(payload)
            except ValueError:
                return
            self._heard(bell)


def _unreachable(error: BaseException) -> StoreUnreachable:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return StoreUnreachable(f"cannot reach the database: {reason}: check the URL and that the server runs")


def _pooler(error: BaseException) -> StoreUnsupported:
    reason = str(error).strip().splitlines()[0]
    return StoreUnsupported(
        f"the store's URL names a connection pooler: {reason}: name the PostgreSQL server itself; a node needs sessions "
        "that are its own, for its liveness lock and its settings"
    )


def _read_only(error: BaseException) -> StoreUnreachable:
    return StoreUnreachable(
        f"the database only reads: {error}: it is a standby, or was demoted; name all hosts in the URL, and the one that "
        "takes writes is found"
    )
