"""What a dialect must provide, and how the nouns of the store use it.

A dialect is SQL and its execution: a `Database` that opens sessions, and a `Session` that runs statements by their
verb. The nouns in the modules beside this one are the same for all dialects. Each of their methods is one look
(`look`), one statement that is atomic by itself (`statement`), one transaction (`transaction`), or one transaction of
the leader (`leading`).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from holdfast import codec
from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.model import NewRun
from holdfast.store.answers import Answer
from holdfast.store.bell import Bell
from holdfast.store.claims import RunClaim, StepClaim
from holdfast.store.transaction import Transaction
from holdfast.store.verbs import Verb

if TYPE_CHECKING:
    from holdfast.store.batch import WriteBatch

P = ParamSpec("P")
T = TypeVar("T")
NounT = TypeVar("NounT", bound="Noun")

Row = Any
"""A row: the sequence of its columns, in the order in which the statement selects them."""
LEADER = "leader"
"""The name of the leader's lease."""


class Session(Protocol):
    """Runs statements on one connection, by their verb. A list among the values is passed as an array."""

    async def now(self) -> float:
        """Return the store's time."""

    async def rows(self, verb: Verb, *values: Any) -> list[Row]: ...

    async def row(self, verb: Verb, *values: Any) -> Row | None:
        """Return the first row, if there is any."""

    async def value(self, verb: Verb, *values: Any) -> Any:
        """Return the first column of the first row, or None if there is no row."""

    async def run(self, verb: Verb, *values: Any) -> int:
        """Run the statement. Return how many rows it changed."""

    async def each(self, verb: Verb, rows: Sequence[Row], *same: Any) -> int:
        """Run the statement for each of these rows of values, each followed by the values `same`. Return how many rows
        were changed."""

    async def all(self, verb: Verb, rows: Sequence[Row], *same: Any) -> list[Row]:
        """Do the same as `each`, and return the rows that the statement returns."""

    async def demand(self, verb: Verb, rows: Sequence[Row]) -> None:
        """Do the same as `each`, and raise PreconditionFailed unless each row of values has changed one row."""

    async def keep_logs(self, rows: Sequence[Row]) -> None:
        """Write what was logged. Whatever guards it is locked by then."""

    async def hop(self, batch: WriteBatch) -> None:
        """Write the hops of a batch. Raise PreconditionFailed unless every row of them is written."""

    async def claim_steps(self, claim: StepClaim) -> list[Row]:
        """Claim steps. Return their columns in the order of `ClaimedStep`."""

    async def any_steps(self, claim: StepClaim) -> bool:
        """True if there may be anything to claim."""

    async def claim_runs(self, claim: RunClaim) -> list[Row]:
        """Claim runs. Return their columns in the order of `RunRow`."""

    async def any_runs(self, claim: RunClaim) -> bool:
        """True if there may be anything to claim."""

    async def in_turn(self) -> None:
        """Keep all others from registering until the end of the transaction."""

    async def by_index(self) -> None:
        """Make the planner use indexes until the end of the transaction, whatever its estimates say."""

    async def follow_clock(self) -> None:
        """Correct the store's clock, if the store keeps one. Called when the leader renews its lease."""


class StoreCall(NamedTuple):
    """A call of one of the store's methods. A simulation uses it to decide what goes wrong and to check what was
    done."""

    verb: str
    names: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by their names, without those that the caller left out."""
        return dict(zip(self.names, self.args, strict=False)) | self.kwargs


class Processes(Protocol):
    """What the host knows about the processes that share the store, if all of them are on one host."""

    @property
    def are_visible(self) -> bool:
        """True if this host can see the processes of all nodes."""

    def take(self, node: str) -> None:
        """Note that this process is the node, until it lets go or ends."""

    def is_gone(self, node: str) -> bool:
        """True if the node's process is known to have ended."""

    def let_go(self, node: str) -> None: ...


class UnknownProcesses:
    """The processes of a store whose nodes may be on other hosts. Nothing is known about them."""

    are_visible = False

    def take(self, node: str) -> None: ...

    def is_gone(self, node: str) -> bool:
        return False

    def let_go(self, node: str) -> None: ...


class Database(ABC):
    """One database. Each dialect has its own subclass."""

    url: str
    config: Config
    environment: Environment
    processes: Processes
    is_same: Callable[[bytes, bytes], bool] = staticmethod(codec.is_same_json)
    """True if two payloads, as they are stored, say the same. A sealed store opens them for this."""

    @property
    @abstractmethod
    def schema(self) -> int:
        """The version of the schema that this version of Holdfast uses."""

    @property
    @abstractmethod
    def shared_url(self) -> str | None:
        """The URL at which other processes of this host find this store. None if the store is in this process's
        memory."""

    @abstractmethod
    async def open(self) -> None:
        """Connect and check the version of the schema. A new database is migrated automatically."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def migrate(self) -> tuple[int, int]:
        """Bring the schema to this version. Return the version before and the version now."""

    @abstractmethod
    async def now(self) -> float: ...

    @abstractmethod
    async def look(
        self, call: StoreCall, read: Callable[[Session], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        """Read. `patiently` lets it take any time, because it reads whole tables."""

    @abstractmethod
    async def write(
        self, call: StoreCall, act: Callable[[Session], Awaitable[T]], *, is_single: bool = False
    ) -> T:
        """Run `act` in a transaction, and again if the database asks for that. `is_single` says that it is one
        statement."""

    @abstractmethod
    async def claim(
        self,
        call: StoreCall,
        is_any: Callable[[Session], Awaitable[bool]],
        act: Callable[[Session], Awaitable[list[T]]],
    ) -> list[T]:
        """Do the same as `write`. If writing makes others wait in this dialect, call `is_any` first, and write only if
        there is anything to claim."""

    @abstractmethod
    async def commit(self, call: StoreCall, batch: WriteBatch) -> list[Answer]:
        """Write a batch, on the connection for batches if there is one. Raise PreconditionFailed if a precondition is
        not true; then nothing was written."""

    @abstractmethod
    async def renew(self, node: str, lease_s: float, pulse: str | None) -> float | None:
        """Renew the node's lease without waiting for anything else. Return the store's time, or None if the node was
        reclaimed."""

    @abstractmethod
    async def ring(self, bells: set[Bell]) -> None:
        """Ring these bells in other processes."""

    @abstractmethod
    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        """Call `heard` for each bell that another process rings, until the returned coroutine function is called."""

    @abstractmethod
    async def start_within(self, transaction: Transaction, run: NewRun) -> str:
        """Start a run inside a transaction that the caller has begun on the same database. Return the id of the run that
        takes the start."""

    @abstractmethod
    async def work_within(
        self, transaction: Transaction, act: Callable[[Session], Awaitable[Any]], bells: Sequence[Bell]
    ) -> None:
        """Run `act` inside a transaction that the caller has begun on the same database. These bells ring when it is
        committed, if the database can do that."""


class Noun:
    """A noun of the store: the methods about one thing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _any(self, verb: Verb, *values: Any) -> bool:
        """True if the statement finds a row. Called before a transaction that is rarely needed."""
        call = StoreCall(verb, (), values, {})
        return await self._database.look(call, lambda session: session.row(verb, *values)) is not None


Method = Callable[Concatenate[NounT, Session, P], Awaitable[T]]
Bound = Callable[Concatenate[NounT, P], Coroutine[Any, Any, T]]


def look(method: Method[NounT, P, T]) -> Bound[NounT, P, T]:
    """Make a method that only reads."""
    return _looking(method, patiently=False)


def long_look(method: Method[NounT, P, T]) -> Bound[NounT, P, T]:
    """Make a method that only reads, and may take long."""
    return _looking(method, patiently=True)


def _looking(method: Method[NounT, P, T], *, patiently: bool) -> Bound[NounT, P, T]:
    name, names = _signature(method)

    @wraps(method)
    async def called(self: NounT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.look(
            StoreCall(name, names, args, kwargs),
            lambda session: method(self, session, *args, **kwargs),
            patiently=patiently,
        )

    return called


def statement(method: Method[NounT, P, T]) -> Bound[NounT, P, T]:
    """Make a method that writes with one statement, which is atomic without a transaction."""
    return _writing(method, is_single=True)


def transaction(method: Method[NounT, P, T]) -> Bound[NounT, P, T]:
    """Make a method that is one transaction."""
    return _writing(method, is_single=False)


def _writing(method: Method[NounT, P, T], *, is_single: bool) -> Bound[NounT, P, T]:
    name, names = _signature(method)

    @wraps(method)
    async def called(self: NounT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(
            StoreCall(name, names, args, kwargs),
            lambda session: method(self, session, *args, **kwargs),
            is_single=is_single,
        )

    return called


def leading(
    otherwise: Any, lease: str = LEADER
) -> Callable[[Method[NounT, P, T]], Bound[NounT, Concatenate[int, P], T]]:
    """Make a method that is one transaction of the lease's holder. It gets the epoch as its first argument. If that
    epoch is over, it does nothing and returns `otherwise`: somebody else may lead by now."""

    def decorate(method: Method[NounT, P, T]) -> Bound[NounT, Concatenate[int, P], T]:
        name, names = _signature(method)

        @wraps(method)
        async def called(self: NounT, epoch: int, /, *args: P.args, **kwargs: P.kwargs) -> T:
            async def act(session: Session) -> T:
                if await session.row(Verb.leads, lease, epoch) is None:
                    nothing: T = otherwise
                    return nothing
                return await method(self, session, *args, **kwargs)

            return await self._database.write(StoreCall(name, ("epoch", *names), (epoch, *args), kwargs), act)

        return called

    return decorate


def _signature(method: Callable[..., Any]) -> tuple[str, tuple[str, ...]]:
    """Return the verb of a method, and the names of the arguments that callers pass: all but `self` and the session.

    A method that looks before it writes has its second half in a private method of the same name. Both have the same
    verb.
    """
    return method.__name__.removeprefix("_"), tuple(inspect.signature(method).parameters)[2:]
