"""Workflows: async functions whose progress is durable. A workflow that another one calls becomes a child run."""

from __future__ import annotations

import asyncio
import inspect
import sys
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from types import FrameType
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from holdfast.codec import Shape, stored_tags
from holdfast.decider.loop import RunLoop, leaf
from holdfast.errors import DefinitionError
from holdfast.workflow import options, registry
from holdfast.workflow.lint import lint
from holdfast.workflow.options import UNSET, Call, Seconds, Unset
from holdfast.workflow.origin import Place

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Generic[P, R]):
    """An async function whose progress is durable. `@workflow` makes it."""

    def __init__(
        self,
        fn: Callable[..., Coroutine[Any, Any, Any]],
        *,
        name: str | None = None,
        version: str = "1",
        timeout: Seconds | None = None,
        priority: int = 0,
        scope: dict[str, Any] | None = None,
        place: Place | None = None,
    ) -> None:
        options.check_function(fn, "workflow")
        if not inspect.iscoroutinefunction(fn):
            raise DefinitionError(
                f"@workflow takes an async def, not {fn!r}: write `async def`; work that is not awaited goes in a step"
            )
        self.fn = fn
        self.place = place or Place(fn, None)
        self.name = options.name_of(self.place, name)
        self.version = options.text(version, f"{self.name}: version")
        self.timeout_s = options.seconds(timeout, f"{self.name}: timeout")
        self.priority = options.whole_number(priority, f"{self.name}: priority")
        self.id: str | None = None
        self.tags: dict[str, str] = {}
        self.namespace: str | None = None
        self.joins = False
        """True if a parent that calls this waits for the run with this id, should one exist already."""
        self.label = options.label_of(self.name)
        self.doc = inspect.getdoc(fn)
        self.__name__, self.__qualname__, self.__module__ = fn.__name__, fn.__qualname__, fn.__module__
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn
        self._scope = scope
        shape = Shape.early(fn, scope)
        if shape is not None:
            self.shape = shape

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        call: Any = perform(self, args, kwargs)
        call.__qualname__ = self.label
        durable: Call[R] = call
        return durable

    def using(
        self,
        *,
        id: str | Unset = UNSET,
        priority: int | Unset = UNSET,
        tags: Mapping[str, str] | Unset = UNSET,
        timeout: Seconds | Unset | None = UNSET,
        namespace: str | Unset = UNSET,
        existing: Literal["join"] | Unset = UNSET,
    ) -> Workflow[P, R]:
        """Return the same workflow with other settings, for one run: `hf.start(order.using(id="order-42"), …)`.

        `existing="join"` is for a child run whose `id` another run may have already: the parent then waits for that
        run, without owning it.
        """
        other: Workflow[P, R] = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        if not isinstance(id, Unset):
            other.id = options.run_id(id, f"{self.name}: id")
        if not isinstance(priority, Unset):
            other.priority = options.whole_number(priority, f"{self.name}: priority")
        if not isinstance(tags, Unset):
            what = f"{self.name}: tags"
            other.tags = stored_tags(tags, what)
        if not isinstance(timeout, Unset):
            other.timeout_s = options.seconds(timeout, f"{self.name}: timeout")
        if not isinstance(namespace, Unset):
            other.namespace = options.text(namespace, f"{self.name}: namespace")
        if not isinstance(existing, Unset):
            other.joins = options.joins(existing, other.id, f"{self.name}: existing")
        return other

    @cached_property
    def shape(self) -> Shape:
        """The shape of the function. It is made when it is first needed, if its types did not exist yet when the
        workflow was declared."""
        return Shape.of(self.fn, self._scope)

    def __repr__(self) -> str:
        return f"<workflow {self.name} {self.version}>"


async def perform(workflow: Workflow[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a workflow: as a child run inside a run, and as the bare function outside."""
    loop = _get_running_loop()
    if type(loop) is not RunLoop:
        return await workflow.fn(*args, **kwargs)
    decider = loop.host
    op = decider.child(workflow, args, kwargs)
    try:
        return await op.future
    except asyncio.CancelledError:
        decider.drop(op)
        raise


leaf(perform)


class WorkflowDecorator(Protocol):
    """What `@workflow(…)` returns: it takes the function."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


Workflows = Mapping[tuple[str, str], Workflow[Any, Any]]
"""Workflows by their name and version."""


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *, name: str | None = None, version: str = "1", timeout: Seconds | None = None, priority: int = 0
) -> WorkflowDecorator: ...
def workflow(fn: Callable[..., Coroutine[Any, Any, Any]] | None = None, /, **settings: Any) -> Any:
    """Make an async function durable: `@workflow`, or `@workflow(version="2", timeout=timedelta(days=7))`.

    Its code must do the same when it runs again on the same outcomes: clocks, dice and I/O belong in steps. This warns
    about code that seems to do something else.
    """

    def declare(
        fn: Callable[..., Coroutine[Any, Any, Any]], frame: FrameType | None = None
    ) -> Workflow[Any, Any]:
        made: Workflow[Any, Any] = Workflow(
            fn, **options.declared_in(frame or sys._getframe(1), fn), **settings
        )
        lint(fn)
        registry.register_workflow(made)
        return made

    return declare if fn is None else declare(fn, sys._getframe(1))
