"""A deterministic event loop: first in, first out, no I/O, no threads, no clock.

Everything in asyncio that only needs a loop works on it unchanged. Timers become durable steps of the run. The time on
this loop is the time of the last outcome delivered. The loop never waits: `run()` returns when nothing is ready. It can
run inside a callback of another loop, because `run()` replaces the running loop while it works.
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
from holdfast.decider.stdlib import TIMER_LABELS, coroutines_given, is_wait_for, made_by
from holdfast.errors import NotInStep, WorkflowError
from holdfast.interrupt import by_signal

if TYPE_CHECKING:
    from random import Random

    from holdfast.codec import Payload
    from holdfast.decider.commands import CallbackWait, Named, Wait
    from holdfast.decider.effect import Effect
    from holdfast.decider.updates import UpdateScope
    from holdfast.questions import Question
    from holdfast.workflow.step import Step
    from holdfast.workflow.workflow import Workflow

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Coro = Coroutine[Any, Any, T] | Generator[Any, Any, T]

TURN_MAX_CALLBACKS = 1_000_000
"""A turn is microseconds of work. Code that runs a million callbacks in one turn is in an endless loop."""
LATEST = 253_402_300_799.0
"""The last second of the year 9999. With this limit, `asyncio.sleep(inf)` is a timer that never fires, not an error."""

_leaves: dict[int, object] = {}
_log = logging.getLogger("holdfast.workflow")


def leaf(function: Callable[..., object]) -> None:
    """Note that each coroutine of this function waits for one thing. A task that only wraps such a coroutine adds no
    level to the key of that thing.

    The coroutine's `__qualname__` is the label of the key.
    """
    code = function.__code__
    _leaves[id(code)] = code


leaf(asyncio.sleep)  # noqa: TID251  it is only passed on, not called


class Runaway(WorkflowError):
    """The code did not come to rest within one turn."""


class Host(Protocol):
    """What the loop, and the functions that authors call, need from the decider they run in."""

    @property
    def namespace(self) -> str: ...

    def start_timer(self, label: str, timer: Timer) -> None: ...
    def drop(self, wait: Wait) -> None: ...
    def call(self, step: Step[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wait: ...
    def child(
        self,
        workflow: Workflow[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        detached: bool = False,
    ) -> Wait: ...
    def wait_signal(self, signal: Named) -> Wait: ...
    def patched(self, name: str) -> bool: ...
    def serve(self, serving: UpdateScope) -> None: ...
    def stop_serving(self, serving: UpdateScope) -> None: ...
    def send(self, run_id: str, name: str, payload: bytes, key: str | None) -> None: ...
    def set_progress(self, fraction: float | None, note: str) -> None: ...
    def publish(self, key: str, value: bytes) -> None: ...
    def random(self) -> Random: ...
    def is_main(self) -> bool: ...
    def register_undo(self, step: Step[Any, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None: ...
    def keep(self) -> None: ...
    def enter_saga(self) -> None: ...
    def leave_saga(self) -> None: ...
    def leave_undo_to_run(self) -> None: ...
    def is_kept(self, effect: Effect) -> bool: ...
    def undo(self, effect: Effect, error: BaseException) -> asyncio.Future[Any]: ...
    def stick(self, error: BaseException) -> None: ...
    def log(self, record: logging.LogRecord) -> None: ...

    def ask(self, label: str, question: Question, result: Payload) -> Wait: ...
    def call_back(
        self,
        step: Step[Any, Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        form: bytes,
        last: CallbackWait | None = None,
    ) -> tuple[Wait, CallbackWait]: ...
    def begin_wait(self, wait: CallbackWait) -> None: ...

    @property
    def run_id(self) -> str: ...
    @property
    def started_by(self) -> str | None: ...
    @property
    def tags(self) -> str | None: ...
    @property
    def workflow(self) -> Workflow[Any, Any]: ...
    @property
    def ending(self) -> bool: ...
    @property
    def payload_max(self) -> int: ...


class Timer(asyncio.TimerHandle):
    """A timer of the standard library that knows its durable step, if it has one."""

    __slots__ = ("_holdfast_step", "wait")

    wait: Wait | None
    _holdfast_step: int
    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _context: contextvars.Context
    _scheduled: bool


class SoonHandle(msgspec.Struct, eq=False, gc=False):
    """A handle that works like `asyncio.Handle` and costs a third of it. Each delivered step needs one."""

    _callback: Callable[..., object]
    _args: tuple[Any, ...]
    _context: contextvars.Context
    _cancelled: bool = False

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled


class RunTask(asyncio.Task[Any]):
    """A task that knows its place in the tree. Its hash is its number, so that a set of tasks has the same order at
    every replay."""

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
        """Rename the task, and its branch with it. Before 3.13, `create_task(…, name=…)` names the task after making
        it."""
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
        self.ready: deque[SoonHandle | Timer] = deque()
        self.tasks: list[RunTask] = []
        self.closing = False
        self.quiet = False
        self.tasks_made = 0
        self._compact_at = 64
        self._made_ahead: dict[int, RunTask] = {}

    def run(self) -> None:
        """Run callbacks until nothing is ready."""
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
                except BaseException as error:  # if a task's code raised it, it is the task's outcome already
                    if by_signal(error):
                        raise  # it is meant for the process, and nothing of this turn is committed
                    self.log_failure({"message": "a callback failed", "exception": error})
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
        """Return where in the tree the code is now."""
        task = current_task(self)
        return task.branch if type(task) is RunTask else self.root

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = SoonHandle(callback, args, contextvars.copy_context() if context is None else context)
        self.ready.append(handle)
        return handle  # type: ignore[return-value]  # it works like one

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
        timer.wait = None
        timer._scheduled = True
        if when <= self.now:
            self.ready.append(timer)
        else:
            self.host.start_timer(TIMER_LABELS.get(getattr(callback, "__name__", ""), "timer"), timer)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        wait = getattr(handle, "wait", None)
        if wait is not None and not self.closing:
            handle.wait = None  # type: ignore[attr-defined]  # a Timer: only call_at makes handles
            self.host.drop(wait)

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
        if self._made_ahead:
            made = self._made_ahead.pop(id(coro), None)
            if made is not None:
                return made
        frame = made_by(sys._getframe(1))
        if frame is None:
            return self._make(coro, name, context)
        if is_wait_for(frame):
            return self._make(coro, name, context, own_branch=False)
        for sibling in coroutines_given(frame):
            self._made_ahead[id(sibling)] = self._make(sibling)
        return self._made_ahead.pop(id(coro), None) or self._make(coro)

    def _make(
        self,
        coro: Coro[Any],
        name: object = None,
        context: contextvars.Context | None = None,
        *,
        own_branch: bool = True,
    ) -> RunTask:
        parent = self.branch()
        wraps_one_call = id(getattr(coro, "cr_code", None)) in _leaves
        if own_branch or wraps_one_call:
            label = getattr(coro, "__qualname__" if wraps_one_call else "__name__", "task")
            if name is not None and ":" not in label:
                label = word(str(name))
            branch = Branch(parent.component(label), wraps_one_call=wraps_one_call)
            renames_in = None if name is not None else parent
            task = RunTask(coro, self, branch, label=label, parent=renames_in, context=context)
        else:
            task = RunTask(coro, self, parent, context=context)
        self.tasks.append(task)
        if len(self.tasks) > self._compact_at:
            self.forget_done()
            self._compact_at = 64 + 2 * len(self.tasks)
        return task

    def create_main(self, coro: Coroutine[Any, Any, Any]) -> RunTask:
        """Make the task of the workflow function. It is the root of the tree."""
        task = RunTask(coro, self, self.root)
        self.tasks.append(task)
        return task

    def log_failed_tasks(self) -> None:
        """Log which tasks failed without the code noticing. Called when the run has ended."""
        for task in self.tasks:
            if task.done() and task._log_traceback:
                error = task.exception()
                message = f"task {task.get_name()} failed, and nothing waited for it"
                self.log_failure({"message": message, "exception": error})

    def forget_done(self) -> None:
        self.tasks = [task for task in self.tasks if not task.done()]

    def _end_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        """Run the `finally` of an abandoned async generator on this loop."""
        if not self.closing:
            self._make(generator.aclose(), "aclose")

    def close(self) -> None:
        """Drop everything. Suspended code gets GeneratorExit, and gets it again whenever it tries to wait."""
        if self.closing:
            return
        self.closing = True
        self.ready.clear()
        self.forget_done()
        tasks, self.tasks = self.tasks, []
        if tasks:
            self._close_tasks(tasks)
            self.ready.clear()
        # The host refers to this loop. Without this cycle, a run that leaves memory is freed at once.
        del self.host

    def _close_tasks(self, tasks: list[RunTask]) -> None:
        outer = _get_running_loop()
        hooks = sys.get_asyncgen_hooks()
        _set_running_loop(self)
        sys.set_asyncgen_hooks(None, None)
        try:
            for task in tasks:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # the only switch asyncio has
                _close(task.get_coro())
        finally:
            sys.set_asyncgen_hooks(*hooks)
            _set_running_loop(outer)

    def log_failure(self, context: dict[str, Any]) -> None:
        """Log a failure that no code waited for. A replay logs nothing, so that the failure is logged once."""
        if not self.closing and not self.quiet:
            error = context.get("exception")
            reason = "" if error is None else f": {type(error).__name__}: {message_of(error)}"
            _log.warning("in a workflow: %s%s", context.get("message"), reason)

    call_exception_handler = default_exception_handler = log_failure

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
    """Return the loop of the run whose workflow code is executing now, if any."""
    loop = _get_running_loop()
    return loop if type(loop) is RunLoop else None


def _begin_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """Do nothing, so that the outer loop does not take care of async generators of workflow code."""


def _close(coro: Any) -> None:
    for _ in range(100):  # code that catches GeneratorExit and awaits again gets it again, but not for ever
        try:
            coro.close()
        except RuntimeError:
            continue
        except BaseException:  # noqa: BLE001, S110  an author's `finally` failed, but the run is leaving memory anyway
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
