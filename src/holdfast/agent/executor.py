"""Executes steps: `async def` steps in the agent's event loop, `def` steps in threads, and isolated steps in processes
of their own.

Each execution ends with one call to the agent, which says that the code ended, that it was cancelled, that it could not
begin, or that the whole process is ending.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from holdfast.agent import isolation
from holdfast.agent.assignment import Assignment
from holdfast.agent.outcome import Raised, execute, raised, unstored
from holdfast.agent.places import Places
from holdfast.agent.threads import StepThreads
from holdfast.config import Config
from holdfast.errors import StepTimeout
from holdfast.interrupt import by_signal
from holdfast.model import Ending
from holdfast.workflow.here import here_var


class ExecutingAgent(Protocol):
    """The agent, as its executor sees it. The executor calls one of these methods for each execution."""

    def succeed(self, assignment: Assignment, output: bytes) -> None:
        """The code returned, and this is its result."""

    def fail(self, assignment: Assignment, failure: Raised) -> None:
        """The code raised, or what it returned cannot be recorded."""

    def cancelled(self, assignment: Assignment, error: BaseException) -> None:
        """The agent cancelled the execution, or the step's own code raised CancelledError."""

    def put_off(self, assignment: Assignment, error: Exception) -> None:
        """The execution could not begin here for now."""

    def leave(self, assignment: Assignment) -> None:
        """The process is ending, and the step has not ended."""


class BegunSpans(Protocol):
    async def begin(self, assignment: Assignment) -> None:
        """Begin the span of this attempt, and make it current in this task."""


class Executor:
    execute_isolated = staticmethod(isolation.execute)
    """Executes a step in a process of its own. A simulation has no other processes, and replaces this."""

    spans: BegunSpans | None = None
    """Begins a span for each attempt, if traces are on."""

    def __init__(self, agent: ExecutingAgent, places: Places, config: Config) -> None:
        self._agent, self._places, self._config = agent, places, config
        self._threads = StepThreads(config.threads_max)

    def begin(self, assignment: Assignment) -> None:
        """Execute the step in a task of its own."""
        step = assignment.step
        run = self._in_loop if step.is_async else self._isolated if step.isolate else self._in_thread
        execution = run(assignment) if self.spans is None else self._traced(self.spans, run, assignment)
        assignment.task = asyncio.get_running_loop().create_task(execution)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    @staticmethod
    async def _traced(
        spans: BegunSpans, run: Callable[[Assignment], Awaitable[None]], assignment: Assignment
    ) -> None:
        """Execute the step within a span. Until that has begun, the step has not."""
        await spans.begin(assignment)
        await run(assignment)

    async def _in_loop(self, assignment: Assignment) -> None:
        assignment.begun = True
        here_var.set(assignment.here)  # this is the task's own context, so nobody needs to reset it
        step, timer = assignment.step, None
        if assignment.timeout_s is not None:
            timer = asyncio.get_running_loop().call_later(assignment.timeout_s, _time_out, assignment)
        returned = False
        try:
            value = await step.shape.call(step.fn, assignment.arguments)
            returned = True
            output = step.shape.encode_result(value, self._config.payload_max_bytes)
        except asyncio.CancelledError as error:
            self._agent.cancelled(assignment, error)
        except BaseException as error:
            if by_signal(error) or _is_torn_down(error):
                self._agent.leave(assignment)
                raise
            self._agent.fail(assignment, unstored(step, error) if returned else raised(step, error))
        else:
            self._agent.succeed(assignment, output)
        finally:
            if timer is not None:
                timer.cancel()

    async def _in_thread(self, assignment: Assignment) -> None:
        """Execute a `def` step in a thread. A thread cannot be stopped. After the timeout it goes on, and keeps its
        place until it returns."""
        assignment.begun = True
        here_var.set(assignment.here)
        try:
            call = asyncio.get_running_loop().run_in_executor(
                self._threads,
                contextvars.copy_context().run,
                execute,
                assignment.step,
                assignment.arguments,
                self._config.payload_max_bytes,
            )
        except RuntimeError as error:  # no thread can be started
            self._agent.put_off(assignment, error)
            return
        try:
            async with asyncio.timeout(assignment.timeout_s):
                ended = await asyncio.shield(call)
        except TimeoutError:
            assignment.timed_out = True
            self._abandon(assignment, call)
            self._agent.fail(assignment, overran(assignment))
        except asyncio.CancelledError as error:
            self._abandon(assignment, call)
            self._agent.cancelled(assignment, error)
        else:
            self._end(assignment, ended)

    def _abandon(self, assignment: Assignment, call: asyncio.Future[Any]) -> None:
        """Wait no longer for a thread. It keeps a place until it returns."""
        if assignment.here is not None:
            assignment.here.cancelled = True
        if not call.done():
            self._places.overtake(assignment.step)

            def returned(done: asyncio.Future[Any]) -> None:
                self._places.give_back(assignment.step)
                if not done.cancelled():
                    done.exception()

            call.add_done_callback(returned)

    async def _isolated(self, assignment: Assignment) -> None:
        """Execute a step in a process of its own, which is killed at the timeout or when the step is cancelled."""
        assignment.begun = True
        assert assignment.here is not None
        limit = asyncio.timeout(assignment.timeout_s)
        ended: bytes | Raised
        try:
            async with limit:
                ended = await self.execute_isolated(
                    assignment.step, assignment.arguments, assignment.here, self._config.payload_max_bytes
                )
        except asyncio.CancelledError as error:
            self._agent.cancelled(assignment, error)
            return
        except isolation.ChildDied as died:
            ended = Raised(died.error, ending=Ending.LOST, place=died.place)
        except Exception as error:  # noqa: BLE001  the process could not be started
            ended = overran(assignment) if limit.expired() else Raised(error)
        self._end(assignment, ended)

    def _end(self, assignment: Assignment, ended: bytes | Raised) -> None:
        if isinstance(ended, Raised):
            self._agent.fail(assignment, ended)
        else:
            self._agent.succeed(assignment, ended)


def overran(assignment: Assignment) -> Raised:
    """Return the error of an attempt that did not complete in time."""
    error = StepTimeout(
        f"attempt {assignment.attempt} did not complete within {assignment.timeout_s:g} s",
        error_type="holdfast.errors.StepTimeout",
        step=assignment.step.bare_name,
    )
    return Raised(error, ending=Ending.TIMED_OUT)


def _time_out(assignment: Assignment) -> None:
    assignment.timed_out = True
    if assignment.here is not None:
        assignment.here.cancelled = True
    if assignment.task is not None:
        assignment.task.cancel()


def _is_torn_down(error: BaseException) -> bool:
    """True if the event loop is gone, and Python closes the coroutines that were still on it."""
    return issubclass(type(error), GeneratorExit) and asyncio._get_running_loop() is None
