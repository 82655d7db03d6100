"""A simulated world: processes that share one real SQLite in memory, one clock, one thread and one seed.

    world = World(seed=7)
    one = world.process("one")                            # a Holdfast; takes roles= and labels= as Holdfast does
    world.run(one.open())                                 # runs this to its end, as code of the process `one`
    run = world.run(one.start(order.using(id="a"), 42))
    world.loop.run_for(0.1)
    world.kill(one)                                       # kill -9: no code of it runs any more, not even a `finally`
    two = world.process("two"); world.run(two.open())     # notices that `one` is gone, and goes on with its run
    receipt = world.run(two.run(run.id).result())

Each process is a `Holdfast` with its own store object. So each one can be killed (`kill`), stopped for a while
(`pause`) or cut off from the store without the others. A `Faults` object decides what goes wrong between a process and
the store; the one here lets nothing go wrong. Every call to the store passes `reach` (before it gets to the store),
then for a write `fate` (is it committed, and does its caller get the answer?), then `answer`. `world.committed` is
called after every commit, with the process, the store's verb and its arguments. A call is one transaction, as it is
between real processes; no other code runs inside it.

Clocks: `world.store_now()` is the store's clock, which leases and timers go by; `step_clock` moves it. Each process has
its own monotonic clock and its own time of day (`skew_s`, `rate`).
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from enum import Enum
from random import Random
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias, TypeVar

from holdfast.client import Holdfast
from holdfast.config import DEFAULT, Config
from holdfast.environment import Environment
from holdfast.errors import StoreError, StoreFull, StoreUnreachable
from holdfast.model import ROLES
from holdfast.node import Node
from holdfast.store.bell import Bell
from holdfast.store.database import Session, StoreCall
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.clock import Clock
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.sqlite.faults import LibraryError, explain
from holdfast.store.sqlite.memory import MemoryConnections
from holdfast.store.sqlite.session import SqliteSession
from holdfast.store.store import Store
from holdfast.testing.loop import PROCESS, Handle, VirtualLoop

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""The time of day when a simulation begins."""
MEMORY = "sqlite://:memory:"

Rows: TypeAlias = dict[str, list[tuple[Any, ...]]]
"""The rows of each table."""


class WriteFate(Enum):
    """What happens to a write."""

    COMMITTED = "committed"
    LOST = "lost"
    """It is rolled back, and its caller gets the error that the store is away."""
    FULL = "full"
    """It is rolled back, and its caller gets the error that the disk is full."""
    UNANSWERED = "unanswered"
    """It is committed, and its caller gets the error that the store did not answer."""
    DIES_BEFORE = "dies before"
    """The process is killed before the commit."""
    DIES_AFTER = "dies after"
    """The process is killed after the commit, before it gets the answer."""


class Faults:
    """Decides what goes wrong between a process and the store: here, nothing. `verb` is the store's method."""

    async def reach(self, process: Process, verb: str, writes: bool) -> None:
        """Called before a call gets to the store. It may wait, raise StoreUnreachable (the call is lost), or kill."""

    def fate(self, process: Process, verb: str) -> WriteFate:
        """Return what happens to a write that is about to be committed."""
        return WriteFate.COMMITTED

    async def answer(self, process: Process, verb: str, writes: bool) -> None:
        """Called before the caller gets the answer. If it waits, the answer is out of date when it arrives."""

    def bells(self, source: Process, target: Process, bell: Bell) -> list[float]:
        """Return after how many seconds the target hears the bell, once for each number. If empty, the bell is lost."""
        return [0.0]


class VirtualEnvironment(Environment):
    """The clocks, the random numbers and the identity of one simulated process."""

    def __init__(self, world: World, name: str, *, skew_s: float = 0.0, rate: float = 1.0) -> None:
        self._loop = world.loop
        self.random = Random(f"{world.seed}/{name}")  # noqa: S311  reproducible from the seed
        self.host, self.pid = name, 0
        self.skew_s, self.rate = skew_s, rate
        self._begun = EPOCH / 1000 + self.random.random() * 1000

    def memory_mb(self) -> float:
        return 0.0

    def secret(self, size: int) -> bytes:
        """Return bytes that the seed decides. In a simulation nobody is there to guess them."""
        return self.random.randbytes(size)

    def now(self) -> float:
        return EPOCH + self._loop.now + self.skew_s

    def monotonic(self) -> float:
        return self._begun + self._loop.now * self.rate

    async def sleep(self, seconds: float) -> None:
        loop = self._loop
        future = loop.create_future()
        timer = loop.call_at(loop.now + max(0.0, seconds), _wake, future)
        try:
            await future
        finally:
            timer.cancel()

    async def blocking(self, call: Callable[[], T]) -> T:
        return call()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _StoreEnvironment(VirtualEnvironment):
    """An environment whose time of day is the store's clock."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, f"{name}/store")
        self._world = world

    def now(self) -> float:
        return self._world.store_now()


class SharedDatabase(SqliteDatabase):
    """One process's access to the database that all processes share. It uses the product's own SQLite dialect; only
    what happens between the process and the database is simulated."""

    def __init__(self, world: World, process: Process) -> None:
        super().__init__(MEMORY, _StoreEnvironment(world, process.name), process.config)
        self.world, self.process = world, process
        self.processes = _SharedProcesses(world, process)
        self.clock = world.clock
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        self._is_open = False

    def _not_open(self) -> StoreError:
        return StoreUnreachable(f"{self.what} is not open")

    def _refused(self, verb: str, error: LibraryError) -> StoreError:
        self.world.refused(self.process, verb, error)
        return explain(self.what, error)

    async def look(
        self, call: StoreCall, read: Callable[[Session], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        """Read. The answer may be out of date when the reader gets it."""
        world, process, verb = self.world, self.process, call.verb
        await world.faults.reach(process, verb, False)
        if not self._is_open:
            raise self._not_open()
        try:
            found = await read(SqliteSession(world.reader(verb), self.clock))
        except LibraryError as error:
            raise self._refused(verb, error) from error
        await world.faults.answer(process, verb, False)
        return found

    async def write(
        self, call: StoreCall, act: Callable[[Session], Awaitable[T]], *, is_single: bool = False
    ) -> T:
        """Begin, do and commit a transaction. No other code runs in between."""
        world, process, verb, asked = self.world, self.process, call.verb, call.arguments
        world.asking(process, verb, asked)
        await world.faults.reach(process, verb, True)
        if not self._is_open:
            raise self._not_open()
        connection = world.connection
        before = connection.total_changes()
        connection.execute("BEGIN IMMEDIATE")
        try:
            done = await act(SqliteSession(connection, self.clock))
        except LibraryError as error:
            self._roll_back()
            raise self._refused(verb, error) from error
        except BaseException:
            self._roll_back()
            raise
        if connection.total_changes() == before:
            self._roll_back()
        else:
            await self._commit(verb, asked)
        await world.faults.answer(process, verb, True)
        return done

    async def _commit(self, verb: str, asked: dict[str, Any]) -> None:
        world, process = self.world, self.process
        fate = world.faults.fate(process, verb)
        if fate is not WriteFate.COMMITTED and fate in (
            WriteFate.LOST,
            WriteFate.FULL,
            WriteFate.DIES_BEFORE,
        ):
            self._roll_back()
            if fate is WriteFate.DIES_BEFORE:
                world.kill(process)
                await world.for_ever()
            if fate is WriteFate.FULL:
                raise StoreFull(f"the disk under {self.what} is full: make room")
            raise StoreUnreachable(f"{self.what} is away")
        world.connection.execute("COMMIT")
        world.committed(process, verb, asked)
        if fate is WriteFate.DIES_AFTER:
            world.kill(process)
            await world.for_ever()
        if fate is WriteFate.UNANSWERED:
            raise StoreUnreachable(f"{self.what} did not answer")

    def _roll_back(self) -> None:
        self.world.connection.execute("ROLLBACK")
        self.world.rolled_back()

    async def ring(self, bells: set[Bell]) -> None:
        world = self.world
        for bell in sorted(bells):
            for target, heard in list(world.listeners):
                if target is not self.process:
                    for delay_s in world.faults.bells(self.process, target, bell):
                        world.loop.call_later(delay_s, heard, bell, context=target.context)

    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        entry = (self.process, heard)
        self.world.listeners.append(entry)

        async def close() -> None:
            if entry in self.world.listeners:
                self.world.listeners.remove(entry)

        return close


class _SharedProcesses:
    """Knows which nodes are alive, as the kernel does for the processes of one host."""

    are_visible = True

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    def take(self, node: str) -> None:
        self._world.alive[node] = self._process

    def is_gone(self, node: str) -> bool:
        process = self._world.alive.get(node)
        return process is not None and process.dead and not process.vanished

    def let_go(self, node: str) -> None:
        self._world.alive.pop(node, None)


class Process(Holdfast):
    """A simulated process: a `Holdfast` on the shared store."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        roles: Iterable[str] = ROLES,
        labels: Iterable[str] = (),
        skew_s: float = 0.0,
        rate: float = 1.0,
        store: str = MEMORY,
        **given: Any,
    ) -> None:
        environment = VirtualEnvironment(world, name, skew_s=skew_s, rate=rate)
        super().__init__(
            store, roles=roles, labels=labels, config=world.config, environment=environment, **given
        )
        self.world, self.name = world, name
        self.roles = tuple(roles)
        self.dead = False
        self.vanished = False
        """True if it was killed together with its host. Then others only notice that it does not renew its lease."""
        self.missed: deque[Handle] | None = None
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    async def open(self, first: str | None = None) -> Self:
        store = Store(SharedDatabase(self.world, self))
        await store.open()
        await self._join(store, first)
        return self

    def run_task(self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start a task as code of this process. When the process is killed, the task stops."""
        return self.world.loop.create_task(coro, context=self.context.copy())


class DeadProcess(NamedTuple):
    """A dead process of a world's past."""

    dead: bool = True
    vanished: bool = False


class Past(NamedTuple):
    """What is left of a world when all its processes have died. Another world can begin with it."""

    rows: Rows
    now: float
    nodes: tuple[str, ...]
    """The ids of the nodes that are gone."""


class World:
    process_type: type[Process] = Process

    def __init__(
        self,
        seed: int | str = 0,
        *,
        config: Config = DEFAULT,
        faults: Faults | None = None,
        past: Past | None = None,
    ) -> None:
        self.seed, self.config = seed, config
        self.faults = faults or Faults()
        self.loop = VirtualLoop()  # type: ignore[abstract]  # it has no methods for sockets, processes and signals
        self.random = Random(f"{seed}/world")  # noqa: S311  reproducible from the seed
        self.processes: list[Process] = []
        self.listeners: list[tuple[Process, Callable[[Bell], None]]] = []
        self.alive: dict[str, Process | DeadProcess] = {}
        self._memory = _take_memory()
        self._memory.time.world = self
        self.connection, self.clock = self._memory.connection, self._memory.clock
        self.reader = self._memory.reader
        self._clock_s = 0.0
        if past is not None:
            self.loop.now = past.now
            self.alive |= dict.fromkeys(past.nodes, DeadProcess())
            _fill(self.connection, past.rows)

    # --- clocks -----------------------------------------------------------------------------------------------------

    def store_now(self) -> float:
        return EPOCH + self.loop.now + self._clock_s

    def step_clock(self, seconds: float) -> None:
        """Move the store's clock, as an administrator does who corrects it."""
        self._clock_s += seconds

    # --- processes --------------------------------------------------------------------------------------------------

    def process(self, name: str, **settings: Any) -> Process:
        """Return a new process that is not opened yet. Its name need not be unique; its random numbers depend on it."""
        made = self.process_type(self, name, **settings)
        self.processes.append(made)
        return made

    def run(self, coro: Coroutine[Any, Any, T], process: Process | None = None) -> T:
        """Run this to its end as code of `process`. Without one, a method runs as code of the process it belongs to."""
        frame = getattr(coro, "cr_frame", None)
        owner = process or (frame.f_locals.get("self") if frame is not None else None)
        if not isinstance(owner, Process):
            owner = getattr(owner, "_hf", None)
        if isinstance(owner, Process):
            return self.loop.run_until_complete(owner.run_task(coro))
        return self.loop.run_until_complete(coro)

    def kill(self, process: Process, *, vanish: bool = False) -> None:
        """Kill the process, as kill -9 does. With `vanish` its host is gone, too, so that only its lease shows it."""
        process.dead, process.vanished, process.missed = True, vanish, None
        self.listeners = [entry for entry in self.listeners if entry[0] is not process]

    def pause(self, process: Process, seconds: float) -> None:
        """Stop the process, as SIGSTOP does, and let it go on after this long, as SIGCONT does."""
        if not process.dead and process.missed is None:
            process.missed = deque()
            self.loop.call_later(seconds, self.resume, process, context=Context())

    def resume(self, process: Process) -> None:
        missed, process.missed = process.missed, None
        if missed is not None:
            self.loop.ready.extend(missed)

    async def for_ever(self) -> NoReturn:
        await self.loop.create_future()
        raise AssertionError

    # --- what an observer overrides -----------------------------------------------------------------------------------

    def asking(self, process: Process, verb: str, asked: dict[str, Any]) -> None:
        """Called when a process begins to write, before that gets to the store."""

    def committed(self, process: Process, verb: str, asked: dict[str, Any]) -> None:
        """Called after every commit that changed something."""

    def rolled_back(self) -> None:
        """Called after every transaction that was rolled back."""

    def refused(self, process: Process, verb: str, error: Exception) -> None:
        """Called when SQLite refuses a statement, which is always a mistake in the product."""

    def rows(self) -> Rows:
        """Return the whole content of the store. Another world can begin with it."""
        return _read(self.connection)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all processes, and keep the database for the next world, which empties it."""
        for process in self.processes:
            process.dead = True
            caller = process._caller
            if isinstance(caller, Node) and caller.scheduler is not None:
                caller.scheduler.abandon()
        self.loop.close()
        if self.connection is not None:
            _give_memory(self._memory)
        self.connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _WorldTime(Environment):
    """The environment of a database in memory: its time is that of the world that uses it."""

    world: World | None = None
    otherwise = 0.0
    """The time while no world uses it."""

    def now(self) -> float:
        return self.otherwise if self.world is None else self.world.store_now()


class _Memory:
    """A database in memory, with its clock and its connections.

    apsw keeps the prepared statements of the last 512 uses of a connection. A world uses more than that in a few virtual
    seconds, and to compile a statement takes twenty times as long as to run it. So each verb has a connection of its own
    for reading, and emptying the database has one."""

    def __init__(self) -> None:
        self.time = _WorldTime()
        self._connections = MemoryConnections(self.time)
        self.clock = Clock(self.time, is_shared=False)
        self._connections.on_connected = self.clock.serve
        self._connections.open_now()
        self.connection: Any = self._connections.writer
        schema.migrate(self.connection, self._connections.what)
        self._readers: dict[str, Any] = {}
        self._emptying: Any = None

    def reader(self, verb: str) -> Any:
        """Return the connection on which this verb reads."""
        found = self._readers.get(verb)
        if found is None:
            found = self._readers[verb] = self._connections.reader()
        return found

    def empty(self) -> None:
        if self._emptying is None:
            self._emptying = self._connections.reader()
            self._emptying.pragma("query_only", 0)
        connection, tables = self._emptying, _tables(self.connection)
        # To look into an empty table is twenty times as fast as to delete all its rows.
        looks = ", ".join(f"EXISTS (SELECT 1 FROM {table})" for table in tables)  # noqa: S608  names from the schema itself
        used = connection.execute(f"SELECT {looks}").fetchall()[0]
        self._be_at(math.inf)  # when even the audit may be removed
        connection.execute("BEGIN")
        connection.execute("INSERT INTO retention (since) VALUES (0)")
        for table, is_used in zip(tables, used, strict=True):
            if is_used:
                connection.execute(f"DELETE FROM {table}")  # noqa: S608
        connection.execute("DELETE FROM retention")
        connection.execute("COMMIT")
        self._be_at(0.0)

    def _be_at(self, time: float) -> None:
        self.time.otherwise = time
        self.clock.begin_session()


_spare: list[_Memory] = []
"""A database that no world uses. Emptying one is ten times as fast as making one, and its statements are prepared
already."""


def _take_memory() -> _Memory:
    if not _spare:
        return _Memory()
    memory = _spare.pop()
    memory.empty()
    return memory


def _give_memory(memory: _Memory) -> None:
    memory.time.world = None
    if not memory.connection.in_transaction and not _spare:
        _spare.append(memory)


_columns: dict[str, str] = {}
"""By table, its columns that are not computed. The schema is the same in all worlds."""


def _tables(connection: Any) -> dict[str, str]:
    """Return the tables that change while a world runs, with their columns."""
    if _columns:
        return _columns
    found: dict[str, list[str]] = {}
    columns = (
        "SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c "
        "WHERE t.type = 'table' AND t.name <> 'migrations' ORDER BY t.name, c.cid"
    )
    for table, column in connection.execute(columns).fetchall():
        found.setdefault(table, []).append(column)
    _columns.update({table: ", ".join(names) for table, names in found.items()})
    return _columns


def _read(connection: Any) -> Rows:
    return {
        table: connection.execute(f"SELECT {columns} FROM {table}").fetchall()  # noqa: S608  names from the schema itself
        for table, columns in _tables(connection).items()
    }


def _fill(connection: Any, rows: Rows) -> None:
    connection.execute("BEGIN")
    tables = _tables(connection)
    for table, content in rows.items():
        if content:
            places = ", ".join("?" * len(content[0]))
            connection.executemany(f"INSERT INTO {table} ({tables[table]}) VALUES ({places})", content)  # noqa: S608  names from the schema itself
    connection.execute("COMMIT")
