"""Calls whose result another system gives. The workflow's code awaits one thing, and the run has two steps for it: the
request, which an agent executes, and the callback, which waits and costs nothing."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.codec import Payload
from holdfast.codec.schema import schema_of
from holdfast.errors import StepFailed

if TYPE_CHECKING:
    from holdfast.decider.loop import Host
    from holdfast.workflow.step import Step


async def called_back(
    decider: Host, step: Step[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a step with a callback. If nobody answers in time, ask again, as often as timeouts are allowed."""
    form, last = _form(step.shape.result), None
    while True:
        request, answer = decider.call_back(step, args, kwargs, form, last)
        try:
            try:
                await request.future
            except Exception:
                # The answer counts, also if the code that asked for it failed later.
                if not answer.future.done():
                    decider.drop(answer)
                    raise
            else:
                decider.begin_wait(answer)
            return await answer.future
        except asyncio.CancelledError:
            decider.drop(request)
            decider.drop(answer)
            raise
        except StepFailed:
            if not answer.expired or answer.number >= answer.number_max:
                raise
            last = answer


@lru_cache(maxsize=256)
def _form(result: Payload) -> bytes:
    """Return the JSON Schema of a result, by which an answer is checked where it comes in."""
    return msgspec.json.encode(schema_of(result.form.type))
