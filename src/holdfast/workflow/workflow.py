"""Workflows: async functions whose progress is durable. A workflow that another one calls becomes a child run."""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from types import FrameType
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from holdfast.codec import Shape, stored_tags
from holdfast.config import OnBug
from holdfast.decider.loop import RunLoop, leaf
from holdfast.errors import DefinitionError, WorkflowError
from holdfast.workflow import options, outside, registry
from holdfast.workflow.here import is_in_step
from holdfast.workflow.lint import HoldfastWarning, lint
from holdfast.workflow.mappable import Mappable
from holdfast.workflow.options import UNSET, Call, Seconds, Unset
from holdfast.workflow.origin import Place

P = ParamSpec("P")
R = TypeVar("R")


class Workflow(Mappable, Generic[P, R]):
    """An async function whose progress is durable. `@workflow` makes it."""

    def __init__(
        self,
        fn: Callable[..., Coroutine[Any, Any, Any]],
        *,
        name: str | None = None,
        version: str = "1",
        timeout: Seconds | None = None,
        priority: int = 0,
        on_bug: OnBug | None = None,
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
        self.on_bug = options.on_bug(on_bug, f"{self.name}: on_bug")
        self.id: str | None = None
        self.tags: dict[str, str] = {}
        self.namespace: str | None = None
        self.is_page = False
        """True for the code of the pages of a `map`."""
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

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Call[str]:
        """In a workflow: start a run that outlives this one, and return its id: `night_id = await night.start(day)`.

        The run belongs to nobody: it is not waited for, and neither cancelled nor undone with the run that started it.
        It is started once, whatever crashes. The id is made from this run's id and the step's key, or chosen with
        `using(id=…)`. If another run has that id, this raises `Conflict`; with `existing="join"` it returns the id,
        provided that the workflow and the input are the same. Outside of a workflow, use `hf.start`.
        """
        call: Any = begin(self, args, kwargs)
        call.__qualname__ = self.label
        durable: Call[str] = call
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
        _check_outside(workflow)
        return await workflow.fn(*args, **kwargs)
    decider = loop.host
    op = decider.child(workflow, args, kwargs)
    try:
        return await op.future
    except asyncio.CancelledError:
        decider.drop(op)
        raise


leaf(perform)


def _check_outside(workflow: Workflow[Any, Any]) -> None:
    """Refuse a call inside a step, and warn of a call beside an open `Holdfast`: both look like runs, and are none."""
    name = workflow.fn.__name__
    if is_in_step():
        raise WorkflowError(
            f"workflow {workflow.name} was called in a step, where it would be no run of its own: call it in the workflow "
            f"that called the step; or start a run, by `await hf.start({name}, …)`; `{name}.fn(…)` calls the bare function"
        )
    if outside.current() is not None:
        warnings.warn(
            f"workflow {workflow.name} was called like a function, so nothing of it is recorded: "
            f"`await hf.start({name}, …)` starts a run; `{name}.fn(…)` calls the bare function",
            HoldfastWarning,
            stacklevel=3,
        )


async def begin(workflow: Workflow[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Start a run that is no child of the run whose code asks for it. Return its id."""
    loop = _get_running_loop()
    if type(loop) is not RunLoop:
        name = workflow.__name__
        raise WorkflowError(
            f"{name}.start() works in a workflow only: in a program write `await hf.start({name}, …)` with an open Holdfast; "
            "a step returns what its workflow needs to start the run"
        )
    decider = loop.host
    op = decider.child(workflow, args, kwargs, detached=True)
    try:
        return await op.future
    except asyncio.CancelledError:
        decider.drop(op)
        raise


leaf(begin)


class WorkflowDecorator(Protocol):
    """What `@workflow(…)` returns: it takes the function."""

    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


Workflows = Mapping[tuple[str, str], Workflow[Any, Any]]
"""Workflows by their name and version."""


@overload
def workflow(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...
@overload
def workflow(
    *,
    name: str | None = None,
    version: str = "1",
    timeout: Seconds | None = None,
    priority: int = 0,
    on_bug: OnBug | None = None,
) -> WorkflowDecorator: ...
def workflow(fn: Callable[..., Coroutine[Any, Any, Any]] | None = None, /, **settings: Any) -> Any:
    """Make an async function durable: `@workflow`, or `@workflow(version="2", timeout=timedelta(days=7))`.

    Its code must do the same when it runs again on the same outcomes: clocks, dice and I/O belong in steps. This warns
    about code that seems to do something else.

    `on_bug="hold"` holds a run where the code itself raises an exception: not a step's failure, not a `Stop`. Mended code
    and `holdfast release` let it go on from there. `on_bug="undo"` fails such a run, and undoes what it did; this is the
    default, and `Config(on_bug=…)` changes the default.
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
