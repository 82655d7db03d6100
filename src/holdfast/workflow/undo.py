"""Undos of steps, sagas that undo a part of a run, and the point of no return.

When a run fails or is cancelled, `decider/undo_plan.py` undoes what its steps did, from the recorded rows; no code here
runs then. A saga undoes its own part while the workflow goes on: its undos are steps like any other.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Token
from inspect import Parameter
from types import FrameType, TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from holdfast.decider.effect import DONE, Effect, SagaScope, open_scope, scope_var
from holdfast.decider.loop import Host, running
from holdfast.decider.undo_order import Reverse
from holdfast.errors import DefinitionError, WorkflowError
from holdfast.model import PRIORITY_MAX
from holdfast.policy import Retry
from holdfast.workflow import options, registry
from holdfast.workflow.options import UNSET, Unset
from holdfast.workflow.step import Step

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")
T = TypeVar("T")

UNDO_RETRY = Retry(attempts=20, delay=1.0, factor=2.0, max_delay=300.0)
"""Undos are patient, because a run that cannot be undone needs a person. Half an hour on average, an hour at most,
outlasts a restart or a short outage of the other side. A person should hear of longer ones."""


class Undo(Step[P, R]):
    """A step that undoes another one. `@….undo` makes it; it can be called like any step."""

    first = DONE

    def undo(self, *args: Any, **settings: Any) -> Any:
        raise DefinitionError(f"{self.name} is an undo: it cannot have an undo itself")

    def __repr__(self) -> str:
        return f"<undo {self.name}>"


class UndoDecorator(Protocol[P, R_co]):
    """What `@charge.undo(…)` returns: it takes the function."""

    @overload
    def __call__(
        self, fn: Callable[Concatenate[R_co | None, P], Coroutine[Any, Any, T]], /
    ) -> Undo[Concatenate[R_co | None, P], T]: ...
    @overload
    def __call__(
        self, fn: Callable[Concatenate[R_co | None, P], T], /
    ) -> Undo[Concatenate[R_co | None, P], T]: ...


def declare_undo(
    step: Step[Any, Any],
    fn: Callable[..., Any],
    frame: FrameType,
    *,
    name: str | None = None,
    retry: Retry | int | None = None,
    timeout: Any = UNSET,
    needs: Iterable[str] | Unset = UNSET,
    priority: int | Unset = UNSET,
    isolate: bool = False,
    depends: str | None = None,
) -> Undo[..., Any]:
    """Make `fn` the undo of a step."""
    origin = step.origin
    if inspect.isfunction(fn):
        _check_signature(origin.fn, fn)
    made: Undo[..., Any] = Undo(
        fn,
        name=name,
        retry=UNDO_RETRY if retry is None else retry,
        timeout=origin.timeout_s if isinstance(timeout, Unset) else timeout,
        needs=origin.needs if isinstance(needs, Unset) else needs,
        priority=PRIORITY_MAX if isinstance(priority, Unset) else priority,
        isolate=isolate,
        depends=depends,
        **options.declared_in(frame, fn),
    )
    if made.name.endswith("!"):
        raise DefinitionError(f"{made.name!r} cannot be the name of an undo: it ends in !")
    known = origin.undone_by
    if known is not None and not made.place.is_again(known.place):
        raise DefinitionError(
            f"{origin.name} has two undos, {known.name} and {made.name}: a step has one; let it do both"
        )
    if "shape" in made.__dict__ and not made.shape.takes_none():
        raise DefinitionError(
            f"{fn.__name__}(): {made.shape.parameters[0].name!r} must accept None, which it gets when nobody knows how "
            f"{origin.fn.__name__} ended: annotate it as `… | None`"
        )
    registry.register_step(made)
    origin.undone_by = made
    return made


def undo_with(step: Step[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """In a workflow: if this run, or the saga around this place, is undone, call `step` with these arguments.

    This is for an effect without an undo of its own: what several steps did together, or what was done outside of them.
    It takes its turn among the undos as if it undid a step that completed here.
    """
    host = _host("undo_with()")
    if not isinstance(step, Step):
        raise WorkflowError(f"undo_with({step!r}): give it a step, so that it is durable: put @step on it")
    host.register_undo(step, args, kwargs)


def keep() -> None:
    """In a workflow: the point of no return. Nothing that was asked for so far is undone, whatever happens later."""
    _host("keep()").keep()


class Saga:
    """A part of a run that is done as a whole or undone. `saga()` makes it."""

    __slots__ = ("_scope", "_token")

    _scope: SagaScope
    _token: Token[SagaScope | None]

    async def __aenter__(self) -> None:
        host = _host("saga()")
        self._scope = SagaScope(open_scope())
        self._token = scope_var.set(self._scope)
        host.enter_saga()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is GeneratorExit:
            return  # the run leaves memory, so its code is closed; nothing has ended
        host, scope = _host("saga()"), self._scope
        scope.closed = True
        scope_var.reset(self._token)
        try:
            if not isinstance(error, Exception | asyncio.CancelledError):
                outer = open_scope()
                if outer is not None:
                    outer.effects += scope.effects
            elif isinstance(error, asyncio.CancelledError) and host.ending:
                host.leave_undo_to_run()
            else:
                await _undo(host, scope.effects, error)
        finally:
            host.leave_saga()


def saga() -> Saga:
    """`async with saga():` undoes what was asked for in it when its body raises; then the exception goes on.

    So a workflow can catch it and go on another way. The saga first gives up steps that still run. Then it undoes every
    step that may have had an effect: the one that completed last comes first, and those that overlapped are undone side
    by side. Tasks that were started in a saga belong to it. Sagas nest: an inner one that was left without an exception
    is part of the outer one. Nothing interrupts the undoing: a timeout or cancellation that comes meanwhile is raised
    when it is done.

    A child run in it is undone in its place, as if its steps stood in the saga itself; one that still runs is cancelled
    first. A run that was only started (`await night.start(…)`) or joined is not. When the run itself is cancelled or
    reaches its deadline, the saga does nothing: the whole run is undone, even if the code catches the cancellation. If an
    undo gives up, the others are still tried; then the code goes no further, and the run is stuck: it waits for a person.
    """
    return Saga()


async def _undo(host: Host, effects: list[Effect], error: BaseException) -> None:
    """Undo what a saga did. A cancellation of the task that waits here does not give up the undos: it waits for them by
    a future of its own."""
    loop = running()
    assert loop is not None
    for effect in effects:
        if not effect.wait.future.done():
            host.drop(effect.wait)
            effect.wait.future.cancel()
    found = [effect for effect in effects if effect.may_have_happened and not host.is_kept(effect)]
    order = Reverse((effect.extent, effect) for effect in found)
    ended: deque[tuple[Effect, asyncio.Future[Any]]] = deque()
    wake: asyncio.Future[None] | None = None
    left, stuck, cancelled = len(found), False, False

    def on_end(effect: Effect) -> Callable[[asyncio.Future[Any]], None]:
        def end(future: asyncio.Future[Any]) -> None:
            ended.append((effect, future))
            if wake is not None and not wake.done():
                wake.set_result(None)

        return end

    while left:
        for effect in order.ready():
            host.undo(effect, error).add_done_callback(on_end(effect))
        wake = loop.create_future()
        try:
            await wake
        except asyncio.CancelledError:
            if host.ending:
                host.leave_undo_to_run()
                raise
            cancelled = True
        while ended:
            effect, future = ended.popleft()
            order.resolve(effect)
            left -= 1
            stuck = future.exception() is not None or stuck
    if stuck:
        host.stick(error)
        await loop.create_future()
    if cancelled:
        raise asyncio.CancelledError


_COUNTED = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_KINDS = {
    Parameter.POSITIONAL_ONLY: "positional-only",
    Parameter.POSITIONAL_OR_KEYWORD: "positional or keyword",
    Parameter.VAR_POSITIONAL: "a *",
    Parameter.KEYWORD_ONLY: "keyword-only",
    Parameter.VAR_KEYWORD: "a **",
}


def _check_signature(step: Callable[..., Any], undo: Callable[..., Any]) -> None:
    """Refuse an undo unless it takes the step's result first and then exactly the step's own parameters: it is called
    with the step's recorded input."""
    what, of = f"{undo.__name__}()", step.__name__
    mine = list(inspect.signature(undo).parameters.values())
    theirs = list(inspect.signature(step).parameters.values())
    if not mine or mine[0].kind not in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
        raise DefinitionError(f"{what}: its first parameter must take {of}'s result, or None")
    for place, (own, like) in enumerate(zip(mine[1:], theirs, strict=False), 1):
        nth = f"the {_COUNTED[place]} parameter" if place < len(_COUNTED) else f"parameter {place + 1}"
        if own.name != like.name:
            raise DefinitionError(f"{what}: {nth} must be {like.name!r} like {of}'s, not {own.name!r}")
        if own.kind is not like.kind:
            raise DefinitionError(
                f"{what}: {own.name!r} must be {_KINDS[like.kind]} like {of}'s, not {_KINDS[own.kind]}"
            )
    if len(mine) <= len(theirs):
        raise DefinitionError(
            f"{what}: {theirs[len(mine) - 1].name!r} is missing: after the result come {of}'s own parameters"
        )
    if len(mine) > len(theirs) + 1:
        raise DefinitionError(f"{what}: {mine[len(theirs) + 1].name!r} is no parameter of {of}")


def _host(what: str) -> Host:
    loop = running()
    if loop is None:
        raise WorkflowError(f"{what} works in a workflow only")
    return loop.host
