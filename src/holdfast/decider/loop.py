"""A deterministic event loop: first in, first out, no I/O, no threads, no clock.

Everything in asyncio that only needs a loop works on it unchanged. Timers become durable steps of the run; its time is the
time of the last outcome delivered. It never waits: `run()` returns when nothing is ready. It may run inside a callback of
another loop, because the running loop is swapped for the time of a turn.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
import sys
from asyncio import _get_running_loop, _set_running_loop, current_task
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, TypeVarTuple

import msgspec

from holdfast.codec import message_of
from holdfast.decider.keys import Branch, word
from holdfast.decider.stdlib import TIMER_LABELS, given, is_wait_for, maker
from holdfast.errors import NotInStep, WorkflowError
from holdfast.interrupt import by_signal

if TYPE_CHECKING:
    from random import Random

    from holdfast.decider.commands import Wait
    from holdfast.decider.effect import Effect
    from holdfast.workflow.signal import Signal
    from holdfast.workflow.step import Step
    from holdfast.workflow.workflow import Workflow

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Coro = Coroutine[Any, Any, T] | Generator[Any, Any, T]

TURN_MAX_CALLBACKS = 1_000_000
"""A turn is microseconds of work; a million callbacks are a loop that never ends."""
LATEST = 253_402_300_799.0
"""The last second of the year 9999: `asyncio.sleep(inf)` is a timer that never comes, not an error."""

_leaves: dict[int, object] = {}
_log = logging.getLogger("holdfast.workflow")


def leaf(function: Callable[..., object]) -> None:
    """Coroutines of this function wait for one thing: a task that only wraps one adds no level to its key.

    The coroutine's `__qualname__` is the label of the key.
    """
    code = function.__code__
    _leaves[id(code)] = code


leaf(asyncio.sleep)  # noqa: TID251  named, not called


class Runaway(WorkflowError):
    """The code did not come to rest within one turn."""


class Host(Protocol):
    """What the loop, and the words authors use, need of the decider they run in."""

    def start_timer(self, label: str, timer: Timer) -> None: ...
    def drop(self, op: Wait) -> None: ...
    def call(self, step: Step[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wait: ...
    def child(self, workflow: Workflow[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wait: ...
    def wait_signal(self, signal: Signal[Any]) -> Wait: ...
    def send(self, run_id: str, name: str, payload: bytes, key: str | None) -> None: ...
    def set_progress(self, fraction: float, note: str) -> None: ...
    def publish(self, key: str, value: bytes) -> None: ...
    def random(self) -> Random: ...
    def is_main(self) -> bool: ...
    def register_undo(self, step: Step[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    def keep(self) -> None: ...
    def enter_saga(self) -> None: ...
    def leave_saga(self) -> None: ...
    def pass_over(self) -> None: ...
    def is_kept(self, effect: Effect) -> bool: ...
    def undo(self, effect: Effect) -> Wait: ...
    def stick(self, error: BaseException) -> None: ...

    @property
    def ending(self) -> bool: ...
    @property
    def payload_max(self) -> int: ...


class Timer(asyncio.TimerHandle):
    """A timer of the standard library that knows its durable step, if it has one."""

    __slots__ = ("_holdfast_step", "op")

    op: Wait | None
    _holdfast_step: int
    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _context: contextvars.Context
    _scheduled: bool


class Soon(msgspec.Struct, eq=False, gc=False):
    """An `asyncio.Handle` in all but name, at a third of its price: there is one for every step delivered."""

    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _context: contextvars.Context
    _cancelled: bool = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled


class RunTask(asyncio.Task[Any]):
    """A task that knows its place in the tree. Its hash is its number, so that a set of tasks has the same order at every replay."""

    __slots__ = ("branch", "label", "number", "parent")

    def __init__(
        self,
        coro: Any,
        loop: RunLoop,
        branch: Branch,
        *,
        label: str = "",
        parent: Branch | None = None,
        context: contextvars.Context | None = None,
    ) -> None:
        loop.tasks_made += 1
        self.number = loop.tasks_made
        self.branch, self.label, self.parent = branch, label, parent
        super().__init__(coro, loop=loop, name=branch.path or "main", context=context)

    def __hash__(self) -> int:
        return self.number

    def set_name(self, value: object) -> None:
        """Before 3.13, `create_task(…, name=…)` names the task only after it was made: the branch follows."""
        if self.parent is not None and ":" not in self.label and current_task() is not self:
            self.branch = self.parent.renamed(self.branch, self.label, word(str(value)))
            self.parent = None
        super().set_name(value)


class RunLoop(asyncio.AbstractEventLoop):
    """The loop of one run."""

    def __init__(self, host: Host, now: float, root: str = "") -> None:
        self.host = host
        self.now = now
        self.root = Branch(root)
        self.ready: deque[Soon | Timer] = deque()
        self.tasks: list[RunTask] = []
        self.closing = False
        self.quiet = False
        self.tasks_made = 0
        self._compact_at = 64
        self._made: dict[int, RunTask] = {}

    def run(self) -> None:
        """Run what is ready, and what becomes ready by that, until nothing is."""
        outer = _get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        _set_running_loop(self)
        sys.set_asyncgen_hooks(_begin_generator, self._end_generator)
        ready = self.ready
        try:
            for _ in range(TURN_MAX_CALLBACKS):
                if not ready:
                    return
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                try:
                    handle._context.run(handle._callback, *handle._args)
                except BaseException as error:  # what the code raised has become its task's outcome
                    if by_signal(error):
                        raise  # it was meant for the process, and nothing of this turn is committed
                    self.hear({"message": "a callback failed", "exception": error})
            if ready:
                ready.clear()
                raise Runaway(
                    f"the workflow ran {TURN_MAX_CALLBACKS:,} callbacks without waiting for a step: "
                    "look for a loop around `asyncio.sleep(0)`"
                )
        finally:
            sys.set_asyncgen_hooks(*hooks)
            _set_running_loop(outer)

    def branch(self) -> Branch:
        """Where in the tree the code is now."""
        task = current_task(self)
        return task.branch if type(task) is RunTask else self.root

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = Soon(callback, args, contextvars.copy_context() if context is None else context)
        self.ready.append(handle)
        return handle  # type: ignore[return-value]  # one in all but name

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        if self.closing:
            raise GeneratorExit
        if math.isnan(when):
            raise ValueError("a delay must be a number, not NaN")
        timer = Timer(min(when, LATEST), callback, args, self, context)
        timer.op = None
        timer._scheduled = True
        if when <= self.now:
            self.ready.append(timer)
        else:
            self.host.start_timer(TIMER_LABELS.get(getattr(callback, "__name__", ""), "timer"), timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        op = getattr(handle, "op", None)
        if op is not None and not self.closing:
            handle.op = None  # type: ignore[attr-defined]  # a Timer: only call_at makes handles
            self.host.drop(op)

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[Any]:
        if self.closing:
            raise GeneratorExit
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coro[T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        if self.closing:
            raise GeneratorExit
        if self._made:
            made = self._made.pop(id(coro), None)
            if made is not None:
                return made
        frame = maker(sys._getframe(1))
        if frame is None:
            return self._make(coro, name, context)
        if is_wait_for(frame):
            return self._make(coro, name, context, apart=False)
        for sibling in given(frame):
            self._made[id(sibling)] = self._make(sibling)
        return self._made.pop(id(coro), None) or self._make(coro)

    def _make(
        self,
        coro: Coro[Any],
        name: object = None,
        context: contextvars.Context | None = None,
        *,
        apart: bool = True,
    ) -> RunTask:
        parent = self.branch()
        own = id(getattr(coro, "cr_code", None)) in _leaves
        if apart or own:
            label = getattr(coro, "__qualname__" if own else "__name__", "task")
            if name is not None and ":" not in label:
                label = word(str(name))
            branch = Branch(parent.component(label), own=own)
            known = None if name is not None else parent
            task = RunTask(coro, self, branch, label=label, parent=known, context=context)
        else:
            task = RunTask(coro, self, parent, context=context)
        self.tasks.append(task)
        if len(self.tasks) > self._compact_at:
            self.forget_done()
            self._compact_at = 64 + 2 * len(self.tasks)
        return task

    def create_main(self, coro: Coroutine[Any, Any, Any]) -> RunTask:
        """The workflow's own task: it is the root of the tree."""
        task = RunTask(coro, self, self.root)
        self.tasks.append(task)
        return task

    def report_unheard(self) -> None:
        """The run has ended: say which of its tasks failed without anybody asking."""
        for task in self.tasks:
            if task.done() and task._log_traceback:
                error = task.exception()
                self.hear({"message": f"task {task.get_name()} failed unheard", "exception": error})

    def forget_done(self) -> None:
        self.tasks = [task for task in self.tasks if not task.done()]

    def _end_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """An abandoned async generator runs its `finally` on this loop."""
        if not self.closing:
            self._make(generator.aclose(), "aclose")

    def close(self) -> None:
        """Drop everything. Suspended code sees GeneratorExit, and any attempt to wait again raises it once more."""
        if self.closing:
            return
        self.closing = True
        self.ready.clear()
        self.forget_done()
        left, self.tasks = self.tasks, []
        if left:
            self._close_tasks(left)
            self.ready.clear()
        del self.host  # it refers back to this loop: without it, a run that has left memory is freed at once

    def _close_tasks(self, left: list[RunTask]) -> None:
        outer = _get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        _set_running_loop(self)
        sys.set_asyncgen_hooks(None, None)
        try:
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # the only switch asyncio has
                _close(task.get_coro())
        finally:
            sys.set_asyncgen_hooks(*hooks)
            _set_running_loop(outer)

    def hear(self, context: dict[str, Any]) -> None:
        """A background task failed and nobody asked. Said once, by the run that lives: not by a replay or a closing."""
        if not self.closing and not self.quiet:
            error = context.get("exception")
            told = "" if error is None else f": {type(error).__name__}: {message_of(error)}"
            _log.warning("in a workflow: %s%s", context.get("message"), told)

    call_exception_handler = default_exception_handler = hear

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.closing

    def is_closed(self) -> bool:
        return self.closing

    def get_task_factory(self) -> None:
        return None

    get_exception_handler = get_task_factory


def running() -> RunLoop | None:
    """The loop of the run whose workflow code is executing now, if any."""
    loop = _get_running_loop()
    return loop if type(loop) is RunLoop else None


def _begin_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """Async generators of workflow code are not the outer loop's."""


def _close(coro: Any) -> None:
    for _ in range(100):  # code that catches GeneratorExit and awaits again gets it again, but not for ever
        try:
            coro.close()
        except RuntimeError:
            continue
        except BaseException:  # noqa: BLE001, S110  an author's `finally` failed while the run leaves memory: nobody to tell
            pass
        return


def _refuse(method: str) -> Callable[..., NoReturn]:
    def refuse(self: RunLoop, *args: object, **kwargs: object) -> NoReturn:
        raise NotInStep(
            f"workflow code called {method}(), which needs the outside world: put it in a step, "
            "so that it happens once and its result is recorded"
        )

    refuse.__name__ = method
    return refuse


_OUTSIDE = """
run_forever run_until_complete stop shutdown_asyncgens shutdown_default_executor call_soon_threadsafe run_in_executor
set_default_executor getaddrinfo getnameinfo create_connection create_server start_tls sendfile create_unix_connection
create_unix_server connect_accepted_socket create_datagram_endpoint connect_read_pipe connect_write_pipe subprocess_shell
subprocess_exec add_reader remove_reader add_writer remove_writer sock_recv sock_recv_into sock_recvfrom sock_recvfrom_into
sock_sendall sock_sendto sock_connect sock_accept sock_sendfile add_signal_handler remove_signal_handler set_task_factory
set_exception_handler set_debug
"""
for _method in _OUTSIDE.split():
    setattr(RunLoop, _method, _refuse(_method))
