"""Two sessions of PostgreSQL that a test drives step by step.

An operation is a call of one of the store's methods. It goes through the product's own code. Only the driver's
connection is wrapped: before each statement, and before each commit, there is a place at which the operation can be
stopped. So the first of two operations stops at one of its places, the second one runs until it has ended or waits for
a lock, and then the first one goes on.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar, cast

import asyncpg
import msgspec

from holdfast.config import DEFAULT
from holdfast.environment import Environment
from holdfast.errors import HoldfastError
from holdfast.model import NEVER
from holdfast.store.answers import PreconditionFailed
from holdfast.store.batch import ORDER
from holdfast.store.database import Session, StoreCall
from holdfast.store.postgres.database import PostgresDatabase
from holdfast.store.postgres.session import HOP_PARTS, PostgresSession, demanded
from holdfast.store.postgres.verbs import STATEMENTS
from holdfast.store.store import Store

T = TypeVar("T")

ENVIRONMENT = Environment()
LOCKS = re.compile(
    r"\b(INSERT\s+INTO|UPDATE\s+holdfast\.|DELETE\s+FROM|LOCK\s+TABLE|FOR\s+(NO\s+KEY\s+)?UPDATE|FOR\s+(KEY\s+)?SHARE)\b"
)
"""What a statement contains that writes rows, or locks them."""
PATIENCE_S = 10.0
"""After this time two operations wait for each other, or for something that never comes."""
NUMBERS = {"id", "number", "queue", "limits", "rates", "limit_a", "limit_b", "limit_c"}
"""Columns and fields that have numbers of rows. A number is used up even if the row was there already."""
FIRST_NEW_ID = 1000
"""The database numbers new rows from here on, so that a test distinguishes them from those that were prepared."""

_VERBS: dict[str, tuple[str, ...]] = {
    **{text: (verb,) for verb, text in STATEMENTS.items()},
    **{demanded(verb): (verb,) for verb, is_demanded in ORDER if is_demanded},
}


def verbs_of(statement: str) -> tuple[str, ...]:
    """Return the verbs of a statement. A batch writes its hops with one statement of several verbs."""
    if statement in _VERBS:
        return _VERBS[statement]
    return tuple(str(verb) for verb, _ in HOP_PARTS if f"{verb} AS (\n" in statement)


class Course:
    """The course of one operation: its places so far, and the one at which it stops."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.places: list[str] = []
        """What the operation was about to do at each place: verbs, or `commit`."""
        self.verbs: set[str] = set()
        self.pid = 0
        """The server's process that runs the operation's statements."""
        self.deadlocks = 0
        self.stopped = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self._stop_at = stop_at

    async def pass_by(self, place: str) -> None:
        self.places.append(place)
        if len(self.places) - 1 == self._stop_at:
            self.stopped.set()
            await self.may_go_on.wait()


class WatchedConnection:
    """A connection of the driver that passes by a place before each statement and each commit."""

    def __init__(self, connection: Any, course: Course, *, only_reads: bool = False) -> None:
        self.unwatched, self._course, self._only_reads = connection, course, only_reads

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unwatched, name)

    async def fetch(self, statement: str, *values: Any) -> Any:
        return await self._run(self.unwatched.fetch, statement, values)

    async def fetchval(self, statement: str, *values: Any) -> Any:
        return await self._run(self.unwatched.fetchval, statement, values)

    async def execute(self, statement: str, *values: Any) -> Any:
        return await self._run(self.unwatched.execute, statement, values)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        async with self.unwatched.transaction():
            yield
            await self._course.pass_by("commit")

    async def _run(self, run: Callable[..., Awaitable[Any]], statement: str, values: Sequence[Any]) -> Any:
        if not self._only_reads and not self.unwatched.is_in_transaction() and LOCKS.search(statement):
            # A statement that is a transaction by itself gets an explicit one, which can be left open.
            async with self.transaction():
                return await self._run(run, statement, values)
        verbs = verbs_of(statement)
        await self._course.pass_by(" ".join(verbs) or statement)
        self._course.verbs.update(verbs)
        self._course.pid = self.unwatched.get_server_pid()
        try:
            return await run(statement, *values)
        except asyncpg.DeadlockDetectedError:
            self._course.deadlocks += 1  # the store tries again, so nobody else would notice
            raise


class WatchedDatabase(PostgresDatabase):
    """The product's database on watched connections."""

    course = Course()

    async def on_pool(
        self, use: Callable[[asyncpg.Connection[Any]], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        return await super().on_pool(
            lambda connection: use(cast("Any", WatchedConnection(connection, self.course))),
            patiently=patiently,
        )

    async def look(
        self, call: StoreCall, read: Callable[[Session], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        def use(connection: asyncpg.Connection[Any]) -> Awaitable[T]:
            watched = WatchedConnection(connection, self.course, only_reads=True)
            return read(PostgresSession(cast("Any", watched)))

        return await super().on_pool(use, patiently=patiently)

    async def _connect_hot(self) -> asyncpg.Connection[Any]:
        watched: Any = WatchedConnection(await super()._connect_hot(), self.course)
        return cast("asyncpg.Connection[Any]", watched)

    async def _connect_direct(self) -> asyncpg.Connection[Any]:
        watched: Any = WatchedConnection(await super()._connect_direct(), self.course)
        return cast("asyncpg.Connection[Any]", watched)


class NamedIds(Environment):
    """An environment whose ids are the same in every run of an operation."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def new_id(self) -> str:
        return f"an id of {self.name}"


class Operation(NamedTuple):
    """A call of one of the store's methods by a node, with fixed arguments."""

    name: str
    call: Callable[[Store, str], Awaitable[Any]]
    skips: str = ""
    """Why the operation may leave out a row that another transaction has locked. Empty if it may not."""


class Party:
    """One of the two nodes, with connections of its own."""

    def __init__(self, node: str, url: str) -> None:
        self.node = node
        self.database = WatchedDatabase(url, NamedIds(node), DEFAULT)
        self.store = Store(self.database)

    async def answer(self, operation: Operation, course: Course) -> Any:
        """Execute an operation. Return its answer, or the error that it raised."""
        self.database.course = course
        try:
            return await operation.call(self.store, self.node)
        except (HoldfastError, PreconditionFailed) as error:
            return f"{type(error).__name__}: {error}"


class Seen(NamedTuple):
    """What can be seen of two operations: their answers, and all rows of all tables."""

    first: Any
    second: Any
    rows: list[str]

    def as_of_one_node(self) -> tuple[list[str], list[str]]:
        """Return the same, as if both operations had been executed by the same node."""
        answers, rows = [*self.first, *self.second], self.rows
        return sorted(re.sub("node-[ab]", "a node", str(one)) for one in answers), sorted(
            re.sub("node-[ab]", "a node", row) for row in rows
        )

    def lines(self) -> list[str]:
        return [f"answer to the first: {self.first}", f"answer to the second: {self.second}", *self.rows]


class World:
    """A prepared database, and two parties that act on it."""

    def __init__(self, admin: asyncpg.Connection[Any], parties: tuple[Party, Party]) -> None:
        self.admin, self.parties = admin, parties
        self._tables: dict[str, list[tuple[str, str]]] = {}
        self._known_times: set[float] = set()
        self._changes = self._lockers = ""

    # --- the prepared rows ----------------------------------------------------------------------------------------

    async def save(self) -> None:
        """Save all rows as they are now. Every case begins with them."""
        found = await self.admin.fetch(
            "SELECT table_name, column_name, data_type, is_generated FROM information_schema.columns"
            " WHERE table_schema = 'holdfast' AND table_name <> 'migrations' ORDER BY table_name, ordinal_position"
        )
        written: dict[str, list[str]] = {}
        for table, column, kind, is_generated in found:
            self._tables.setdefault(table, []).append((column, kind))
            if is_generated == "NEVER":
                written.setdefault(table, []).append(column)
        numbers = await self.admin.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'S' AND relnamespace = 'holdfast'::regnamespace"
        )
        await self.admin.execute("DROP SCHEMA IF EXISTS saved CASCADE; CREATE SCHEMA saved")
        for (sequence,) in numbers:
            await self.admin.execute(f"ALTER SEQUENCE holdfast.{sequence} RESTART {FIRST_NEW_ID}")
        for table in self._tables:
            await self.admin.execute(f"CREATE TABLE saved.{table} AS TABLE holdfast.{table}")
        await self.admin.execute("VACUUM ANALYZE")
        # Most rows stay as they are, so only the others are written again. A function keeps its plans.
        body = "".join(
            f"DELETE FROM holdfast.{table} h WHERE h::text NOT IN (SELECT s::text FROM saved.{table} s);"
            f"INSERT INTO holdfast.{table} ({', '.join(written[table])}) OVERRIDING SYSTEM VALUE"
            f" SELECT {', '.join(written[table])} FROM saved.{table} s WHERE s::text NOT IN (SELECT h::text FROM holdfast.{table} h);"
            for table in self._tables
        )
        await self.admin.execute(
            f"CREATE FUNCTION saved.restore() RETURNS void LANGUAGE plpgsql AS $$ BEGIN {body} END $$"
        )
        self._changes = " UNION ALL ".join(
            f"SELECT '{table}', '+', json_build_array({', '.join(_selected(*one) for one in columns)})::text"
            f" FROM holdfast.{table} h WHERE h::text NOT IN (SELECT s::text FROM saved.{table} s)"
            f" UNION ALL SELECT '{table}', '-', s::text"
            f" FROM saved.{table} s WHERE s::text NOT IN (SELECT h::text FROM holdfast.{table} h)"
            for table, columns in self._tables.items()
        )
        self._lockers = " UNION ALL ".join(
            f"SELECT '{table} ' || h::text, h.xmax::text FROM holdfast.{table} h" for table in self._tables
        )
        for table, columns in self._tables.items():
            for column, kind in columns:
                if kind.startswith("timestamp"):
                    found = await self.admin.fetch(f"SELECT {_selected(column, kind)} FROM saved.{table}")
                    self._known_times |= {at for (at,) in found}

    async def restore(self) -> None:
        await self.admin.execute("SELECT saved.restore()")

    # --- what can be seen -----------------------------------------------------------------------------------------

    async def seen(self, first: Any, second: Any) -> Seen:
        """Return what can be seen now: the answers, and the rows that were written (+) or are no longer as they were
        (-). Times that an operation wrote, and numbers of new rows, are shown as such."""
        plain = Plain(self._known_times, ENVIRONMENT.now())
        rows = []
        for table, sign, row in await self.admin.fetch(self._changes):
            shown = row
            if table == "journal" and '"prune"' in row:
                continue  # it says how many rows one batch has removed, and what is left out comes with the next batch
            if sign == "+":
                shown = {
                    column: plain.time(value) if kind.startswith("timestamp") else plain.value(value, column)
                    for (column, kind), value in zip(self._tables[table], json.loads(row), strict=True)
                    if value is not None and column != "vacant_s"
                }
            rows.append(f"{sign} {table} {shown}")
        return Seen(plain.value(first), plain.value(second), sorted(rows))

    # --- courses --------------------------------------------------------------------------------------------------

    async def alone(self, operation: Operation, node: int = 0) -> tuple[Course, Any]:
        """Execute one operation on the prepared rows. Return its course and its answer."""
        await self.restore()
        course = Course()
        return course, await self.parties[node].answer(operation, course)

    async def locked(self, operation: Operation, last: int) -> set[str]:
        """Return the prepared rows that an operation has written or locked when it is about to commit. The server notes
        that in the column `xmax` of a row."""
        await self.restore()
        before = {tuple(row) for row in await self.admin.fetch(self._lockers)}
        course = Course(last)
        task = asyncio.create_task(self.parties[0].answer(operation, course))
        await course.stopped.wait()
        after = {tuple(row) for row in await self.admin.fetch(self._lockers)}
        course.may_go_on.set()
        await task
        return {row for row, _ in after - before}

    async def one_after_the_other(
        self, first: Operation, second: Operation, *, turned: bool = False, again: int | None = None
    ) -> Seen:
        """Execute one operation and then the other. `turned`: the second one comes first. `again`: this one of the two is
        executed once more at the end, as whoever asks for work does."""
        await self.restore()
        one, two = self.parties
        answers: list[Any] = [None, None]
        order = [(1, two, second), (0, one, first)] if turned else [(0, one, first), (1, two, second)]
        for place, party, operation in order:
            answers[place] = await party.answer(operation, Course())
        if again is not None:
            party, operation = ((one, first), (two, second))[again]
            answers[again] = added(answers[again], await party.answer(operation, Course()))
        return await self.seen(*answers)

    async def interleaved(
        self, first: Operation, second: Operation, stop_at: int
    ) -> tuple[Course, Course, Any, Any]:
        """Stop the first operation at one of its places. Run the second one until it has ended or waits for a lock.
        Then let the first one go on, and wait until both have ended."""
        await self.restore()
        course, other = Course(stop_at), Course()
        one = asyncio.create_task(self.parties[0].answer(first, course))
        stopped = asyncio.create_task(course.stopped.wait())
        two: asyncio.Task[Any] | None = None
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.wait([one, stopped], return_when=asyncio.FIRST_COMPLETED)
                two = asyncio.create_task(self.parties[1].answer(second, other))
                while not two.done() and not await self.waits_for(other.pid):
                    pass
                course.may_go_on.set()
                return course, other, await one, await two
        finally:
            for task in (stopped, one, two):
                if task is not None:
                    task.cancel()

    async def waits_for(self, pid: int) -> set[int]:
        """Return the processes of the server that have a lock for which this process waits."""
        return set(await self.admin.fetchval("SELECT pg_blocking_pids($1)", pid))


def _selected(column: str, kind: str) -> str:
    if kind.startswith("timestamp"):
        return f"extract(epoch FROM {column})::float8"
    return f"encode({column}, 'escape')" if kind == "bytea" else column


def added(one: Any, more: Any) -> Any:
    """Return the answers of two calls as one: what was claimed is joined, and what was counted is added up."""
    if isinstance(one, msgspec.Struct) and type(one) is type(more):
        return type(one)(
            **{name: added(getattr(one, name), getattr(more, name)) for name in one.__struct_fields__}
        )
    if isinstance(one, list) and isinstance(more, list):
        return [*one, *more]
    if isinstance(one, int) and isinstance(more, int):
        return one + more
    return more if one is None else one


class Plain:
    """Writes values in such a way that two executions of the same operation give the same text."""

    def __init__(self, known_times: set[float], now: float) -> None:
        self._known_times, self._now = known_times, now

    def time(self, at: float) -> str:
        """Return a time that was prepared as it is, and a new one in half hours from now."""
        if at >= NEVER:
            return "never"
        return f"{at:f}" if at in self._known_times else f"now + {round((at - self._now) / 1800)}"

    def value(self, value: Any, name: str = "") -> Any:
        if isinstance(value, msgspec.Struct):
            fields = {field: self.value(getattr(value, field), field) for field in value.__struct_fields__}
            return f"{type(value).__name__} {fields}"
        if isinstance(value, Mapping):
            return {key: self.value(one, key) for key, one in value.items()}
        if isinstance(value, tuple):
            return tuple(self.value(one, name) for one in value)
        if isinstance(value, list):
            return sorted((self.value(one) for one in value), key=repr)
        if isinstance(value, float) and value > 1e9:
            return self.time(value)
        if isinstance(value, int) and name in NUMBERS and value >= FIRST_NEW_ID:
            return "new"
        if isinstance(value, str) and name in ("limits", "rates"):
            return re.sub(r"\b\d{4,}\b", "new", value)
        if isinstance(value, str):
            return re.sub(r"\b\d{10}(\.\d+)?\b", "a time", value)
        return value


def differences(found: Seen, wanted: Seen) -> Iterator[str]:
    """Yield the lines in which two results differ."""
    have, want = found.lines(), wanted.lines()
    for line in sorted({*have, *want}):
        if have.count(line) != want.count(line):
            yield f"  {'+' if have.count(line) > want.count(line) else '-'} {line}"
