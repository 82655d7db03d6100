"""Steps: functions whose calls are durable. In a workflow a call becomes a row; an agent executes it and reports.

Outside of a run a step is just its function, so that it can be called and tested like one.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from asyncio import _get_running_loop
from collections.abc import Callable, Coroutine, Iterable
from functools import cached_property
from types import FrameType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

from holdfast.codec import Shape, stored_text
from holdfast.decider.loop import RunLoop, leaf
from holdfast.errors import DefinitionError
from holdfast.model import DEFAULT_NAMESPACE
from holdfast.namespaces import stored
from holdfast.policy import Retry
from holdfast.workflow import options, registry
from holdfast.workflow.here import called_in_step
from holdfast.workflow.mappable import Mappable
from holdfast.workflow.options import UNSET, Call, Seconds, Unset
from holdfast.workflow.origin import Place

if TYPE_CHECKING:
    from holdfast.workflow.limits import Limit, Limits, Rate
    from holdfast.workflow.undo import Undo, UndoDecorator

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
RESERVED = frozenset({"undo", "patched", "request", "callback"})
"""Labels that begin the keys of other things, if a colon follows."""


class Step(Mappable, Generic[P, R]):
    """A function whose calls are durable. `@step` makes it."""

    first: ClassVar[str | None] = None
    """What a recorded input calls the first parameter, if not by its own name."""

    def __init__(  # noqa: PLR0913  each is a word that an author may want to write
        self,
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        retry: Retry | int | None = None,
        timeout: Seconds | None = None,
        needs: Iterable[str] = (),
        priority: int = 0,
        isolate: bool = False,
        key: str | None = None,
        undo_failed: bool | options.Errors = False,
        depends: str | None = None,
        hedge: bool = False,
        elsewhere: bool = False,
        callback: bool = False,
        expires: Seconds | None = None,
        limits: Iterable[Limit | Rate] = (),
        due: Seconds | None = None,
        scope: dict[str, Any] | None = None,
        place: Place | None = None,
    ) -> None:
        options.check_function(fn, "step")
        self.fn = fn
        self.is_async = inspect.iscoroutinefunction(fn)
        self.place = place or Place(fn, None)
        self.name = self.bare_name = options.name_of(self.place, name)
        self.retry = options.policy(retry, f"{self.name}: retry")
        self.timeout_s = options.seconds(timeout, f"{self.name}: timeout")
        self.due_s = options.seconds(due, f"{self.name}: due")
        self.retry_override = self.retry.for_supervisor(timed=self.timeout_s is not None)
        """The policy that is recorded with the step: one that was given for a call, or the declared one if a
        Supervisor must know it. An agent has the code, and knows the declared one by itself."""
        self.elsewhere = bool(elsewhere)
        """No Python agent executes it: agents in other languages do. Its policy always goes with it."""
        if self.elsewhere:
            self.retry_override = self.retry.encode()
            if isolate or hedge:
                raise DefinitionError(
                    f"{self.name}: elsewhere=True declares a step that other agents execute: isolate and hedge mean nothing"
                )
        self._declare_callback(callback, expires, hedge)
        self.needs = options.needs(needs, f"{self.name}: needs")
        self.priority = options.priority(priority, f"{self.name}: priority")
        self.depends = self.name if depends is None else options.text(depends, f"{self.name}: depends")
        """What the step cannot do without, by the name of its breaker. Steps that share it wait while it is down."""
        self.isolate = bool(isolate)
        self.key = None if key is None else stored_text(key, f"{self.name}: key")
        self.undo_failed, self.unsure_after = options.undo_failed(undo_failed, f"{self.name}: undo_failed")
        """After an exception of `unsure_after` the step may have had its effect. The agent records that."""
        self.hedge = bool(hedge)
        self.limits: Limits | None = None
        """How many of its calls may be at work at once, or begin in a time. None if there are no limits."""
        if limits:
            from holdfast.workflow.limits import limits_of  # noqa: PLC0415  whoever has limits has loaded it

            self.limits = limits_of(limits, fn, f"{self.name}: limits", of_runs=False)
        if self.limits is not None and self.hedge:
            raise DefinitionError(
                f"{self.name}: hedge=True runs a call twice, and a step under a limit must not: take one of them away"
            )
        self.undone_by: Undo[..., Any] | None = None
        self.origin: Step[..., Any] = self
        """The step as it was declared. `using` makes copies of it; an undo that is declared later is theirs, too."""
        self.doc = inspect.getdoc(fn)
        if self.isolate and self.is_async:
            raise DefinitionError(
                f"{self.name}: isolate=True runs a def in a process of its own: make it a plain def"
            )
        if self.isolate and self.place.file is None:
            raise DefinitionError(
                f"{self.name}: isolate=True runs a def in a process of its own, which imports it from its file: "
                "move it from this session into a file"
            )
        self.label = _label(self.name, key)
        self.__name__, self.__qualname__, self.__module__ = fn.__name__, fn.__qualname__, fn.__module__
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn
        self._scope = scope
        shape = Shape.early(fn, scope, self.first)
        if shape is not None:
            self.shape = self._own(shape)

    def _declare_callback(self, callback: bool, expires: Seconds | None, hedge: bool) -> None:
        self.callback = bool(callback)
        """Another system gives the result of its calls, at the address that its code finds in `here.callback`."""
        self.expires_s = options.seconds(expires, f"{self.name}: expires")
        """How long a call waits for the callback, once its code has returned. None: as long as the run does."""
        if self.expires_s is not None and not self.callback:
            raise DefinitionError(
                f"{self.name}: expires says how long to wait for a callback: write callback=True, too, or timeout="
            )
        if self.callback and hedge:
            raise DefinitionError(
                f"{self.name}: hedge=True would ask another system twice for one callback: take one of them away"
            )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        call: Any = perform(self, args, kwargs)
        call.__qualname__ = self.label
        durable: Call[R] = call
        return durable

    def within(self, namespace: str) -> Step[P, R]:
        """Return the same step as an agent has it for runs of this namespace: the names of its lane and its breaker are
        stored names. `bare_name` is what people see."""
        if namespace == DEFAULT_NAMESPACE:
            return self
        other: Step[P, R] = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.name, other.depends = stored(namespace, self.name), stored(namespace, self.depends)
        return other

    def using(
        self,
        *,
        key: str | Unset = UNSET,
        timeout: Seconds | Unset | None = UNSET,
        retry: Retry | int | Unset | None = UNSET,
        priority: int | Unset = UNSET,
        needs: Iterable[str] | Unset = UNSET,
        due: Seconds | Unset | None = UNSET,
    ) -> Step[P, R]:
        """Return the same step with other settings, for one call: `charge.using(timeout=5)(card, 300)`."""
        other: Step[P, R] = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        if not isinstance(key, Unset):
            other.key = stored_text(key, f"{self.name}: key")
            other.label = _label(self.name, key)
        if not isinstance(timeout, Unset):
            other.timeout_s = options.seconds(timeout, f"{self.name}: timeout")
            if other.retry_override is None:
                other.retry_override = other.retry.for_supervisor(timed=other.timeout_s is not None)
        if not isinstance(retry, Unset):
            other.retry = options.policy(retry, f"{self.name}: retry")
            other.retry_override = other.retry.encode()
        if not isinstance(priority, Unset):
            other.priority = options.priority(priority, f"{self.name}: priority")
        if not isinstance(needs, Unset):
            other.needs = options.needs(needs, f"{self.name}: needs")
        if not isinstance(due, Unset):
            other.due_s = options.seconds(due, f"{self.name}: due")
        return other

    @property
    def undo_name(self) -> str | None:
        """The name of this step's undo, as it is recorded with the step: with a `!` if `undo_failed` is True."""
        undo = self.origin.undone_by
        if undo is None:
            return None
        return f"{undo.name}!" if self.undo_failed else undo.name

    @overload
    def undo(
        self, fn: Callable[Concatenate[R | None, P], Coroutine[Any, Any, T]], /
    ) -> Undo[Concatenate[R | None, P], T]: ...
    @overload
    def undo(self, fn: Callable[Concatenate[R | None, P], T], /) -> Undo[Concatenate[R | None, P], T]: ...
    @overload
    def undo(
        self,
        *,
        name: str | None = None,
        retry: Retry | int | None = None,
        timeout: Seconds | Unset | None = UNSET,
        needs: Iterable[str] | Unset = UNSET,
        priority: int | Unset = UNSET,
        isolate: bool = False,
        depends: str | None = None,
    ) -> UndoDecorator[P, R]: ...
    def undo(self, *fn: Any, **settings: Any) -> Any:
        """Declare the undo of this step: `@charge.undo`, or `@charge.undo(retry=50)`.

        The function takes the step's result, or None when nobody knows how the step ended, and then the step's own
        arguments. It runs when the run fails or is cancelled, as a durable step with a patient `retry` of its own: 20
        attempts within about half an hour. Other settings that are left out are those of the step. It may find nothing
        to undo, and it may run twice: write it so that neither does any harm.
        """
        from holdfast.workflow.undo import declare_undo  # noqa: PLC0415  an undo is a step

        if fn:
            return declare_undo(self, fn[0], sys._getframe(1))
        return lambda declared: declare_undo(self, declared, sys._getframe(1), **settings)

    @cached_property
    def shape(self) -> Shape:
        """The shape of the function. It is made when it is first needed, if its types did not exist yet when the step
        was declared."""
        return self._own(Shape.of(self.fn, self._scope, self.first))

    def _own(self, shape: Shape) -> Shape:
        """The code of a step with a callback returns nothing that counts: its result comes later."""
        if self.callback:
            shape.encode_result = _nothing
        return shape

    def __repr__(self) -> str:
        return f"<step {self.name}>"


async def perform(step: Step[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a step: durably inside a run, and as the bare function outside."""
    loop = _get_running_loop()
    if type(loop) is not RunLoop:
        with called_in_step(step.name, step.label):
            if step.is_async:
                return await step.fn(*args, **kwargs)
            return await asyncio.to_thread(step.fn, *args, **kwargs)
    decider = loop.host
    if step.callback:
        from holdfast.workflow.callback import called_back  # noqa: PLC0415  few steps have a callback

        return await called_back(decider, step, args, kwargs)
    op = decider.call(step, args, kwargs)
    try:
        return await op.future
    except asyncio.CancelledError:
        decider.drop(op)
        raise


leaf(perform)


def _nothing(value: Any, limit: int = 0) -> bytes:
    return b"null"


def _label(name: str, key: str | None) -> str:
    label = options.label_of(name)
    if key is None:
        return label
    # Only the keys of undos begin with `undo:`, and only those of markers with `patched:`. The same holds for callbacks.
    return f"{label}_:{key}" if label in RESERVED else f"{label}:{key}"


class StepDecorator(Protocol):
    """What `@step(…)` returns: it takes the function."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Step[P, R]: ...


@overload
def step(fn: Callable[P, Coroutine[Any, Any, R]], /) -> Step[P, R]: ...
@overload
def step(fn: Callable[P, R], /) -> Step[P, R]: ...
@overload
def step(
    *,
    name: str | None = None,
    retry: Retry | int | None = None,
    timeout: Seconds | None = None,
    needs: Iterable[str] = (),
    priority: int = 0,
    isolate: bool = False,
    key: str | None = None,
    undo_failed: bool | options.Errors = False,
    depends: str | None = None,
    hedge: bool = False,
    elsewhere: bool = False,
    callback: bool = False,
    expires: Seconds | None = None,
    limits: Iterable[Limit | Rate] = (),
    due: Seconds | None = None,
) -> StepDecorator: ...
def step(fn: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Make a function's calls durable: `@step`, or `@step(retry=5, timeout=30)`.

    `retry` is a `Retry` or a number of attempts. `timeout` is for one attempt, in seconds or as a timedelta. `needs`
    are labels that an agent must have. `isolate=True` runs a plain def in a process that can be killed. `depends` names
    what the step cannot do without, such as "stripe": steps that share it share a breaker. Without `depends` each step
    has its own.

    `@….undo` declares the step's undo. If all attempts of a step ended in an error of their own, it did nothing, and is
    not undone. `undo_failed=True` undoes it all the same; `undo_failed=ConnectionError`, or a tuple of classes, undoes
    it after such an error.

    `hedge=True` lets a call that takes much longer than usual run a second time on another agent, beside the first and
    with the same `here.key`. The first to succeed counts. Use it only for what may run twice side by side.

    `elsewhere=True` declares a step that agents in other languages execute, through a server: the function says its name,
    types and policy, and its body is never executed in a run.

    `callback=True` declares a step whose result another system gives: the step's code hands `here.callback` on, an address
    that works once, and returns. Within `expires` somebody posts `{"output": …}` or `{"error": {…}}` there. Otherwise the
    step is called again, as often as `Retry.timeouts` allows.

    `limits` says how many calls may be at work at once, or begin in a time, over all processes:
    `limits=[Limit("customer:{fair}", 5), Rate("stripe", 100, per=60)]`. A call that has no room waits.

    `due=60` promises that a call ends within this time, with all its attempts. A call that will probably be late raises the
    alert `step late`; nothing else happens to it.
    """

    def declare(fn: Callable[..., Any], frame: FrameType | None = None) -> Step[Any, Any]:
        made: Step[Any, Any] = Step(fn, **options.declared_in(frame or sys._getframe(1), fn), **settings)
        registry.register_step(made)
        return made

    return declare if fn is None else declare(fn, sys._getframe(1))
