"""`map`, as steps and workflows have it. See `fan.py` for what it does."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, overload

from holdfast.errors import DefinitionError
from holdfast.workflow.fan import Tally, fan
from holdfast.workflow.options import Call

R = TypeVar("R")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
Ts = TypeVarTuple("Ts")


class Mappable:
    """What can be called once for each of many items: a step or a workflow."""

    name: str
    id: str | None = None
    """The id of the run, if it was chosen. A step has none."""
    begin_in_s: float | None = None
    begin_at: float | None = None

    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    @overload
    def map(
        self: Callable[[T], Call[R]],
        items: Iterable[T] | AsyncIterable[T],
        *,
        limit: int = 50,
        page: int = 1000,
    ) -> Call[list[R]]: ...
    @overload
    def map(
        self: Callable[[T], Call[R]],
        items: Iterable[T] | AsyncIterable[T],
        *,
        limit: int = 50,
        tolerate: float,
        page: int = 1000,
    ) -> Call[list[R | Exception]]: ...
    @overload
    def map(
        self: Callable[[T], Call[R]],
        items: Iterable[T] | AsyncIterable[T],
        *,
        limit: int = 50,
        tolerate: float = 0.0,
        into: Callable[[list[R]], Call[Any]],
        page: int = 1000,
    ) -> Call[Tally]: ...
    # What has three parameters, one of which has a default, also takes pairs. So these overloads come before the one for
    # any number.
    @overload
    def map(
        self: Callable[[A, B], Call[R]],
        items: Iterable[tuple[A, B]] | AsyncIterable[tuple[A, B]],
        *,
        limit: int = 50,
        page: int = 1000,
    ) -> Call[list[R]]: ...
    @overload
    def map(
        self: Callable[[A, B], Call[R]],
        items: Iterable[tuple[A, B]] | AsyncIterable[tuple[A, B]],
        *,
        limit: int = 50,
        tolerate: float,
        page: int = 1000,
    ) -> Call[list[R | Exception]]: ...
    @overload
    def map(
        self: Callable[[A, B], Call[R]],
        items: Iterable[tuple[A, B]] | AsyncIterable[tuple[A, B]],
        *,
        limit: int = 50,
        tolerate: float = 0.0,
        into: Callable[[list[R]], Call[Any]],
        page: int = 1000,
    ) -> Call[Tally]: ...
    @overload
    def map(
        self: Callable[[A, B, C], Call[R]],
        items: Iterable[tuple[A, B, C]] | AsyncIterable[tuple[A, B, C]],
        *,
        limit: int = 50,
        page: int = 1000,
    ) -> Call[list[R]]: ...
    @overload
    def map(
        self: Callable[[A, B, C], Call[R]],
        items: Iterable[tuple[A, B, C]] | AsyncIterable[tuple[A, B, C]],
        *,
        limit: int = 50,
        tolerate: float,
        page: int = 1000,
    ) -> Call[list[R | Exception]]: ...
    @overload
    def map(
        self: Callable[[A, B, C], Call[R]],
        items: Iterable[tuple[A, B, C]] | AsyncIterable[tuple[A, B, C]],
        *,
        limit: int = 50,
        tolerate: float = 0.0,
        into: Callable[[list[R]], Call[Any]],
        page: int = 1000,
    ) -> Call[Tally]: ...
    @overload
    def map(
        self: Callable[[*Ts], Call[R]],
        items: Iterable[tuple[*Ts]] | AsyncIterable[tuple[*Ts]],
        *,
        limit: int = 50,
        page: int = 1000,
    ) -> Call[list[R]]: ...
    @overload
    def map(
        self: Callable[[*Ts], Call[R]],
        items: Iterable[tuple[*Ts]] | AsyncIterable[tuple[*Ts]],
        *,
        limit: int = 50,
        tolerate: float,
        page: int = 1000,
    ) -> Call[list[R | Exception]]: ...
    @overload
    def map(
        self: Callable[[*Ts], Call[R]],
        items: Iterable[tuple[*Ts]] | AsyncIterable[tuple[*Ts]],
        *,
        limit: int = 50,
        tolerate: float = 0.0,
        into: Callable[[list[R]], Call[Any]],
        page: int = 1000,
    ) -> Call[Tally]: ...
    def map(
        self: Any,
        items: Iterable[Any] | AsyncIterable[Any],
        *,
        limit: int = 50,
        tolerate: float = 0.0,
        into: Any = None,
        page: int = 1000,
    ) -> Call[Any]:
        """Call it once for each item, at most `limit` at a time. Return the results in the order of the items. For a
        workflow, each call is a child run.

        If there are several parameters, a tuple is spread over them. `tolerate` says how many calls may fail, as a
        share (0.1) or a number (3): for these the exception takes the place of the result. One more cancels the rest
        and is raised.

        `items` may be an iterator or an async iterator. More than `page` items are divided into child runs of `page`
        items each, of which only a few are under way: so there may be millions. With `into=save` the results go to
        the step `save` in batches, a list at a time and in any order, and `map` returns a tally of `done` and `failed`.
        """
        if self.id is not None:
            raise DefinitionError(
                f"{self.name}.map(): all items would have the id {self.id!r}: leave out `id`, and each run gets its own"
            )
        if self.begin_in_s is not None or self.begin_at is not None:
            raise DefinitionError(
                f"{self.name}.map(): the items of a map begin as soon as there is room: leave out begin_in and begin_at"
            )
        return fan(self, items, limit=limit, tolerate=tolerate, into=into, page=page)
