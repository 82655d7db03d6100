"""Updates: calls into a run that get an answer. They may come before the run serves them."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from functools import cached_property
from inspect import CO_NEWLOCALS
from types import TracebackType
from typing import Generic, TypeVar

from holdfast.codec import Payload
from holdfast.codec.schema import Schema, schema_of
from holdfast.config import DEFAULT
from holdfast.decider.finish import continuation
from holdfast.decider.loop import running
from holdfast.decider.updates import UpdateScope
from holdfast.errors import DefinitionError, NotInStep, WorkflowError
from holdfast.workflow import options, outside, registry
from holdfast.workflow.options import Seconds

T = TypeVar("T")
R = TypeVar("R")

GRACE_S = 60.0
"""How long a run that leaves a scope waits for the calls that began in it. A call that hangs must not hang the run."""


class Update(Generic[T, R]):
    """A call into a run that gets an answer. After `change = Update("change_address", Address, Confirmation)` a workflow
    serves it by `async with change.serve(fn):`, and anyone calls it by `await change.call(run_id, Address(…))`."""

    def __init__(self, name: str, type: type[T], reply: type[R]) -> None:
        self.name = options.text(name, "the name of an update")
        self.label = options.label_of(name)
        self.payload = Payload(type, f"update {name}")
        self.reply = Payload(reply, f"the answer of update {name}")
        if running() is None:  # a workflow makes its updates again at each replay, so they are not registered
            lasting = not sys._getframe(1).f_code.co_flags & CO_NEWLOCALS
            registry.register_update(self, lasting=lasting)

    @cached_property
    def schema(self) -> Schema:
        """What it takes, for processes that do not have this code."""
        return schema_of(self.payload.form.type)

    @cached_property
    def reply_schema(self) -> Schema:
        """What it answers."""
        return schema_of(self.reply.form.type)

    def serve(
        self,
        fn: Callable[[T], R] | Callable[[T], Awaitable[R]],
        *,
        check: Callable[[T], object] | None = None,
        limit: int = 1,
        grace: Seconds = GRACE_S,
    ) -> Scope:
        """In a workflow: `async with change.serve(fn):` lets `fn` answer the calls while the scope is open.

        `check` gets the value before `fn` does, and refuses it by raising. It must change nothing. `limit` is how many
        calls are served at once. When the code leaves the scope, no further call begins, and those that began get
        `grace` to end.
        """
        what = f"{self.name}.serve()"
        for given, word in ((fn, "a function that answers"), (check, "a function as check=")):
            if not callable(given) and given is not None:
                raise DefinitionError(f"{what}: expected {word}, not {given!r}")
            if given is not None and not _takes_one(given):
                raise DefinitionError(
                    f"{what}: expected {word} and takes one value, the call's: not {given!r}"
                )
        if options.whole_number(limit, f"{what}: limit") < 1:
            raise DefinitionError(f"{what}: limit must be 1 or more, not {limit!r}")
        grace_s = options.seconds(grace, f"{what}: grace") or GRACE_S
        return Scope(UpdateScope(self, fn, check, limit), grace_s)

    async def call(
        self, run_id: str, value: T, *, key: str | None = None, timeout: Seconds | None = None
    ) -> R:
        """Call a run, and return its answer. The same `key` again is the same call, and gets the same answer.

        Raises Refused if the run refuses it, UpdateFailed if it ended in an error or the run ended without an answer,
        and TimeoutError if there is no answer within `timeout`; the call is recorded all the same.
        """
        options.key(key, f"{self.name}.call: key")
        if running() is not None:
            raise NotInStep(
                f"workflow code called {self.name}.call(): an answer from another run is an outcome, so call it in a step"
            )
        patience_s = options.patience(timeout, f"{self.name}.call(timeout=…)")
        through = outside.current()
        payload = self.payload.encode(
            value, (DEFAULT if through is None else through.config).payload_max_bytes
        )
        if through is None:
            raise WorkflowError(
                f"{self.name}.call() needs an open Holdfast: call it inside `async with Holdfast(…)`; plain code writes "
                f"`hf.wait({self.name}.call(…))` inside `with Holdfast(…) as hf:`"
            )
        raw = await through.call_update(run_id, self.name, payload, key, patience_s)
        answer: R = self.reply.decode_whole(raw)
        return answer

    def __repr__(self) -> str:
        return f"<update {self.name}>"


def _takes_one(fn: Callable[..., object]) -> bool:
    """True if a function can be called with one value, or does not say what it takes."""
    try:
        inspect.signature(fn).bind(None)
    except ValueError:
        return True
    except TypeError:
        return False
    return True


class Scope:
    """Where a workflow serves an update. `update.serve()` makes it."""

    __slots__ = ("_grace_s", "_serving")

    def __init__(self, serving: UpdateScope, grace_s: float) -> None:
        self._serving, self._grace_s = serving, grace_s

    async def __aenter__(self) -> None:
        loop, name = running(), self._serving.update.name
        if loop is None:
            raise WorkflowError(f"{name}.serve() works in a workflow only: a run serves updates")
        if self._serving.is_closed or self._serving.tasks:
            raise WorkflowError(f"{name}.serve() makes one scope: call it again for another one")
        loop.host.serve(self._serving)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, serving = running(), self._serving
        assert loop is not None
        if loop.closing:
            return  # the run leaves memory
        host = loop.host
        host.stop_serving(serving)
        try:
            if serving.tasks and (error is None or continuation(error) is not None):
                await asyncio.wait(serving.tasks, timeout=self._grace_s)
            if serving.tasks:
                why = f"the run left the scope that serves {serving.update.name!r}"
                for task in serving.tasks:
                    task.cancel(why)
                await asyncio.wait(serving.tasks, timeout=self._grace_s)
        finally:
            if not loop.closing:
                host.drop(serving.wait)
