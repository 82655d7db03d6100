"""The State Store on PostgreSQL, through asyncpg.

A node has these connections:

- The *hot* one runs the writer's batches, with pinned plans.
- The *direct* one listens for bells, and renews the lease when the heart does not. So renewing never waits for anything
  else.
- A small pool does everything else.

A node lives on when it loses a connection. The hot one and those of the pool are made again when they are next used.
The direct one is made again as soon as it is lost: it is idle most of the time, so nobody would notice otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

import asyncpg

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import HoldfastError, StoreError, StoreFull, StoreUnreachable, StoreUnsupported
from holdfast.model import NewRun
from holdfast.store.answers import Answer, PreconditionFailed
from holdfast.store.batch import WriteBatch
from holdfast.store.bell import Bell
from holdfast.store.database import Database, Session, StoreCall, UnknownProcesses
from holdfast.store.migrations import (
    Applied,
    demand_current,
    demand_nobody,
    judge,
    may_run_beside_nodes,
    read_migrations,
)
from holdfast.store.postgres import within
from holdfast.store.postgres.connections import (
    AWAY,
    HANG_UP_S,
    POOLED,
    TEMPORARY,
    bounded,
    connect,
    declare_arrays,
    hang_up,
    refuses_settings,
)
from holdfast.store.postgres.session import PostgresSession
from holdfast.store.postgres.verbs import STATEMENTS, PostgresVerb
from holdfast.store.postgres.within import CHANNEL
from holdfast.store.transaction import Transaction
from holdfast.store.verbs import Verb

OLDEST_SERVER = 14
PINNED = {
    # As statistics change, the planner switches between index lookups and hash joins of whole tables for joins with
    # unnest. On this connection every plan uses a primary key or another index.
    "plan_cache_mode": "force_generic_plan",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}
EPOCH_2000_US = 946_684_800 * 1_000_000
AGAIN_MIN_S, AGAIN_MAX_S = 0.05, 1.0
"""How long to wait between two tries to listen again, while the server is away."""

SCHEMA_LOCK = 4870117
"""The number of the advisory lock under which the schema is changed."""
SCHEMA_LOCK_S = 20.0
"""How long to wait for another process that has this lock. A migration takes less than a second, unless tables are
large."""
SCHEMA_LOCK_LOOK_S = 0.1
STARTING_LOOK_S = 0.1
"""How often to ask a server that is starting up."""

T = TypeVar("T")

log = logging.getLogger("holdfast.store")


async def _prepare_connection(connection: asyncpg.Connection[Any]) -> None:
    """Make the connection convert times: floats (seconds since the epoch) in Python are timestamptz in the database."""
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        format="tuple",
        encoder=lambda at: (round(at * 1_000_000) - EPOCH_2000_US,),
        decoder=lambda value: (value[0] + EPOCH_2000_US) / 1_000_000,
    )
    declare_arrays(connection)  # the driver has just forgotten them


async def _leave_as_is(connection: asyncpg.Connection[Any]) -> None:
    """Do nothing when a connection goes back to the pool. Nothing that runs on the pool changes its session, and the
    driver's own reset would be another round trip."""


class PostgresDatabase(Database):
    def __init__(self, url: str, environment: Environment, config: Config) -> None:
        self.url = url
        self.environment, self.config = environment, config
        self.processes = UnknownProcesses()
        self._pool: asyncpg.Pool[Any] | None = None
        self.hot: asyncpg.Connection[Any] | None = None
        self._direct: asyncpg.Connection[Any] | None = None
        self._connecting = asyncio.Lock()
        """Locked while the direct connection is made, because all who need it notice at the same moment that it is
        lost."""
        self._heard: Callable[[Bell], None] | None = None
        self._listening_again: asyncio.Task[None] | None = None

    @property
    def schema(self) -> int:
        return len(read_migrations(__package__ or ""))

    @property
    def shared_url(self) -> str | None:
        return self.url

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
        self._heard = None
        if self._listening_again is not None:
            self._listening_again.cancel()
            await asyncio.wait([self._listening_again])
        for connection in (self.hot, self._direct):
            await hang_up(connection)
        if self._pool is not None:
            self._pool.terminate() if self._pool.is_closing() else await self._close_pool(self._pool)
        self.hot = self._direct = self._pool = None

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
                await connection.execute(STATEMENTS[PostgresVerb.make_schema])
                await connection.execute(STATEMENTS[Verb.make_migrations])
                found = await connection.fetch(STATEMENTS[Verb.applied_migrations])
                applied: list[Applied] = [(row[0], row[1], row[2]) for row in found]
                pending = judge(applied, known, "the database")
                if pending and applied and not may_run_beside_nodes(pending):
                    demand_nobody(await connection.fetch(STATEMENTS[Verb.nodes_in_the_way]), "the database")
                for migration in pending:
                    await connection.execute(migration.sql)
                    await connection.execute(
                        STATEMENTS[Verb.record_migration],
                        migration.version,
                        migration.name,
                        migration.checksum,
                    )
                return len(applied), len(known)

        return await self.on_pool(run, patiently=True)

    async def _lock_schema(self, connection: asyncpg.Connection[Any]) -> None:
        """Lock the schema, so that only one process changes it at a time. This asks again and again, instead of waiting
        in the server, so that the wait is limited and Ctrl-C ends it."""
        monotonic = self.environment.monotonic
        begun = monotonic()
        while not await connection.fetchval(STATEMENTS[PostgresVerb.lock_schema], SCHEMA_LOCK):
            if monotonic() - begun > SCHEMA_LOCK_S:
                holder = await connection.fetchrow(STATEMENTS[PostgresVerb.schema_lock_holder], SCHEMA_LOCK)
                who = "another session" if holder is None else "session {} of {} ({})".format(*holder)
                raise StoreUnreachable(
                    f"{who} has kept the schema locked for {SCHEMA_LOCK_S:.0f} s: another process is migrating it; wait for "
                    "that, or end the session with pg_terminate_backend"
                )
            await self.environment.sleep(SCHEMA_LOCK_LOOK_S)

    async def _applied(self) -> list[Applied]:
        async def run(connection: asyncpg.Connection[Any]) -> list[Applied]:
            if not await connection.fetchval("SELECT to_regclass('holdfast.migrations') IS NOT NULL"):
                return []
            found = await connection.fetch(STATEMENTS[Verb.applied_migrations])
            return [(row[0], row[1], row[2]) for row in found]

        return await self.on_pool(run)

    async def _connect_pool(self) -> None:
        pool: asyncpg.Pool[Any] | None = None
        try:
            pool = await asyncpg.create_pool(
                self.url,
                min_size=0,  # with more, the driver logs a traceback whenever it cannot keep them open
                max_size=4,
                init=_prepare_connection,
                reset=_leave_as_is,
                connect=cast("Any", self._connect_pooled),
            )
            version = await self._version_of(pool)
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

    async def _version_of(self, pool: asyncpg.Pool[Any]) -> asyncpg.ServerVersion:
        """Return the server's version. A server that says it is starting up is waited for, but not for long."""
        monotonic = self.environment.monotonic
        begun = monotonic()
        while True:
            try:
                async with pool.acquire() as connection:
                    return connection.get_server_version()
            except asyncpg.CannotConnectNowError:
                if monotonic() - begun > self.config.start_s:
                    raise
            await self.environment.sleep(STARTING_LOOK_S)

    async def _connect_pooled(self, url: str, **options: Any) -> asyncpg.Connection[Any]:
        """Connect for the pool, which passes what it needs in `options`."""
        return await connect(url, self.config, {"jit": "off"}, **options)

    async def _connect_hot(self) -> asyncpg.Connection[Any]:
        if self.hot is None or self.hot.is_closed():
            try:
                self.hot = await connect(self.url, self.config, PINNED)
            except Exception as error:
                raise _not_done(_unreachable(error)) from error
        return self.hot

    async def _connect_direct(self) -> asyncpg.Connection[Any]:
        """Return the direct connection. If it has to be made again, it listens for bells again, too."""
        async with self._connecting:
            if self._direct is None or self._direct.is_closed():
                try:
                    self._direct = await self._new_direct()
                except AWAY as error:
                    raise _unreachable(error) from error
            return self._direct

    async def _new_direct(self) -> asyncpg.Connection[Any]:
        direct = await connect(self.url, self.config)
        try:
            with bounded(direct, self.config.answer_s):
                await _prepare_connection(direct)
                if self._heard is not None:
                    await direct.add_listener(CHANNEL, self._on_notify)
        except BaseException:
            direct.terminate()
            raise
        direct.add_termination_listener(self._on_lost)
        return direct

    def _on_lost(self, connection: Any) -> None:
        """Make the direct connection again after it was lost. It is idle, so nobody else would."""
        if self._heard is not None and (self._listening_again is None or self._listening_again.done()):
            self._listening_again = asyncio.create_task(self._listen_again(), name="holdfast-listen-again")

    async def _listen_again(self) -> None:
        pause_s = AGAIN_MIN_S
        while self._heard is not None:
            try:
                await self._connect_direct()
            except Exception as error:  # noqa: BLE001  whatever it is, the node must hear bells again
                log.debug("listening again: %s", error)
                await self.environment.sleep(pause_s * (0.5 + self.environment.random.random()))
                pause_s = min(pause_s * 2, AGAIN_MAX_S)
            else:
                for bell in Bell:  # nobody heard what rang meanwhile, so all bells ring now
                    self._heard(bell)
                return

    async def on_pool(
        self, use: Callable[[asyncpg.Connection[Any]], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        """Run `use` with a connection of the pool, and again after a deadlock. `patiently` lets it take any time,
        because it reads or changes whole tables."""
        if self._pool is None:
            raise StoreUnreachable("the store is not open")
        limit_s = None if patiently else self.config.answer_s
        for attempt in range(5):
            try:
                async with self._pool.acquire(timeout=limit_s) as taken:
                    connection = cast("asyncpg.Connection[Any]", taken)
                    with bounded(connection, limit_s):
                        try:
                            return await use(connection)
                        except asyncpg.ReadOnlySQLTransactionError as error:
                            raise await _read_only(connection, error) from error
                        except (HoldfastError, asyncpg.PostgresError, *AWAY):
                            raise
                        except Exception as error:
                            # While it loses its connection, the driver may raise anything.
                            if connection.is_closed():
                                raise _unreachable(error) from error
                            raise
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                if attempt == 4:
                    raise
            except AWAY as error:
                # The other connections may lead nowhere, too, and each would make somebody wait as long as this one.
                await self._pool.expire_connections()
                raise _unreachable(error) from error
            except POOLED as error:
                raise _pooler(error) from error
            except asyncpg.DiskFullError as error:
                raise _full(error) from error
            except asyncpg.InsufficientPrivilegeError as error:
                raise StoreError(f"the database user may not do this: {error}") from error
            except TEMPORARY as error:
                raise _temporary(error) from error
        raise AssertionError("unreachable")

    # --- reading and writing ------------------------------------------------------------------------------------

    async def now(self) -> float:
        at: float = await self.on_pool(
            lambda connection: connection.fetchval(STATEMENTS[PostgresVerb.store_now])
        )
        return at

    async def look(
        self, call: StoreCall, read: Callable[[Session], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        return await self.on_pool(lambda connection: read(PostgresSession(connection)), patiently=patiently)

    async def write(
        self, call: StoreCall, act: Callable[[Session], Awaitable[T]], *, is_single: bool = False
    ) -> T:
        async def run(connection: asyncpg.Connection[Any]) -> T:
            if is_single:
                return await act(_OneStatement(connection))
            async with connection.transaction():
                return await act(PostgresSession(connection))

        return await self.on_pool(run)

    async def claim(
        self,
        call: StoreCall,
        is_any: Callable[[Session], Awaitable[bool]],
        act: Callable[[Session], Awaitable[list[T]]],
    ) -> list[T]:
        return await self.write(call, act)

    # --- the hot path -------------------------------------------------------------------------------------------

    async def commit(self, call: StoreCall, batch: WriteBatch) -> list[Answer]:
        connection = await self._connect_hot()
        while True:
            try:
                with bounded(connection, self.config.answer_s):
                    return await _write(connection, batch)
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError):
                continue
            except asyncio.CancelledError:
                # To cancel the statement, the server would have to answer, and the next commit would wait for that.
                connection.terminate()
                self.hot = None
                raise
            except (*AWAY, asyncpg.NoActiveSQLTransactionError) as error:
                # The driver may be wrong about the state of the transaction on this connection.
                connection.terminate()
                self.hot = None
                raise _unreachable(error) from error
            except asyncpg.ReadOnlySQLTransactionError as error:
                self.hot = None
                raise await _read_only(connection, error) from error
            except asyncpg.DiskFullError as error:
                raise _full(error) from error
            except TEMPORARY as error:
                raise _temporary(error) from error
            except asyncpg.PostgresError as error:
                # Several operations are written again one at a time, so that each gets its own answer. A hop that was
                # written before, and whose answer got lost, issues its steps again. That shows as a duplicate key.
                is_repeated = (
                    isinstance(error, asyncpg.UniqueViolationError) and error.constraint_name == "steps_pkey"
                )
                if len(batch.ops) > 1 or is_repeated:
                    raise PreconditionFailed from error
                raise StoreError(f"the database refused a write: {error}") from error
            except PreconditionFailed:
                raise
            except Exception as error:
                was_lost = connection.is_closed()
                connection.terminate()
                self.hot = None
                if was_lost:  # while it loses its connection, the driver may raise anything
                    raise _unreachable(error) from error
                raise

    async def start_within(self, transaction: Transaction, run: NewRun) -> str:
        identity: str = await self.on_pool(
            lambda connection: connection.fetchval(STATEMENTS[PostgresVerb.database_identity])
        )
        script = within.start(run, identity, self.config.payload_max_bytes)
        return await within.execute(script, transaction, self.environment)

    async def work_within(
        self, transaction: Transaction, act: Callable[[Session], Awaitable[Any]], bells: Sequence[Bell]
    ) -> None:
        identity: str = await self.on_pool(
            lambda connection: connection.fetchval(STATEMENTS[PostgresVerb.database_identity])
        )
        await within.execute(within.work(act, identity, bells), transaction, self.environment)

    # --- the direct connection ----------------------------------------------------------------------------------

    async def renew(self, node: str, lease_s: float, pulse: str | None) -> float | None:
        connection = await self._connect_direct()
        try:
            with bounded(connection, min(lease_s, self.config.answer_s)):
                renewed: float | None = await connection.fetchval(
                    STATEMENTS[Verb.renew], node, lease_s, pulse, 0.0
                )
        except AWAY as error:
            raise _unreachable(error) from error
        except asyncpg.ReadOnlySQLTransactionError as error:
            raise await _read_only(connection, error) from error
        except TEMPORARY as error:
            raise _temporary(error) from error
        return renewed

    async def ring(self, bells: set[Bell]) -> None:
        async def run(connection: asyncpg.Connection[Any]) -> None:
            for bell in sorted(bells):
                await connection.execute("SELECT pg_catalog.pg_notify($1, $2)", CHANNEL, bell.value)

        await self.on_pool(run)

    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        self._heard = heard
        connection = await self._connect_direct()
        try:
            with bounded(connection, self.config.answer_s):
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
                    pass  # a connection that is gone does not listen

        return close

    def _on_notify(self, connection: Any, pid: int, channel: str, payload: Any) -> None:
        if self._heard is not None and pid != getattr(connection, "get_server_pid", lambda: 0)():
            try:
                bell = Bell(payload)
            except ValueError:
                return
            self._heard(bell)


class _OneStatement(PostgresSession):
    """A session for one statement outside a transaction. That statement is atomic by itself. Two statements would not
    be."""

    __slots__ = ("_is_used",)

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        super().__init__(connection)
        self._is_used = False

    def _statement(self, verb: str) -> str:
        assert not self._is_used, f"{verb} is the second statement of a method that promised one"
        self._is_used = True
        return super()._statement(verb)


async def _write(connection: asyncpg.Connection[Any], batch: WriteBatch) -> list[Answer]:
    session = PostgresSession(connection)
    if batch.is_single:
        return await batch.write(session)
    async with connection.transaction():
        await session.lock(batch)
        return await batch.write(session)


def _unreachable(error: BaseException) -> StoreUnreachable:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if type(error) is asyncpg.InternalClientError or "underlying connection is closed" in reason:
        reason = "the connection was cut in the middle of a statement"
    return StoreUnreachable(f"cannot reach the database: {reason}: check the URL and that the server runs")


def _pooler(error: BaseException) -> StoreUnsupported:
    reason = str(error).strip().splitlines()[0]
    return StoreUnsupported(
        f"the store's URL names a connection pooler: {reason}: name the PostgreSQL server itself; a node needs its "
        "own sessions, for its bells and its settings"
    )


def _not_done(error: StoreUnreachable) -> StoreUnreachable:
    error.maybe_done = False
    return error


def _full(error: BaseException) -> StoreFull:
    return StoreFull(
        f"the database cannot write: {error}: make room on its disk; nothing that was accepted is lost"
    )


def _temporary(error: BaseException) -> StoreUnreachable:
    return _not_done(
        StoreUnreachable(
            f"the database refuses this for now: {error}: check what limits or cancels statements there "
            "(statement_timeout, lock_timeout, grants, memory)"
        )
    )


async def _read_only(connection: asyncpg.Connection[Any], error: BaseException) -> StoreUnreachable:
    """Return an error that says why the database is read-only and what to do. The connection is cut, because the next
    one may find the server that takes writes."""
    try:
        is_standby = await connection.fetchval("SELECT pg_catalog.pg_is_in_recovery()", timeout=HANG_UP_S)
    except (*AWAY, asyncpg.PostgresError):
        is_standby = True
    connection.terminate()
    why = (
        "it is a standby, or was demoted: name all hosts in the URL, and Holdfast finds the one that takes writes"
        if is_standby
        else "default_transaction_read_only is on for this server, database or user: switch it off, or use another"
    )
    return _not_done(StoreUnreachable(f"the database is read-only ({error}): {why}"))
