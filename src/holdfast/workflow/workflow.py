"""Workflows: async functions whose progress is durable. A workflow that another one calls becomes a child run."""

from __future__ import annotations

import asyncio
import inspect
import sys
import warnings
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from types import FrameType, FunctionType
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from holdfast.codec import Shape, stored_tags
from holdfast.config import OnBug
from holdfast.decider.loop import RunLoop, leaf
from holdfast.errors import DefinitionError, WorkflowError
from holdfast.model import BY_TAG, Gathering
from holdfast.workflow import options, outside, registry
from holdfast.workflow.here import is_in_step
from holdfast.workflow.lint import HoldfastWarning, lint
from holdfast.workflow.mappable import Mappable
from holdfast.workflow.options import UNSET, Call, Seconds, Unset
from holdfast.workflow.origin import Place

if TYPE_CHECKING:
    from holdfast.gathers import Gather
    from holdfast.workflow.gather import Batch, Debounce
    from holdfast.workflow.limits import Limit, Limits, Rate

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
        due: Seconds | None = None,
        priority: int = 0,
        on_bug: OnBug | None = None,
        debounce: Debounce | None = None,
        batch: Batch | None = None,
        on: str | Sequence[str] | None = None,
        limits: Iterable[Limit | Rate] = (),
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
        self.due_s = options.seconds(due, f"{self.name}: due")
        self.due_at: float | None = None
        options.check_due(self.due_s, self.timeout_s, self.name)
        self.priority = options.priority(priority, f"{self.name}: priority")
        self.on_bug = options.on_bug(on_bug, f"{self.name}: on_bug")
        self.on, self.event_parameter = _on(fn, on, f"{self.name}: on")
        """The types of events that start it, and the parameter that gets their data."""
        self.limits: Limits | None = None
        """How many of its runs may be open at once, or begin in a time. None if there are no limits."""
        if limits:
            from holdfast.workflow.limits import limits_of  # noqa: PLC0415  whoever has limits has loaded it

            self.limits = limits_of(limits, fn, f"{self.name}: limits", of_runs=True)
        self.gather: Gather | None = None
        """How its starts are gathered, if they are."""
        if debounce is not None or batch is not None:
            from holdfast.workflow.gather import gather_of  # noqa: PLC0415  few programs need it

            self.gather = gather_of(fn, debounce, batch, self.name)
        if self.gather is not None and self.on and self.gather.parameter not in {"", self.event_parameter}:
            raise DefinitionError(
                f"{self.name}: an event gives a batch one item, so `{self.gather.parameter}` must be the first parameter"
            )
        if self.gather is not None and self.limits is not None and self.limits.full != "wait":
            raise DefinitionError(
                f"{self.name}: with debounce= or batch= a run waits for its limits: leave out full="
            )
        self.id: str | None = None
        self.tags: dict[str, str] = {}
        self.namespace: str | None = None
        self.begin_in_s: float | None = None
        self.begin_at: float | None = None
        self.fair: str | None = None
        """Whom its runs are for."""
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
        begin_in: Seconds | Unset | None = UNSET,
        begin_at: datetime | Unset | None = UNSET,
        by: str | Unset = UNSET,
        fair: str | Unset | None = UNSET,
        due: Seconds | Unset | None = UNSET,
        due_at: datetime | Unset | None = UNSET,
    ) -> Workflow[P, R]:
        """Return the same workflow with other settings, for one run: `hf.start(order.using(id="order-42"), …)`.

        `fair` says whom the run is for, such as a customer. However many runs and steps wait for one fair key, those of
        another one get their share. Children have the fair key of their parent.

        With `begin_in` (seconds or a timedelta) or `begin_at` (a datetime with a zone) the run is recorded at once, and
        begins later. Its timeout counts from then.

        With `due` (seconds or a timedelta) or `due_at` (a datetime with a zone) the run is promised to end by then. People
        are warned before it is late, as far as that can be known. Nothing else happens: `timeout` ends a run.

        `existing="join"` is for a child run whose `id` another run may have already: the parent then waits for that
        run, without owning it. `by="person:anna"` says who starts the run, for `ask(…, not_by="starter")`.
        """
        other: Workflow[P, R] = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        if not isinstance(id, Unset):
            other.id = options.run_id(id, f"{self.name}: id")
        if not isinstance(priority, Unset):
            other.priority = options.priority(priority, f"{self.name}: priority")
        if not isinstance(tags, Unset):
            what = f"{self.name}: tags"
            ours = {key: value for key, value in self.tags.items() if key.startswith("$")}
            other.tags = ours | stored_tags(tags, what)
        if not isinstance(timeout, Unset):
            other.timeout_s = options.seconds(timeout, f"{self.name}: timeout")
        if not isinstance(namespace, Unset):
            other.namespace = options.text(namespace, f"{self.name}: namespace")
        if not isinstance(existing, Unset):
            other.joins = options.joins(existing, other.id, f"{self.name}: existing")
        if not (isinstance(begin_in, Unset) and isinstance(begin_at, Unset)):
            other.begin_in_s, other.begin_at = options.begin(
                None if isinstance(begin_in, Unset) else begin_in,
                None if isinstance(begin_at, Unset) else begin_at,
                self.name,
            )
        if not isinstance(by, Unset):
            other.tags = {**other.tags, BY_TAG: options.person(by, f"{self.name}: by")}
        if not isinstance(fair, Unset):
            other.fair = options.fair(fair, f"{self.name}: fair")
        if not (isinstance(due, Unset) and isinstance(due_at, Unset)):
            other.due_s, other.due_at = options.due(
                None if isinstance(due, Unset) else due,
                None if isinstance(due_at, Unset) else due_at,
                self.name,
            )
        options.check_due(other.due_s, other.timeout_s, self.name)
        return other

    def gathering(self, stored_name: str, raw: bytes) -> Gathering | None:
        """Return which run takes a start with this input. None if it makes a run of its own."""
        if self.gather is None:
            return None
        self.demand_at_once("debounce= and batch= say when its runs begin")
        return self.gather.of(stored_name, self.version, raw)

    def demand_at_once(self, what: str) -> None:
        """Raise if a run of this is to begin later, where `what` says already when runs begin."""
        if self.begin_in_s is not None or self.begin_at is not None:
            raise DefinitionError(f"{self.name}: {what}, so leave out begin_in and begin_at")

    @cached_property
    def shape(self) -> Shape:
        """The shape of the function. It is made when it is first needed, if its types did not exist yet when the
        workflow was declared."""
        return Shape.of(self.fn, self._scope)

    def __repr__(self) -> str:
        return f"<workflow {self.name} {self.version}>"


def _on(fn: Callable[..., Any], given: object, what: str) -> tuple[tuple[str, ...], str]:
    """Return the types of events that start a workflow, and the parameter that gets their data."""
    if given is None:
        return (), ""
    types = [given] if isinstance(given, str) else list(given) if isinstance(given, Sequence) else [given]
    if not types:
        raise DefinitionError(f"{what}: expected the type of an event, or several, not {given!r}")
    named = list(inspect.signature(fn).parameters.values())
    is_one = bool(named) and named[0].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    if not is_one or any(one.default is one.empty for one in named[1:]):
        raise DefinitionError(
            f"{what}: an event has one thing to give, its data: let {fn.__name__}() take one argument, and give all others a "
            "default"
        )
    from holdfast.event_names import event_type  # noqa: PLC0415  few workflows are started by events

    return tuple(dict.fromkeys(event_type(one, what) for one in types)), named[0].name


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


def demand_workflow(given: object) -> None:
    """Raise, and say what to write instead, unless somebody starts a workflow."""
    if isinstance(given, Workflow):
        return
    if inspect.iscoroutine(given):
        given.close()
        what = "a call: pass the workflow and its arguments apart, as in `start(order, 42)`"
    elif hasattr(given, "undone_by"):
        what = f"the step {getattr(given, '__name__', given)!s}: call it in a workflow, and start that"
    elif isinstance(given, FunctionType):
        declared = next((one for one in registry.workflows.values() if one.fn is given), None)
        what = f"the bare function {given.__name__}(): " + (
            "put @workflow on it" if declared is None else f"pass the workflow {declared.name} itself"
        )
    elif isinstance(given, str):
        what = f"the text {given[:50]!r}: import the workflow of that name; `holdfast start FILE:NAME` starts it by its name"
    else:
        what = f"a {type(given).__name__}: pass a function that has @workflow"
    raise DefinitionError(f"a run is started of a workflow, and this is {what}")


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
    due: Seconds | None = None,
    priority: int = 0,
    on_bug: OnBug | None = None,
    debounce: Debounce | None = None,
    batch: Batch | None = None,
    on: str | Sequence[str] | None = None,
    limits: Iterable[Limit | Rate] = (),
) -> WorkflowDecorator: ...
def workflow(fn: Callable[..., Coroutine[Any, Any, Any]] | None = None, /, **settings: Any) -> Any:
    """Make an async function durable: `@workflow`, or `@workflow(version="2", timeout=timedelta(days=7))`.

    Its code must do the same when it runs again on the same outcomes: clocks, dice and I/O belong in steps. This warns
    about code that seems to do something else.

    `on_bug="hold"` holds a run where the code itself raises an exception: not a step's failure, not a `Stop`. Mended code
    and `holdfast release` let it go on from there. `on_bug="undo"` fails such a run, and undoes what it did; this is the
    default, and `Config(on_bug=…)` changes the default.

    `debounce=Debounce("doc:{id}", quiet=10)` and `batch=Batch("site:{site}", size=100, wait=5)` let one run take several
    starts: see `holdfast.starts`.

    `on="order.created"` starts a run for each event of that type, with the event's data as the only argument.

    `due=timedelta(hours=2)` promises that a run ends within this time. A run that will probably be late raises the alert
    `run late` before it is. `timeout` is the hard end.

    `limits` says how many runs may be open at once, or begin in a time: `limits=[Limit("import:{site}", 1, full="skip")]` is
    a workflow of which one run is open for each site.
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
