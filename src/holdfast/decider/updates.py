"""The updates of one run: calls that nobody serves yet, and the scopes in which the code serves them.

A call goes to the open scope of its name. Without one, it waits until the code opens such a scope. A scope serves its
calls in the order in which they were delivered, as many at once as its limit says. Each is a task beside the code that
opened the scope, with a branch of its own.

A replay serves the same calls again and comes to the same answers, which are not written again. A call that was refused
takes its turn once more, so that the branches after it keep their names, but its function is not called.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast import codec
from holdfast.decider.history import unreadable
from holdfast.decider.keys import Branch
from holdfast.decider.loop import RunLoop, RunTask
from holdfast.errors import HoldfastError, Refused, UpdateFailed, WorkflowError
from holdfast.interrupt import by_signal
from holdfast.model import UpdateAnswer

if TYPE_CHECKING:
    from holdfast.decider.commands import Wait
    from holdfast.decider.decider import Decider
    from holdfast.workflow.update import Update


class UpdateReply(NamedTuple):
    """The answer to one update."""

    seq: int
    """The update's place in the history."""
    answer: UpdateAnswer
    reply: bytes
    """What the update returned, or the error."""


def unserved(seq: int, why: str) -> UpdateReply:
    """Return the answer to an update that nothing served."""
    return UpdateReply(seq, UpdateAnswer.UNSERVED, codec.encode_error(UpdateFailed(why)).encode())


class UpdateCall:
    """One update that was delivered."""

    __slots__ = ("answer", "has_begun", "payload", "seq")

    def __init__(self, seq: int, payload: bytes, answer: str | None) -> None:
        self.seq, self.payload = seq, payload
        self.answer = None if answer is None else UpdateAnswer(answer)
        """How it was answered, now or when this was recorded."""
        self.has_begun = False


class UpdateScope:
    """A scope in which the code serves the updates of one name."""

    __slots__ = (
        "_branch",
        "_calls",
        "_context",
        "_updates",
        "check",
        "fn",
        "is_closed",
        "limit",
        "tasks",
        "update",
        "wait",
    )

    def __init__(
        self,
        update: Update[Any, Any],
        fn: Callable[[Any], Any],
        check: Callable[[Any], object] | None,
        limit: int,
    ) -> None:
        self.update, self.fn, self.check, self.limit = update, fn, check, limit
        self.tasks: list[RunTask] = []
        """The calls that have begun and not ended."""
        self.is_closed = False
        self.wait: Wait
        self._calls: deque[UpdateCall] = deque()

    def begin(self, updates: Updates, branch: Branch, wait: Wait, calls: deque[UpdateCall]) -> None:
        """Serve calls from now on. Steps of a call belong to the saga in which the scope was opened."""
        self._updates, self._branch, self.wait, self._calls = updates, branch, wait, calls
        self._context = contextvars.copy_context()
        self._begin_next()

    def take(self, call: UpdateCall) -> None:
        self._calls.append(call)
        self._begin_next()

    def close(self) -> deque[UpdateCall]:
        """Begin no more calls. Return those that have not begun."""
        self.is_closed = True
        left, self._calls = self._calls, deque()
        return left

    def _begin_next(self) -> None:
        loop = self._updates.loop
        while self._calls and len(self.tasks) < self.limit and not self.is_closed and not loop.closing:
            call = self._calls.popleft()
            call.has_begun = True
            branch = Branch(self._branch.component(self.update.label))
            task = RunTask(self._serve(call), loop, branch, context=self._context.copy())
            loop.tasks.append(task)
            self.tasks.append(task)

    async def _serve(self, call: UpdateCall) -> None:
        host = self._updates.host
        task, seq = asyncio.current_task(), host.seq
        try:
            if call.answer is not UpdateAnswer.REFUSED:
                self._updates.answer(call, UpdateAnswer.RETURNED, await self._called(call))
        except asyncio.CancelledError:
            why = f"the update {self.update.name!r} of run {host.run_id!r} was cancelled before it ended"
            if self.is_closed:
                why += ": the run left the scope that serves it"
            self._updates.raised(call, UpdateFailed(why))
            raise
        except GeneratorExit:
            raise  # the run leaves memory
        except BaseException as error:
            if by_signal(error):
                raise
            is_refusal = isinstance(error, Refused) and host.seq == seq
            self._updates.raised(call, error, UpdateAnswer.REFUSED if is_refusal else UpdateAnswer.RAISED)
        finally:
            self.tasks = [one for one in self.tasks if one is not task]
            self._begin_next()

    async def _called(self, call: UpdateCall) -> bytes:
        update, host = self.update, self._updates.host
        value = self._read(call)
        if self.check is not None:
            try:
                self.check(value)
            except Exception as no:
                raise no if isinstance(no, Refused) else Refused(codec.message_of(no)) from no
        result = self.fn(value)
        if inspect.isawaitable(result):
            result = await result
        return update.reply.encode(result, host.payload_max)

    def _read(self, call: UpdateCall) -> Any:
        payload = self.update.payload
        try:
            return payload.decode(call.payload) if call.answer is None else payload.decode_whole(call.payload)
        except HoldfastError as wrong:
            if call.answer is None:
                raise Refused(str(wrong)) from None
            what = f"the update {self.update.name!r} that the run served"
            self._updates.host.stop_for_drift(unreadable("", "update", what, call.payload, wrong))
            raise


class Updates:
    """The part of a decider that gives updates to the code, and has their answers."""

    __slots__ = ("_open", "_scopes", "_unserved", "host", "loop", "replies")

    def __init__(self, host: Decider, loop: RunLoop) -> None:
        self.host, self.loop = host, loop
        self._scopes: dict[str, UpdateScope] = {}
        self._unserved: dict[str, deque[UpdateCall]] = {}
        self._open: dict[int, UpdateCall] = {}
        """The calls that are not answered, by their place in the history."""
        self.replies: list[UpdateReply] = []
        """The answers since the last turn."""

    def deliver(self, seq: int, name: str, payload: bytes, answer: str | None) -> bool:
        """Give a call to the scope that serves it. Return whether it began at once."""
        if answer == UpdateAnswer.UNSERVED:
            return False
        call = UpdateCall(seq, payload, answer)
        if answer is None:
            self._open[seq] = call
        scope = self._scopes.get(name)
        if scope is None:
            self._unserved.setdefault(name, deque()).append(call)
        else:
            scope.take(call)
        return call.has_begun

    def demand_unserved(self, name: str) -> None:
        """Raise if the code serves updates of this name already."""
        if name in self._scopes:
            raise WorkflowError(
                f"this run serves the update {name!r} already: leave that scope before you open another one"
            )

    def serve(self, serving: UpdateScope, branch: Branch, wait: Wait) -> None:
        """Open a scope."""
        name = serving.update.name
        self._scopes[name] = serving
        serving.begin(self, branch, wait, self._unserved.pop(name, deque()))

    def close(self, serving: UpdateScope) -> None:
        """Close a scope. Calls that have not begun wait for the next scope of that name."""
        name = serving.update.name
        del self._scopes[name]
        if left := serving.close():
            self._unserved[name] = left

    def answer(self, call: UpdateCall, how: UpdateAnswer, reply: bytes) -> None:
        """Answer a call, unless an answer is recorded."""
        self._open.pop(call.seq, None)
        if call.answer is None:
            call.answer = how
            self.replies.append(UpdateReply(call.seq, how, reply))

    def raised(self, call: UpdateCall, error: BaseException, how: UpdateAnswer = UpdateAnswer.RAISED) -> None:
        self.answer(call, how, codec.encode_error(codec.safe_to_inspect(error)).encode())

    def waiting(self) -> tuple[int, ...]:
        """Return the places in the history of the calls that have not begun."""
        return tuple(sorted(seq for seq, call in self._open.items() if not call.has_begun))

    def end(self, how: str, *, is_continued: bool) -> None:
        """Answer everything that is open, because the code has ended. If the run continues as new, the next generation
        serves the calls that have not begun."""
        for call in list(self._open.values()):
            if call.has_begun:
                self.raised(call, UpdateFailed(f"{how} before it had answered this update"))
            elif not is_continued:
                del self._open[call.seq]
                self.replies.append(unserved(call.seq, f"{how} before anything served this update"))
