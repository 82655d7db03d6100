"""Signals: values sent to a run from outside. They may arrive before the run waits for them."""

from __future__ import annotations

import asyncio
import sys
from functools import cached_property
from inspect import CO_NEWLOCALS
from typing import Any, Generic, TypeVar

from holdfast.codec import Payload, stored_text
from holdfast.codec.schema import Schema, schema_of
from holdfast.config import DEFAULT
from holdfast.decider.loop import leaf, running
from holdfast.errors import WorkflowError
from holdfast.workflow import options, outside, registry
from holdfast.workflow.options import Call, Seconds

T = TypeVar("T")


class Signal(Generic[T]):
    """A value that is sent to a run. After `paid = Signal("paid", Payment)` a run waits by `await paid.wait()`, and
    anyone sends by `await paid.send(run_id, value)`."""

    def __init__(self, name: str, type: type[T]) -> None:
        self.name = options.text(name, "the name of a signal")
        self.type = type
        self.label = options.label_of(name)
        self.payload = Payload(type, f"signal {name}")
        self.encode, self.decode = self.payload.encode, self.payload.decode
        if running() is None:  # a workflow makes its signals again at each replay, so they are not registered
            lasting = not sys._getframe(1).f_code.co_flags & CO_NEWLOCALS
            registry.register_signal(self, lasting=lasting)

    @cached_property
    def schema(self) -> Schema:
        """What it carries, for processes that do not have this code."""
        return schema_of(self.payload.form.type)

    def wait(self, timeout: Seconds | None = None) -> Call[T]:
        """Return the next value, in a workflow. Each wait takes one, in the order of sending. Raises TimeoutError if
        none comes in time."""
        call: Any = _wait(self, options.seconds(timeout, f"{self.name}.wait: timeout"))
        call.__qualname__ = self.label
        durable: Call[T] = call
        return durable

    async def send(self, run_id: str, value: T, key: str | None = None) -> None:
        """Send a value to a run. If it is sent twice with the same `key`, it arrives once."""
        options.key(key, f"{self.name}.send: key")
        loop = running()
        if loop is not None:
            stored_text(run_id, f"{self.name}.send: the run's id")
            loop.host.send(run_id, self.name, self.encode(value, loop.host.payload_max), key)
            return
        through = outside.current()
        payload = self.encode(value, (DEFAULT if through is None else through.config).payload_max_bytes)
        if through is None:
            raise WorkflowError(
                f"{self.name}.send() needs an open Holdfast: call it inside `async with Holdfast(…)`, or in a workflow; plain "
                f"code writes `hf.wait({self.name}.send(…))` inside `with Holdfast(…) as hf:`"
            )
        await through.send_signal(run_id, self.name, payload, key)

    def __repr__(self) -> str:
        return f"<signal {self.name}>"


async def _wait(signal: Signal[Any], timeout_s: float | None) -> Any:
    loop = running()
    if loop is None:
        raise WorkflowError(f"{signal.name}.wait() works in a workflow only: a signal is sent to a run")
    decider = loop.host
    op = decider.wait_signal(signal)
    try:
        async with asyncio.timeout(timeout_s):
            return await op.future
    except (asyncio.CancelledError, TimeoutError):
        decider.drop(op)
        raise


leaf(_wait)
