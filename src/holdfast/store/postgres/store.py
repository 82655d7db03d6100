"""The State Store on PostgreSQL, through asyncpg.

Connections of one node: the *hot* one runs the writer's batches with pinned plans; the *direct* one holds the liveness
lock, listens for doorbells and renews the lease, so that renewing never waits for anything else; a small pool does
everything else. Every method is one statement or one transaction.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from operator import itemgetter
from typing import Any, TypeVar, cast

import asyncpg
import msgspec

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import (
    Conflict,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreUnsupported,
    UnknownRun,
    WrongState,
)
from holdfast.model import (
    CANCEL,
    UNDO,
    Attempt,
    JournalEntry,
    Lane,
    Leader,
    NewRun,
    Node,
    Run,
    RunState,
    Signal,
    Step,
    StepKind,
    StepState,
)
from holdfast.store.migrations import demand_current, judge, read_migrations
from holdfast.store.offline import offline
from holdfast.store.postgres.alerting import Alerting, alert_columns
from holdfast.store.postgres.batch import Batch
from holdfast.store.postgres.connecting import AWAY, HANG_UP_S, bounded, connect, hang_up
from holdfast.store.postgres.gating import Gating
from holdfast.store.postgres.learning import Learning
from holdfast.store.postgres.pools import Pools
from holdfast.store.postgres.quarantining import Quarantining
from holdfast.store.postgres.retention import Retention
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.protocol import (
    LAPSED,
    Answer,
    Bell,
    ClaimedRun,
    ClaimedStep,
    NewSignal,
    Op,
    PreconditionFailed,
    Reclaimed,
    Recorded,
    RunFilter,
    Undelivered,
)
from holdfast.store.steering import demand_undoing
from holdfast.store.verdicts import Held, Loss, Remedy, lost, overdue, remedy

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


class PostgresStore(Alerting, Gating, Learning, Pools, Quarantining, Retention):
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
                await connection.execute("SELECT pg_advisory_xact_lock(4870117)")
                await connection.execute(VERBS.make_schema)
                await connection.execute(VERBS.make_migrations)
                applied = [(row[0], row[1]) for row in await connection.fetch(VERBS.applied_migrations)]
                pending = judge(applied, known, "the database")
                for migration in pending:
                    await connection.execute(migration.sql)
                    await connection.execute(
                        VERBS.record_migration, migration.version, migration.name, migration.checksum
                    )
                return len(applied), len(known)

        return await self._on_pool(run, patiently=True)

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
                connect=cast("Any", self._connect_pooled),
            )
            async with pool.acquire() as connection:
                version = connection.get_server_version()
        except AWAY as error:
            if pool is not None:
                pool.terminate()
            raise _unreachable(error) from error
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
                raise _unreachable(error) from error
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
            await transaction.execute("SELECT pg_notify($1, $2)", CHANNEL, Bell.RUNS.value)
        elif type(transaction).__module__.startswith("psycopg"):
            import psycopg  # noqa: PLC0415  only when the caller uses it

            if isinstance(transaction, psycopg.AsyncConnection):
                cursor: Any = psycopg.AsyncRawCursor(transaction)
                rows = await (await cursor.execute(VERBS.start, arguments)).fetchall()
                seen = [] if rows else await (await cursor.execute(VERBS.started_as, [[run.id]])).fetchall()
                await cursor.execute("SELECT pg_notify($1, $2)", [CHANNEL, Bell.RUNS.value])
            else:
                cursor = psycopg.RawCursor(transaction)
                rows = cursor.execute(VERBS.start, arguments).fetchall()
                seen = [] if rows else cursor.execute(VERBS.started_as, [[run.id]]).fetchall()
                cursor.execute("SELECT pg_notify($1, $2)", [CHANNEL, Bell.RUNS.value])
        else:
            raise StoreUnsupported(
                f"tx= got a {type(transaction).__module__}.{type(transaction).__name__}: "
                "pass an asyncpg or psycopg 3 connection inside its transaction"
            )
        for _, workflow, digest in seen:
            if (workflow, bytes(digest)) != (run.workflow, run.digest):
                raise Conflict(f"run {run.id!r} exists and was started with another workflow or input")

    # --- SchedulerStore ---------------------------------------------------------------------------------------------

    async def claim_runs(
        self, node: str, workflows: Sequence[tuple[str, str]], limit: int
    ) -> list[ClaimedRun]:
        names = [name for name, _ in workflows]
        versions = [version for _, version in workflows]
        rows = await self._fetch(VERBS.claim_awake, node, names, versions, limit)
        if len(rows) < limit:
            rows += await self._fetch(VERBS.claim_pending, node, names, versions, limit - len(rows))
        return await self._with_history(rows)

    async def claim_run(self, node: str, run_id: str) -> ClaimedRun | None:
        claimed = await self._with_history(await self._fetch(VERBS.claim_run, node, run_id))
        return claimed[0] if claimed else None

    async def _with_history(self, rows: list[asyncpg.Record], *, new: bool = True) -> list[ClaimedRun]:
        claimed = {row["id"]: ClaimedRun(_run(row), [], []) for row in rows}
        # A run that never had an owner before has no history to read, though signals may already wait for it.
        older = [row["id"] for row in rows if not new or row["fence"] > 1 or row["retry_of"] is not None]
        for start in range(0, len(older), 100):
            part = older[start : start + 100]
            for row in await self._fetch(VERBS.history_steps, part):
                claimed[row["run_id"]].steps.append(_step(row))
        if claimed:
            for row in await self._fetch(VERBS.history_signals, list(claimed)):
                claimed[row["run_id"]].signals.append(_signal(row))
        return list(claimed.values())

    async def undelivered(self, node: str, limit: int) -> Undelivered:
        return Undelivered(
            [
                Recorded(run_id, n, _STEP_STATES[state], output, error, at)
                for run_id, n, state, output, error, at in await self._fetch(
                    VERBS.undelivered_steps, node, limit
                )
            ],
            [_signal(row) for row in await self._fetch(VERBS.undelivered_signals, node, limit)],
        )

    async def fire_timers(self, limit: int) -> int:
        return len(await self._fetch(VERBS.fire_timers, limit))

    async def next_timer(self) -> float | None:
        rows = await self._fetch(VERBS.next_timer)
        return rows[0][0] if rows else None

    async def hold_run(self, run_id: str, fence: int, note: str) -> Answer:
        rows = await self._fetch(VERBS.hold_run, run_id, fence, note)
        return Answer.ACCEPTED if rows else Answer.FENCED

    async def child_histories(self, run_id: str) -> list[ClaimedRun]:
        return await self._with_history(await self._fetch(VERBS.children, run_id), new=False)

    async def lane(
        self, name: str, needs: tuple[str, ...], undo: str | None = None, depends: str | None = None
    ) -> int:
        known = self._lanes.get((name, needs, undo, depends))
        while known is None:
            # Two nodes may make one lane at once: the loser's statement sees neither row, and asks again.
            rows = await self._fetch(VERBS.lane, name, json.dumps(needs), undo or "", depends or name)
            if rows:
                known = self._lanes[name, needs, undo, depends] = rows[0][0]
        return known

    async def lost_runs(self, node: str, held: Sequence[tuple[str, int]]) -> list[str]:
        rows = await self._fetch(
            VERBS.lost_runs, node, [run_id for run_id, _ in held], [fence for _, fence in held]
        )
        return [row[0] for row in rows]

    # --- AgentStore -------------------------------------------------------------------------------------------------

    async def lanes(self) -> list[Lane]:
        return [
            Lane(row[0], row[1], tuple(json.loads(row[2])), row[3], row[4])
            for row in await self._fetch(VERBS.lanes)
        ]

    async def claim_steps(self, node: str, lanes: Sequence[int], limit: int) -> list[ClaimedStep]:
        rows = await self._fetch(VERBS.claim_steps, node, lanes, limit)
        return [ClaimedStep(*row) for row in rows]

    async def lost_steps(self, node: str, held: Sequence[tuple[str, int, int]]) -> list[tuple[str, int]]:
        rows = await self._fetch(
            VERBS.lost_steps, *([list(part) for part in zip(*held, strict=True)] or [[], [], []])
        )
        return [(row[0], row[1]) for row in rows]

    async def next_ready(self, lanes: Sequence[int]) -> float | None:
        rows = await self._fetch(VERBS.next_ready, lanes)
        return rows[0][0] if rows else None

    # --- SupervisorStore --------------------------------------------------------------------------------------------

    async def _live_locks(self) -> list[int]:
        rows = await self._fetch(VERBS.live_locks)
        return list(rows[0][0])

    async def lead(self, node: str, lease_s: float, lease: str = "leader") -> int | None:
        rows = await self._fetch(VERBS.lead, node, lease_s, await self._live_locks(), lease)
        return rows[0][0] if rows else None

    async def resign(self, node: str) -> None:
        await self._fetch(VERBS.resign, node)

    async def dead_nodes(self, grace_s: float) -> list[tuple[str, str]]:
        rows = await self._fetch(VERBS.dead_nodes, await self._live_locks())
        dead = [(row["id"], LAPSED) for row in rows if row["expired"]]
        dead += [(row[0], "it left and still holds something") for row in await self._fetch(VERBS.strangers)]
        missing = {row["id"] for row in rows if not row["expired"]}
        if (
            missing and not dead
        ):  # whoever is dead for sure does not wait for those who may be back in a moment
            await self._environment.sleep(grace_s)
            rows = await self._fetch(VERBS.dead_nodes, await self._live_locks())
            dead = [(row["id"], "its process is gone") for row in rows if row["id"] in missing]
        return dead

    async def bury(self, node: str, epoch: int, reason: str, losses_max: int, limit: int) -> Reclaimed | None:
        config = msgspec.structs.replace(self._config, losses_max=losses_max)

        async def run(connection: asyncpg.Connection[Any]) -> Reclaimed | None:
            async with connection.transaction():
                row = await connection.fetchrow(VERBS.bury, node, epoch, limit, reason == LAPSED)
                if row is not None and row["alive"]:
                    return Reclaimed(0, 0, 0)
                if row is None or not row["reign"]:
                    return None
                held = await connection.fetch(VERBS.held_by, node, limit)
                remedies = await self._take_back(connection, held, lost(node, reason), config)
                failed = sum(one.state is StepState.FAILED for one in remedies)
                poison = sum(one.fingerprint is not None for one in remedies)
                place = await connection.fetchrow(VERBS.retire_buried, node)
                if place is not None:
                    note = (
                        f"{reason}: {row['runs']} runs freed, {len(held)} steps taken back, {failed} of them failed, "
                        f"{poison} in quarantine"
                    )
                    told = alert_columns([offline(node, note, place)])
                    await connection.fetch(VERBS.raise_alerts, epoch, [], *told)
                    await connection.execute(
                        VERBS.journal_add, "supervisor", "bury", None, None, f"node {node}: {note}"
                    )
                return Reclaimed(row["runs"], len(held), failed, poison)

        return await self._on_pool(run)

    async def _take_back(
        self, connection: asyncpg.Connection[Any], held: Sequence[asyncpg.Record], loss: Loss, config: Config
    ) -> list[Remedy]:
        """Take steps, whose rows are locked, from their agents, with what follows by their policies."""
        if not held:
            return []
        now: float = await connection.fetchval(VERBS.store_now)
        random = self._environment.random
        remedies = [remedy(Held(*row), loss, now=now, random=random, config=config) for row in held]
        columns = zip(
            *(
                (*one.step[:3], one.state, one.after_s, one.losses, one.timeouts, one.fingerprint)
                for one in remedies
            ),
            strict=True,
        )
        await connection.fetch(VERBS.take_back, *columns, loss.ending, loss.told, loss.kind, loss.place)
        return remedies

    async def hush_signals(self, epoch: int, limit: int) -> int:
        tag = await self._on_pool(lambda connection: connection.execute(VERBS.hush_signals, epoch, limit))
        return int(tag.rsplit(" ", 1)[-1])

    async def end_overdue(self, epoch: int, grace_s: float, limit: int) -> int:
        async def run(connection: asyncpg.Connection[Any]) -> int:
            async with connection.transaction():
                late = await connection.fetch(VERBS.overdue_steps, epoch, grace_s, limit)
                await self._take_back(connection, late, overdue(), self._config)
                for row in late:
                    await connection.execute(
                        VERBS.journal_add, "supervisor", "end_overdue", row[0], row[1], "attempt overdue"
                    )
                return len(late)

        return await self._on_pool(run)

    # --- NodeStore --------------------------------------------------------------------------------------------------

    async def register(
        self, node: str, *, host: str, pid: int, roles: str, offers: str, capacity: int, lease_s: float
    ) -> None:
        digest = hashlib.blake2b(node.encode(), digest_size=8).digest()
        key = int.from_bytes(digest, "big", signed=True)
        if self._lock_key != key:
            self._lock_key = key
            await hang_up(self._direct)
        await self._connect_direct()
        await self._fetch(VERBS.register, node, host, pid, roles, offers, capacity, key, lease_s)

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
        self, node: str, runs: Sequence[str], steps: Sequence[tuple[str, int]]
    ) -> tuple[int, int]:
        gone_runs = await self._fetch(VERBS.reconcile_runs, node, runs)
        gone_steps = await self._fetch(
            VERBS.reconcile_steps, node, [run_id for run_id, _ in steps], [n for _, n in steps]
        )
        return len(gone_runs), len(gone_steps)

    async def ring(self, bells: set[Bell]) -> None:
        for bell in sorted(bells):
            await self._fetch("SELECT pg_notify($1, $2)", CHANNEL, bell.value)

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

    # --- ClientStore ------------------------------------------------------------------------------------------------

    async def now(self) -> float:
        at: float = (await self._fetch(VERBS.store_now))[0][0]
        return at

    async def run(self, run_id: str) -> Run | None:
        rows = await self._fetch(VERBS.run, run_id)
        return _run(rows[0]) if rows else None

    async def runs(self, where: RunFilter) -> list[Run]:
        at, after = where.before or (None, None)
        tags = json.dumps(where.tags) if where.tags else None
        asked = (list(where.states), where.workflow, at, after, tags, where.limit)
        rows = await self._fetch(VERBS.runs, *asked, patiently=True)
        return [_run(row) for row in rows]

    async def ended_runs(self, run_ids: Sequence[str]) -> list[Run]:
        return [_run(row) for row in await self._fetch(VERBS.ended_runs, run_ids)]

    async def runs_by_state(self) -> dict[str, int]:
        rows = await self._fetch(VERBS.runs_by_state, patiently=True)
        return {row[0]: row[1] for row in rows}

    async def steps(self, run_id: str, *, after: int = 0, limit: int = 1000) -> list[Step]:
        return [_step(row) for row in await self._fetch(VERBS.steps, run_id, after, limit)]

    async def attempts(self, run_id: str) -> list[Attempt]:
        return [Attempt(*row) for row in await self._fetch(VERBS.attempts, run_id)]

    async def signals(self, run_id: str) -> list[Signal]:
        return [_signal(row) for row in await self._fetch(VERBS.signals, run_id)]

    async def children(self, run_id: str) -> list[Run]:
        return [_run(row) for row in await self._fetch(VERBS.children, run_id)]

    async def nodes(self) -> list[Node]:
        return [Node(*row) for row in await self._fetch(VERBS.nodes)]

    async def loads(self) -> dict[str, tuple[int, int]]:
        return {row[0]: (row[1], row[2]) for row in await self._fetch(VERBS.loads)}

    async def journal(self, run_id: str | None, limit: int = 100) -> list[JournalEntry]:
        return [JournalEntry(*row) for row in await self._fetch(VERBS.journal, run_id, limit)]

    async def living(self, limit: int) -> list[Node]:
        return [Node(*row) for row in await self._fetch(VERBS.living, limit)]

    async def leader(self) -> Leader | None:
        rows = await self._fetch(VERBS.leader)
        return Leader(*rows[0]) if rows else None

    async def send_signal(self, signal: NewSignal) -> Answer:
        arguments = (signal.run_id, signal.name, signal.key)
        if await self._fetch(VERBS.send_signal, *arguments, signal.payload):
            return Answer.ACCEPTED
        await self._known(signal.run_id)
        return Answer.DUPLICATE if await self._fetch(VERBS.sent_before, *arguments) else Answer.FENCED

    async def _known(self, run_id: str) -> Run:
        run = await self.run(run_id)
        if run is None:
            raise UnknownRun(f"no run has the id {run_id!r}: `holdfast ps` lists the newest")
        return run

    async def cancel_run(self, run_id: str, actor: str, note: str) -> RunState:
        async def run(connection: asyncpg.Connection[Any]) -> RunState | None:
            async with connection.transaction():
                row = await connection.fetchrow(VERBS.cancel_pending, run_id, note)
                if row is None:
                    return None
                await connection.execute(VERBS.journal_add, actor, "cancel", run_id, None, note)
                if row["parent_id"] is not None:
                    error = json.dumps(
                        {"type": "holdfast.errors.RunCancelled", "message": f"run {run_id} was cancelled"}
                    )
                    at = await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())::float8")
                    await connection.execute(
                        VERBS.tell_parents, [row[0]], [row[1]], ["failed"], [None], [error], [at]
                    )
                return RunState.CANCELLED

        done = await self._on_pool(run)
        if done is not None:
            return done
        seen = await self._known(run_id)
        if seen.state is RunState.HELD:
            await self.release(run_id, actor, "cancelled while held")
        if seen.finished_at is None:
            payload = json.dumps({"actor": actor, "note": note}).encode()
            if await self.send_signal(NewSignal(run_id, CANCEL, "cancel", payload)) is Answer.ACCEPTED:
                await self._fetch(VERBS.journal_add, actor, "cancel", run_id, None, note)
            # After the signal, which keeps a run from getting stuck: so the signal is delivered, whoever came first.
            await self._fetch(VERBS.unstick_quarantined, [run_id])
        return (await self._known(run_id)).state

    async def hold(self, run_id: str, actor: str, note: str) -> RunState:
        if not await self._fetch(VERBS.hold, run_id, note):
            seen = await self._known(run_id)
            if seen.state is not RunState.HELD:
                raise WrongState(f"run {run_id!r} is {seen.state}: only a run that has not ended can be held")
        else:
            await self._fetch(VERBS.journal_add, actor, "hold", run_id, None, note)
        return RunState.HELD

    async def release(self, run_id: str, actor: str, note: str) -> RunState:
        async def run(connection: asyncpg.Connection[Any]) -> RunState | None:
            async with connection.transaction():
                state = await connection.fetchval(VERBS.release, run_id)
                if state is None:
                    return None
                await connection.execute(VERBS.journal_add, actor, "release", run_id, None, note)
                if state == RunState.UNDOING:  # in the same commit: nothing else would wake it
                    await self._steer(connection, run_id, "resume", None, actor, note)
                return RunState(state)

        state = await self._on_pool(run)
        if state is None:
            seen = await self._known(run_id)
            raise WrongState(f"run {run_id!r} is {seen.state}: only a held run can be released")
        return state

    async def retry_now(self, run_id: str, actor: str) -> int:
        await self._known(run_id)
        count = len(await self._fetch(VERBS.retry_now, run_id))
        if count:
            await self._fetch(VERBS.journal_add, actor, "retry", run_id, None, f"{count} steps ready at once")
        return count

    async def retry_run(self, run_id: str, new_id: str, before_seq: int | None, actor: str) -> None:
        async def run(connection: asyncpg.Connection[Any]) -> None:
            async with connection.transaction():
                if not await connection.fetchval(VERBS.copy_run, run_id, new_id):
                    if seen.finished_at is None:
                        raise WrongState(
                            f"run {run_id!r} is {seen.state}: only an ended run is started again"
                        )
                    raise Conflict(f"a run with the id {new_id!r} exists already")
                if before_seq is not None:
                    await connection.execute(VERBS.copy_steps, run_id, new_id, before_seq)
                    await connection.execute(VERBS.copy_signals, run_id, new_id, before_seq)
                await connection.execute(VERBS.journal_add, actor, "retry", run_id, None, f"as {new_id}")

        seen = await self._known(run_id)
        await self._on_pool(run)

    async def steer_undo(self, run_id: str, act: str, n: int | None, actor: str, note: str) -> RunState:
        seen = await self._known(run_id)
        demand_undoing(seen, act)

        async def run(connection: asyncpg.Connection[Any]) -> None:
            async with connection.transaction():
                await connection.execute(VERBS.unstick, run_id)
                await connection.execute(VERBS.clear_stuck, run_id)
                await self._steer(connection, run_id, act, n, actor, note)

        await self._on_pool(run)
        return (await self._known(run_id)).state

    async def _steer(
        self,
        connection: asyncpg.Connection[Any],
        run_id: str,
        act: str,
        n: int | None,
        actor: str,
        note: str,
    ) -> None:
        payload = json.dumps({"act": act, "n": n, "actor": actor, "note": note}).encode()
        await connection.execute(VERBS.send_signal, run_id, UNDO, self._environment.new_id(), payload)
        await connection.execute(VERBS.journal_add, actor, act, run_id, n, note)

    async def doctor(self) -> list[tuple[str, str, int]]:
        return [(row[0], row[1], row[2]) for row in await self._fetch(VERBS.doctor, patiently=True)]


def _unreachable(error: BaseException) -> StoreUnreachable:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return StoreUnreachable(f"cannot reach the database: {reason}: check the URL and that the server runs")


def _read_only(error: BaseException) -> StoreUnreachable:
    return StoreUnreachable(
        f"the database only reads: {error}: it is a standby, or was demoted; name all hosts in the URL, and the one that "
        "takes writes is found"
    )


_RUN_STATES = {state.value: state for state in RunState}
_STEP_STATES = {state.value: state for state in StepState}
_STEP_KINDS = {kind.value: kind for kind in StepKind}
_STEP_STATE, _STEP_KIND = (Step.__struct_fields__.index(field) for field in ("state", "kind"))
_step_values = itemgetter(*Step.__struct_fields__)


def _run(row: asyncpg.Record) -> Run:
    fields = {field: row[field] for field in Run.__struct_fields__}
    fields["state"] = _RUN_STATES[row["state"]]
    fields["resume"] = _RUN_STATES.get(row["resume"])
    return Run(**fields)


def _step(row: asyncpg.Record) -> Step:
    values = list(_step_values(row))
    values[_STEP_STATE], values[_STEP_KIND] = _STEP_STATES[row["state"]], _STEP_KINDS[row["kind"]]
    return Step(*values)


def _signal(row: asyncpg.Record) -> Signal:
    return Signal(*[row[field] for field in Signal.__struct_fields__])
