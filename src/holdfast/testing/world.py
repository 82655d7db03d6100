"""A simulated world: processes that share one real SQLite in memory, one clock, one thread and one seed.

    world = World(seed=7)
    one = world.process("one")                            # a Holdfast; roles=, labels= as there
    world.run(one.open())                                 # runs `one`'s code as its own, to the end
    run = world.run(one.start(order.using(id="a"), 42))
    world.loop.run_for(0.1)
    world.kill(one)                                       # kill -9: nothing of it runs any more, not even a `finally`
    two = world.process("two"); world.run(two.open())     # notices that `one` is gone, and goes on
    receipt = world.run(two.run(run.id).result())

Processes are `Holdfast`s with a store object each, so each can be killed (`kill`), stopped for a while (`pause`) or cut off
alone. What goes wrong at the seam between a process and the store is decided by a `Faults` object; the one here lets
nothing go wrong. Every wish of a process passes `reach` (before it gets to the store), then for a write `fate` (is it
committed, and does its caller hear of it?), then `answer`. `world.committed` is called after every commit, with the process,
the store's verb and its arguments. A wish is one transaction, as it is between processes; nothing else runs inside of it.

Clocks: `world.store_now()` is the store's, which leases and timers go by, and `step_clock` moves it. Each process has a
monotonic clock and an idea of the time of day of its own (`skew_s`, `rate`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import Context, copy_context
from enum import Enum
from random import Random
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias, TypeVar

from holdfast.client import Holdfast
from holdfast.config import DEFAULT, Config
from holdfast.environment import Environment
from holdfast.errors import StoreFull, StoreUnreachable
from holdfast.node import ROLES, Node
from holdfast.store.bell import Bell
from holdfast.store.database import Session, StoreCall
from holdfast.store.sqlite import schema
from holdfast.store.sqlite.clock import Clock
from holdfast.store.sqlite.database import SqliteDatabase
from holdfast.store.sqlite.faults import explained
from holdfast.store.store import Store
from holdfast.testing.loop import PROCESS, Handle, VirtualLoop

T = TypeVar("T")

EPOCH = 1_800_000_000.0
"""The time of day when a simulation begins."""
MEMORY = "sqlite://:memory:"

Rows: TypeAlias = dict[str, list[tuple[Any, ...]]]
"""By table."""


class Fate(Enum):
    """What becomes of a write."""

    COMMITTED = "committed"
    LOST = "lost"
    """It never happened, and its caller hears that the store is away."""
    FULL = "full"
    """It never happened: the disk is full."""
    UNANSWERED = "unanswered"
    """It happened, and its caller hears that the store is away."""
    DIES_BEFORE = "dies before"
    """The process is killed before the commit."""
    DIES_AFTER = "dies after"
    """The process is killed after the commit, before it hears of it."""


class Faults:
    """What goes wrong between a process and the store. Here: nothing. `verb` is the store's method that asks."""

    async def reach(self, process: Process, verb: str, writes: bool) -> None:
        """Before a wish gets to the store: wait (late), raise StoreUnreachable (lost), or kill."""

    def fate(self, process: Process, verb: str) -> Fate:
        return Fate.COMMITTED

    async def answer(self, process: Process, verb: str, writes: bool) -> None:
        """Before its caller hears the answer, which by now may be old."""

    def bells(self, source: Process, target: Process, bell: Bell) -> list[float]:
        """After how many seconds a doorbell is heard, once for each. Empty: it is lost."""
        return [0.0]


class VirtualEnvironment(Environment):
    """Time, chance and identity of one simulated process."""

    def __init__(self, world: World, name: str, *, skew_s: float = 0.0, rate: float = 1.0) -> None:
        self._loop = world.loop
        self.random = Random(f"{world.seed}/{name}")  # noqa: S311  the seed's own dice
        self.host, self.pid = name, 0
        self.skew_s, self.rate = skew_s, rate
        self._begun = EPOCH / 1000 + self.random.random() * 1000

    def memory_mb(self) -> float:
        return 0.0

    def now(self) -> float:
        return EPOCH + self._loop.now + self.skew_s

    def monotonic(self) -> float:
        return self._begun + self._loop.now * self.rate

    async def sleep(self, seconds: float) -> None:
        future = self._loop.create_future()
        timer = self._loop.call_later(max(0.0, seconds), _wake, future)
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
    """The same, with the store's clock."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, f"{name}/store")
        self._world = world

    def now(self) -> float:
        return self._world.store_now()


class SharedDatabase(SqliteDatabase):
    """One process's way to the database that all of them share. All of the dialect is the product's own; only the seam is
    simulated."""

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

    def _connection(self) -> Any:
        if not self._is_open:
            raise StoreUnreachable(f"{self.what} is not open")
        return self.world.connection

    async def look(
        self, call: StoreCall, read: Callable[[Session], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        """What is read may be old when its reader hears of it."""
        await self.world.faults.reach(self.process, call.verb, False)
        with explained(self.what):
            found = await read(self._session(self._connection()))
        await self.world.faults.answer(self.process, call.verb, False)
        return found

    async def write(
        self, call: StoreCall, act: Callable[[Session], Awaitable[T]], *, is_single: bool = False
    ) -> T:
        """Begun, done and committed with nothing else in between."""
        world, process = self.world, self.process
        await world.faults.reach(process, call.verb, True)
        connection = self._connection()
        before = connection.total_changes()
        connection.execute("BEGIN IMMEDIATE")
        try:
            with explained(self.what):
                done = await act(self._session(connection))
        except BaseException:
            self._roll_back()
            raise
        if connection.total_changes() == before:
            self._roll_back()
        else:
            await self._commit(call)
        await world.faults.answer(process, call.verb, True)
        return done

    async def _commit(self, call: StoreCall) -> None:
        world, process = self.world, self.process
        fate = world.faults.fate(process, call.verb)
        if fate in (Fate.LOST, Fate.FULL, Fate.DIES_BEFORE):
            self._roll_back()
            if fate is Fate.DIES_BEFORE:
                world.kill(process)
                await world.for_ever()
            if fate is Fate.FULL:
                raise StoreFull(f"the disk under {self.what} is full: make room")
            raise StoreUnreachable(f"{self.what} is away")
        world.connection.execute("COMMIT")
        world.committed(process, call.verb, call.arguments)
        if fate is Fate.DIES_AFTER:
            world.kill(process)
            await world.for_ever()
        if fate is Fate.UNANSWERED:
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
    """Who is alive: the kernel of the simulated host knows."""

    are_visible = True

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    def take(self, node: str) -> None:
        self._world.alive[node] = self._process

    def is_gone(self, node: str) -> bool:
        holder = self._world.alive.get(node)
        return holder is not None and holder.dead and not holder.vanished

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
    ) -> None:
        environment = VirtualEnvironment(world, name, skew_s=skew_s, rate=rate)
        super().__init__(MEMORY, roles=roles, labels=labels, config=world.config, environment=environment)
        self.world, self.name = world, name
        self.roles = tuple(roles)
        self.dead = False
        self.vanished = False
        """Killed together with its host: nobody sees that it is gone, only that it does not renew."""
        self.missed: deque[Handle] | None = None
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    async def open(self, first: str | None = None) -> Self:
        store = Store(SharedDatabase(self.world, self))
        await store.open()
        await self._join(store, first)
        return self

    def run_task(self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin something as this process's own code. It dies with it."""
        return self.world.loop.create_task(coro, context=self.context.copy())


class Gone(NamedTuple):
    """A process of a world's past: all that is known of it is that it died."""

    dead: bool = True
    vanished: bool = False


class Past(NamedTuple):
    """What is left of a world when all its processes have died: another one may begin with it."""

    rows: Rows
    now: float
    nodes: tuple[str, ...]
    """Ids of the processes that are no more."""


class World:
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
        self.loop = VirtualLoop()  # type: ignore[abstract]  # what touches the outside is not there
        self.random = Random(f"{seed}/world")  # noqa: S311  the seed's own dice
        self.processes: list[Process] = []
        self.listeners: list[tuple[Process, Callable[[Bell], None]]] = []
        self.alive: dict[str, Process | Gone] = {}
        self._memory = _take_memory()
        self._memory.time.world = self
        self.connection, self.clock = self._memory.connection, self._memory.clock
        self._clock_s = 0.0
        if past is not None:
            self.loop.now = past.now
            self.alive |= dict.fromkeys(past.nodes, Gone())
            _fill(self.connection, past.rows)

    # --- clocks -----------------------------------------------------------------------------------------------------

    def store_now(self) -> float:
        return EPOCH + self.loop.now + self._clock_s

    def step_clock(self, seconds: float) -> None:
        """Somebody corrects the store's clock."""
        self._clock_s += seconds

    # --- processes --------------------------------------------------------------------------------------------------

    def process(self, name: str, **settings: Any) -> Process:
        """A new process, not opened yet. Names are for people; they need not be unique, but dice go by them."""
        made = Process(self, name, **settings)
        self.processes.append(made)
        return made

    def run(self, coro: Coroutine[Any, Any, T], process: Process | None = None) -> T:
        """Run to the end as this process's code; of a bound method, as its own process's."""
        frame = getattr(coro, "cr_frame", None)
        owner = process or (frame.f_locals.get("self") if frame is not None else None)
        if not isinstance(owner, Process):
            owner = getattr(owner, "_hf", None)
        if isinstance(owner, Process):
            return self.loop.run_until_complete(owner.run_task(coro))
        return self.loop.run_until_complete(coro)

    def kill(self, process: Process, *, vanish: bool = False) -> None:
        """kill -9. With `vanish` its whole host is gone, so that only its lease tells."""
        process.dead, process.vanished, process.missed = True, vanish, None
        self.listeners = [entry for entry in self.listeners if entry[0] is not process]

    def pause(self, process: Process, seconds: float) -> None:
        """SIGSTOP, and after so long SIGCONT."""
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

    def committed(self, process: Process, verb: str, asked: dict[str, Any]) -> None:
        """After every commit that changed something."""

    def rolled_back(self) -> None:
        """After every transaction that changed nothing."""

    def rows(self) -> Rows:
        """The whole content of the store: with it, another world may begin."""
        return _read(self.connection)

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Forget everybody. The database goes to the next world, empty."""
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
    """The time of the world that a database in memory is in."""

    world: World | None = None

    def now(self) -> float:
        return 0.0 if self.world is None else self.world.store_now()


class _Memory(NamedTuple):
    """A database in memory."""

    connection: Any
    clock: Clock
    time: _WorldTime


_spare: list[_Memory] = []
"""Emptying a database is ten times as fast as making one, and its statements are prepared already."""


def _take_memory() -> _Memory:
    if _spare:
        memory = _spare.pop()
        for table in _tables(memory.connection):
            memory.connection.execute(f"DELETE FROM {table}")  # noqa: S608  a name from the schema itself
        return memory
    time = _WorldTime()
    database = SqliteDatabase(MEMORY, time, DEFAULT)
    database.connections.open_now()
    schema.migrate(database.connections.writer, database.what)
    return _Memory(database.connections.writer, database.clock, time)


def _give_memory(memory: _Memory) -> None:
    memory.time.world = None
    if not memory.connection.in_transaction and not _spare:
        _spare.append(memory)


_columns: dict[str, str] = {}
"""By table: those that are not computed. The schema is the same in all worlds."""


def _tables(connection: Any) -> dict[str, str]:
    """All that change in a world's life."""
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
