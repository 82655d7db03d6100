"""The State Store on SQLite, through apsw: one file, one host, any number of processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import apsw

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.errors import Conflict, StoreError, StoreFull, StoreUnreachable, StoreUnsupported
from holdfast.model import NewRun
from holdfast.store.answers import Answer, PreconditionFailed
from holdfast.store.batch import WriteBatch
from holdfast.store.bell import Bell
from holdfast.store.database import Database, Processes, Row, Session, StoreCall
from holdfast.store.gathers import ScriptStatement, TakenStart, take
from holdfast.store.rows import start_row
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.address import path_of
from holdfast.store.sqlite.clock import Clock
from holdfast.store.sqlite.connections import BUSY_S, RETRY_S, Connections
from holdfast.store.sqlite.faults import explain
from holdfast.store.sqlite.processes import LockedProcesses
from holdfast.store.sqlite.session import CallersSession, SqliteSession
from holdfast.store.sqlite.verbs import STATEMENTS
from holdfast.store.transaction import Transaction, no_transaction
from holdfast.store.verbs import Verb

T = TypeVar("T")

LISTEN_MIN_S = 0.002
"""How soon to look again after another process wrote."""
LISTEN_MAX_S = 0.05
"""How long to wait between two looks when no other process writes. A look costs some microseconds."""


class SqliteDatabase(Database):
    def __init__(self, url: str, environment: Environment, config: Config) -> None:
        self.url = url
        self.environment, self.config = environment, config
        path = path_of(url)
        self.connections = Connections(path, environment)
        self.clock = Clock(environment, is_shared=not self.connections.in_memory)
        self.connections.on_connected = self.clock.serve
        self.processes: Processes = LockedProcesses(
            None if self.connections.in_memory else self.connections.path
        )

    @property
    def what(self) -> str:
        return self.connections.what

    @property
    def schema(self) -> int:
        return len(schema.known())

    @property
    def shared_url(self) -> str | None:
        return None if self.connections.in_memory else f"sqlite:///{quote(self.connections.path)}"

    # --- opening ------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        what = self.what
        await self.connections.open(lambda connection: schema.check(connection, what))
        try:
            async with self.connections.reading() as connection:
                is_new = schema.is_empty(connection)
            if is_new:
                await self._migrate()
            await self._set_clock()
        except BaseException:
            await self.close()
            raise

    async def _set_clock(self) -> None:
        async with self.connections.reading() as connection:
            is_right = self.clock.is_right(connection)
        if not is_right:
            try:
                async with self.connections.transaction() as connection:
                    if not self.clock.is_right(connection):  # another process may have been first
                        self.clock.anchor(connection)
            except StoreFull:  # the file is read-only, and this is good enough to read it
                self.clock.anchor(None)
        self.connections.on_changed = self.clock.learn

    async def close(self) -> None:
        await self.connections.close()
        if isinstance(self.processes, LockedProcesses):
            self.processes.let_all_go()

    async def migrate(self) -> tuple[int, int]:
        if self.connections.is_open:
            return await self._migrate()
        what = self.what
        await self.connections.open(lambda connection: schema.demand_ours(connection, what))
        try:
            return await self._migrate()
        finally:
            await self.connections.close()

    async def _migrate(self) -> tuple[int, int]:
        what = self.what
        self.clock.begin_session()
        return await self.connections.exclusively(lambda connection: schema.migrate(connection, what))

    # --- reading and writing ------------------------------------------------------------------------------------

    async def now(self) -> float:
        return self.clock.now()

    def _session(self, connection: apsw.Connection) -> Session:
        return SqliteSession(connection, self.clock)

    async def look(
        self, call: StoreCall, read: Callable[[Session], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        if patiently and not self.connections.in_memory:
            return await self.connections.read_long(
                lambda connection: _at_once(read(self._session(connection)))
            )
        async with self.connections.reading() as connection:
            return await read(self._session(connection))

    async def write(
        self, call: StoreCall, act: Callable[[Session], Awaitable[T]], *, is_single: bool = False
    ) -> T:
        async with self.connections.transaction() as connection:
            return await act(self._session(connection))

    async def claim(
        self,
        call: StoreCall,
        is_any: Callable[[Session], Awaitable[bool]],
        act: Callable[[Session], Awaitable[list[T]]],
    ) -> list[T]:
        return await self.write(call, act) if await self.look(call, is_any) else []

    async def commit(self, call: StoreCall, batch: WriteBatch) -> list[Answer]:
        async def act(session: Session) -> list[Answer]:
            try:
                return await batch.write(session)
            except apsw.ConstraintError as error:
                # Several operations are written again one at a time, so that one bad row does not fail the others.
                if len(batch.ops) > 1:
                    raise PreconditionFailed from error
                raise

        return await self.write(call, act)

    async def renew(self, node: str, lease_s: float, pulse: str | None) -> float | None:
        call = StoreCall("renew", ("node", "lease_s", "pulse"), (node, lease_s, pulse), {})
        renewed: float | None = await self.write(
            call, lambda session: session.value(Verb.renew, node, lease_s, pulse, 0.0)
        )
        return renewed

    # --- bells --------------------------------------------------------------------------------------------------

    async def ring(self, bells: set[Bell]) -> None:
        """Do nothing: those who listen see that the file has changed."""

    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        async def look() -> None:
            pause_s = LISTEN_MAX_S
            while True:
                await self.environment.sleep(pause_s)
                try:
                    changed = self.connections.look_around()
                except StoreError:
                    changed = True  # whoever wakes up meets the same error and can report it
                if changed:
                    for bell in Bell:
                        heard(bell)
                    pause_s = LISTEN_MIN_S
                else:
                    pause_s = min(pause_s * 1.5, LISTEN_MAX_S)

        looking = None if self.connections.in_memory else asyncio.create_task(look(), name="holdfast-listen")

        async def close() -> None:
            if looking is not None:
                looking.cancel()
                await asyncio.wait([looking])

        return close

    # --- in a caller's transaction ------------------------------------------------------------------------------

    async def start_within(self, transaction: Transaction, run: NewRun) -> str:
        """Start a run in a transaction on the caller's own apsw connection to the same file."""
        connection = await self._callers(transaction)
        if run.gather is not None:
            return await self._gather_within(connection, run)
        if await self._execute_within(connection, ScriptStatement(Verb.start_runs, start_row(run))):
            return run.id
        found = connection.execute(STATEMENTS[Verb.started_as], (json.dumps([run.id]),)).fetchall()
        if [row[1:] for row in found] != [(run.workflow, run.digest)]:
            raise Conflict.of_start(run.id)
        return run.id

    async def _callers(self, transaction: Transaction) -> apsw.Connection:
        """Return the caller's own apsw connection to the same file, which has begun a transaction."""
        connection = await transaction.connection()
        if not isinstance(connection, apsw.Connection):
            raise StoreUnsupported(
                f"hf.within() got a {transaction.what}: on SQLite only an apsw.Connection to {self.what} can carry the start. "
                "Two SQLite libraries in one process do not see each other's locks, and overwrite each other's commits (the "
                "sqlite3 module, SQLAlchemy and Django use another one than Holdfast): keep your tables in another file and start "
                "the run after your commit, under an id made from your row, or use PostgreSQL"
            )
        if not self.connections.is_at(connection.filename):
            raise StoreUnsupported(f"hf.within() got a connection to another database than {self.what}")
        if not connection.in_transaction:
            raise no_transaction(transaction.what, "`with connection:`, or BEGIN IMMEDIATE")
        return connection

    async def work_within(
        self, transaction: Transaction, act: Callable[[Session], Awaitable[Any]], bells: Sequence[Bell]
    ) -> None:
        connection = await self._callers(transaction)
        # Whoever writes first waits for other writers: from then on, nobody else writes.
        await self._when_free(connection, "UPDATE events SET actor = actor WHERE 0", ())
        await act(CallersSession(connection, self.clock))

    async def _gather_within(self, connection: apsw.Connection, run: NewRun) -> str:
        script = take(run, self.config.payload_max_bytes)
        ask = next(script)
        while True:
            rows = await self._execute_within(connection, ask)
            try:
                ask = script.send(rows)
            except StopIteration as done:
                taken: TakenStart = done.value
                if taken.answer is Answer.FENCED:
                    raise Conflict.of_start(run.id) from None
                return taken.run_id

    async def _execute_within(self, connection: apsw.Connection, ask: ScriptStatement) -> list[Row]:
        """Execute a statement on the caller's connection, and wait for other writers. This does not take our own lock,
        because our writer may be waiting for this caller."""
        values = tuple(json.dumps(value) if type(value) is list else value for value in ask.values)
        statement = STATEMENTS[ask.verb]
        if "store_now()" in statement:  # the caller's connection has no such function
            values = (*values, self.clock.now())
            statement = statement.replace("store_now()", f"?{len(values)}")
        return await self._when_free(connection, statement, values)

    async def _when_free(
        self, connection: apsw.Connection, statement: str, values: tuple[Any, ...]
    ) -> list[Any]:
        """Execute a statement on a caller's connection as soon as no other connection writes."""
        waited_s = 0.0
        while True:
            try:
                return connection.execute(statement, values).fetchall()
            except apsw.BusyError as error:
                if getattr(error, "extendedresult", 0) == apsw.SQLITE_BUSY_SNAPSHOT:
                    raise StoreUnreachable(
                        "the caller's transaction read before others wrote: begin it with BEGIN IMMEDIATE"
                    ) from error
                if waited_s >= BUSY_S:
                    raise explain(self.what, error) from error
            except apsw.Error as error:
                raise explain(self.what, error) from error
            await self.environment.sleep(RETRY_S * 4)
            waited_s += RETRY_S * 4


def _at_once(reading: Awaitable[T]) -> T:
    """Run a coroutine that never waits, without an event loop, and return its result. Used in a thread."""
    steps: Any = reading.__await__()
    try:
        next(steps)
    except StopIteration as done:
        result: T = done.value
        return result
    raise RuntimeError("a session of SQLite must not wait for anything")
