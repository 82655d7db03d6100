"""Events, as workflows wait for them: `paid = Event("payment.received", Payment)`, and `await paid.wait("order-42")`."""

from __future__ import annotations

import asyncio
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.codec import Payload
from holdfast.decider.loop import leaf, running
from holdfast.errors import WorkflowError
from holdfast.event_names import Awaited, event_path, event_type, event_value, wait_name
from holdfast.workflow import options
from holdfast.workflow.options import Call, Seconds

T = TypeVar("T")


class Event(Generic[T]):
    """Events of a type that a workflow waits for. `by` says what makes one differ from another: an attribute, which is `subject`
    unless it is said, or a path in the data, such as `data.order.id`."""

    def __init__(self, type: str, data: type[T], *, by: str = "subject") -> None:
        self.type = event_type(type, "the type of an event")
        self.by = event_path(by, f"Event({type!r}): by")
        self.data = data
        self.label = options.label_of(type)
        self.payload = Payload(data, f"event {type}")

    def wait(self, value: str | int, timeout: Seconds | None = None) -> Call[T]:
        """Return the data of the next event with this value, in a workflow. Events that came since the run began count,
        also those from before the wait; each is taken once. Raises TimeoutError if none comes in time."""
        what = f"Event({self.type!r}).wait"
        call: Any = _wait(self, event_value(value, what), options.seconds(timeout, f"{what}: timeout"))
        call.__qualname__ = self.label
        durable: Call[T] = call
        return durable

    def __repr__(self) -> str:
        return f"<event {self.type} by {self.by}>"


class _Awaited(NamedTuple):
    """What the decider needs to know of a wait."""

    name: str
    label: str
    payload: Payload


async def _wait(event: Event[Any], value: str, timeout_s: float | None) -> Any:
    loop = running()
    if loop is None:
        raise WorkflowError(
            f"Event({event.type!r}).wait() works in a workflow only: elsewhere, `hf.emit` sends an event"
        )
    decider = loop.host
    name = wait_name(Awaited(decider.namespace, event.type, event.by, value))
    op = decider.wait_signal(_Awaited(name, event.label, event.payload))
    try:
        async with asyncio.timeout(timeout_s):
            return await op.future
    except (asyncio.CancelledError, TimeoutError):
        decider.drop(op)
        raise


leaf(_wait)
