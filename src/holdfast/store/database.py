"""What a dialect must bring, and how the store's nouns use it.

A dialect is SQL and its execution: a `Database` that opens sessions, and a `Session` that runs statements by their verb. What the
store does is written once, in the nouns beside this file: each method is one look (`look`), one statement that is atomic by
itself (`statement`), one transaction (`transaction`), or one transaction of the leader (`leading`).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from holdfast.config import Config
from holdfast.environment import Environment
from holdfast.model import NewRun
from holdfast.store.answers import Answer
from holdfast.store.bell import Bell
from holdfast.store.claims import RunClaim, StepClaim
from holdfast.store.transaction import Transaction
from holdfast.store.verbs import Verb

if TYPE_CHECKING:
    from holdfast.store.batch import Batch

P = ParamSpec("P")
T = TypeVar("T")
PartT = TypeVar("PartT", bound="Part")

Row = Any
"""One row: a sequence of its columns, in the order in which the statement names them."""
LEADER = "leader"
"""The lease of the leading Supervisor."""


class Session(Protocol):
    """Statements on one connection, by verb. Lists among the values are arrays."""

    async def now(self) -> float:
        """The store's time."""

    async def rows(self, verb: Verb, *values: Any) -> list[Row]: ...

    async def row(self, verb: Verb, *values: Any) -> Row | None:
        """The first row, if there is any."""

    async def value(self, verb: Verb, *values: Any) -> Any:
        """The first column of the first row; None if there is no row."""

    async def run(self, verb: Verb, *values: Any) -> int:
        """How many rows the statement changed."""

    async def each(self, verb: Verb, rows: Sequence[Row], *same: Any) -> int:
        """Run the statement for each of these rows of values, followed by those that are the same for all; how many rows it
        changed."""

    async def all(self, verb: Verb, rows: Sequence[Row], *same: Any) -> list[Row]:
        """As `each`, with the rows that the statement returns."""

    async def demand(self, verb: Verb, rows: Sequence[Row]) -> None:
        """As `each`. PreconditionFailed unless each of the rows changed one."""

    async def hop(self, batch: Batch) -> None:
        """Write the hops of a batch. PreconditionFailed unless every row of them is written."""

    async def claim_steps(self, claim: StepClaim) -> list[Row]:
        """Take steps, and return them as `ClaimedStep` has them."""

    async def any_steps(self, claim: StepClaim) -> bool:
        """Whether there is anything to claim."""

    async def claim_runs(self, claim: RunClaim) -> list[Row]:
        """Take runs, and return them as `Run` has them."""

    async def any_runs(self, claim: RunClaim) -> bool:
        """Whether there is anything to claim."""

    async def in_turn(self) -> None:
        """From here to the end of the transaction, nobody else registers."""

    async def by_index(self) -> None:
        """From here to the end of the transaction, rows are found by index, whatever the planner believes."""

    async def follow_clock(self) -> None:
        """The leader renews its lease: a good moment to correct the store's clock, where the store has to keep one."""


class StoreCall(NamedTuple):
    """One of the store's methods, as it was called. A simulation decides by it what goes wrong, and checks what was done."""

    verb: str
    names: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by their names, without those that were left out."""
        return dict(zip(self.names, self.args, strict=False)) | self.kwargs


class Processes(Protocol):
    """What the host knows of the processes that share the store, where all of them are on one host."""

    @property
    def are_visible(self) -> bool:
        """Whether anything is known here."""

    def take(self, node: str) -> None:
        """This process is the node, until it lets go or ends."""

    def is_gone(self, node: str) -> bool:
        """Whether it is known that the node's process has ended. False where nobody can know."""

    def let_go(self, node: str) -> None: ...


class UnknownProcesses:
    """Nobody can know: processes may be on other hosts."""

    are_visible = False

    def take(self, node: str) -> None: ...

    def is_gone(self, node: str) -> bool:
        return False

    def let_go(self, node: str) -> None: ...


class Database(ABC):
    """One database, as a dialect reaches it."""

    url: str
    config: Config
    environment: Environment
    processes: Processes

    @property
    @abstractmethod
    def schema(self) -> int:
        """The version of the schema that this version of Holdfast uses."""

    @property
    @abstractmethod
    def shared_url(self) -> str | None:
        """The address under which other processes of this host find this store; None when it is in this one's memory."""

    @abstractmethod
    async def open(self) -> None:
        """Connect and check the schema's version. A new database is migrated by itself."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def migrate(self) -> tuple[int, int]:
        """Bring the schema to this version; (from, to)."""

    @abstractmethod
    async def now(self) -> float: ...

    @abstractmethod
    async def look(
        self, call: StoreCall, read: Callable[[Session], Awaitable[T]], *, patiently: bool = False
    ) -> T:
        """Read. `patiently`: it may take as long as it takes, because it reads whole tables."""

    @abstractmethod
    async def write(
        self, call: StoreCall, act: Callable[[Session], Awaitable[T]], *, is_single: bool = False
    ) -> T:
        """Run `act` in a transaction, again if the database asks for that. `is_single`: it is one statement."""

    @abstractmethod
    async def claim(
        self,
        call: StoreCall,
        is_any: Callable[[Session], Awaitable[bool]],
        act: Callable[[Session], Awaitable[list[T]]],
    ) -> list[T]:
        """As `write`. Where writing keeps others waiting, `is_any` is asked first whether there is anything to take."""

    @abstractmethod
    async def commit(self, call: StoreCall, batch: Batch) -> list[Answer]:
        """Write a batch on the connection that is kept for that. PreconditionFailed if nothing of it was written."""

    @abstractmethod
    async def renew(self, node: str, lease_s: float, pulse: str | None) -> float | None:
        """Renew the node's lease without waiting for anything else; the store's time, or None if it has none any more."""

    @abstractmethod
    async def ring(self, bells: set[Bell]) -> None:
        """Wake those who listen in other processes."""

    @abstractmethod
    async def listen(self, heard: Callable[[Bell], None]) -> Callable[[], Awaitable[None]]:
        """Call `heard` for bells rung by other processes, until the returned coroutine function is called."""

    @abstractmethod
    async def start_within(self, transaction: Transaction, run: NewRun) -> None:
        """Start a run inside the caller's own transaction on the same database."""


class Part:
    """One noun of the store: what can be asked and done about it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def _any(self, verb: Verb, *values: Any) -> bool:
        """Whether the statement finds a row. Asked before a transaction that is rarely needed."""
        call = StoreCall(verb, (), values, {})
        return await self._database.look(call, lambda session: session.row(verb, *values)) is not None


Method = Callable[Concatenate[PartT, Session, P], Awaitable[T]]
Bound = Callable[Concatenate[PartT, P], Coroutine[Any, Any, T]]


def look(method: Method[PartT, P, T]) -> Bound[PartT, P, T]:
    """The method only reads."""
    return _looking(method, patiently=False)


def long_look(method: Method[PartT, P, T]) -> Bound[PartT, P, T]:
    """The method only reads, and may take long."""
    return _looking(method, patiently=True)


def _looking(method: Method[PartT, P, T], *, patiently: bool) -> Bound[PartT, P, T]:
    name, names = _signature(method)

    @wraps(method)
    async def asked(self: PartT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.look(
            StoreCall(name, names, args, kwargs),
            lambda session: method(self, session, *args, **kwargs),
            patiently=patiently,
        )

    return asked


def statement(method: Method[PartT, P, T]) -> Bound[PartT, P, T]:
    """The method writes by one statement, which is atomic by itself."""
    return _writing(method, is_single=True)


def transaction(method: Method[PartT, P, T]) -> Bound[PartT, P, T]:
    """The method is one transaction."""
    return _writing(method, is_single=False)


def _writing(method: Method[PartT, P, T], *, is_single: bool) -> Bound[PartT, P, T]:
    name, names = _signature(method)

    @wraps(method)
    async def asked(self: PartT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._database.write(
            StoreCall(name, names, args, kwargs),
            lambda session: method(self, session, *args, **kwargs),
            is_single=is_single,
        )

    return asked


def leading(
    otherwise: Any, lease: str = LEADER
) -> Callable[[Method[PartT, P, T]], Bound[PartT, Concatenate[int, P], T]]:
    """The method is one transaction of whoever holds the lease in the epoch that it names. Nothing is done, and the answer is
    `otherwise`, when that epoch is over: somebody else leads by now."""

    def decorate(method: Method[PartT, P, T]) -> Bound[PartT, Concatenate[int, P], T]:
        name, names = _signature(method)

        @wraps(method)
        async def asked(self: PartT, epoch: int, /, *args: P.args, **kwargs: P.kwargs) -> T:
            async def act(session: Session) -> T:
                if await session.row(Verb.leads, lease, epoch) is None:
                    nothing: T = otherwise
                    return nothing
                return await method(self, session, *args, **kwargs)

            return await self._database.write(StoreCall(name, ("epoch", *names), (epoch, *args), kwargs), act)

        return asked

    return decorate


def _signature(method: Callable[..., Any]) -> tuple[str, tuple[str, ...]]:
    """What the method does, and the names of what callers pass: all but the noun and the session. A method that looks first has
    its other half beside it, under the same name with an underscore."""
    return method.__name__.removeprefix("_"), tuple(inspect.signature(method).parameters)[2:]
