"""`here`: what a running step knows about itself, and how it reports its progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from holdfast import codec
from holdfast.config import DEFAULT
from holdfast.decider.history import unreadable
from holdfast.decider.loop import running
from holdfast.environment import Environment
from holdfast.errors import InvalidInput, NotInStep, WorkflowError
from holdfast.log_buffer import LogBuffer
from holdfast.model import LogLine
from holdfast.namespaces import bare

T = TypeVar("T")
_world = Environment()


class LogKeeper(Protocol):
    """Keeps what attempts log."""

    level: int
    """What is logged below this level is not kept."""

    def keep(self, at: CurrentAttempt, record: logging.LogRecord) -> None: ...
    def keep_line(self, at: CurrentAttempt, line: LogLine) -> None:
        """Keep a line that another process has logged or printed. Its time is now."""


class CurrentAttempt:
    """One attempt of a step. The agent sets it in `here_var` around the step's code."""

    __slots__ = (
        "_inner", "attempt", "callback", "cancelled", "keeper", "key", "limit", "logs", "loop", "on_beat", "on_save", "run_id",
        "saved_raw", "step", "trace", "twin", "undoes",
    )  # fmt: skip

    _inner: dict[str, int]
    """How often the code of this step has called each other step, by label."""

    def __init__(
        self,
        *,
        run_id: str,
        key: str,
        attempt: int,
        step: str,
        on_beat: Callable[[float | None, str], None],
        on_save: Callable[[bytes], Awaitable[None]],
        saved_raw: bytes | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        undoes: str | None = None,
        limit: int = DEFAULT.payload_max_bytes,
        keeper: LogKeeper | None = None,
        twin: bool = False,
        callback: str | None = None,
    ) -> None:
        self.run_id = run_id
        self.key = key
        self.attempt = attempt
        self.step = step
        self.saved_raw = saved_raw
        self.on_beat = on_beat
        self.on_save = on_save
        self.cancelled = False
        self.loop = loop
        self.undoes = undoes
        self.limit = limit
        self.twin = twin
        self.callback = callback
        """Where another system posts the result. Empty if nobody said where servers are reached, and None if the step has no
        callback."""
        self.trace: str | None = None
        """The span of the attempt, for code in another process. None if traces are off."""
        self.keeper = keeper
        """Keeps what the attempt logs. None if nothing is kept, or the attempt is over."""
        self.logs: LogBuffer | None = None
        """What the attempt has logged so far. Most attempts log nothing, and have none."""

    @property
    def effect(self) -> str:
        """`here.key`, for those that are not the step's code."""
        return self.key

    @property
    def outermost(self) -> CurrentAttempt:
        """The attempt that an agent executes, if this is a part of it."""
        return self

    def inner_key(self, label: str) -> str:
        """Return the `here.key` of the next step with this label that the code of this step calls. It follows the order
        of the calls, so it is the same at every attempt."""
        try:
            counts = self._inner
        except AttributeError:  # hardly any step calls another one, so it is made when it is needed
            counts = self._inner = {}
        counts[label] = k = counts.get(label, 0) + 1
        return f"{self.key}/{label}" if k == 1 else f"{self.key}/{label}#{k}"


class InnerAttempt(CurrentAttempt):
    """A step that the code of another step calls. It is a part of the outer step: there is no row for it, it is not
    retried by itself, and its checkpoints are not kept. It has a key of its own, because two such calls are two
    effects."""

    __slots__ = ("_outer",)

    def __init__(self, outer: CurrentAttempt, step: str, label: str) -> None:
        self._outer = outer
        super().__init__(
            run_id=outer.run_id,
            key=outer.inner_key(label),
            attempt=outer.attempt,
            step=step,
            on_beat=outer.on_beat,
            on_save=_keep,
            loop=outer.loop,
            limit=outer.limit,
            callback=outer.callback,
        )

    @property
    def outermost(self) -> CurrentAttempt:
        return self._outer.outermost

    @property
    def cancelled(self) -> bool:
        return self._outer.cancelled

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        """Ignore it. Only the agent cancels, and it knows the outer step."""


here_var: ContextVar[CurrentAttempt | None] = ContextVar("holdfast.here", default=None)


class Saved:
    """A checkpoint that is being written. Awaiting it waits until it is durable; it is written either way."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[None] | None) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, None]:
        if self._future is not None:
            yield from asyncio.shield(self._future).__await__()


class Here:
    """The running step. Outside of a run it is a first attempt with a random key, so that steps can be tested."""

    __slots__ = ()

    @property
    def key(self) -> str:
        """The same text at every attempt of this step. Pass it to the remote service as its idempotency key."""
        return _attempting().key

    @property
    def undoes(self) -> str:
        """In an undo: the `here.key` of the step it undoes. A remote service knows the effect by it, if it had any."""
        at = _attempting()
        if at.undoes is None:
            raise WorkflowError("here.undoes is for undos: this step undoes nothing")
        return at.undoes

    @property
    def callback(self) -> str:
        """In a step with `callback=True`: the address to which another system posts the result of this call, once. It is the
        same at every attempt. Whoever has it can end the call, so pass it on to nobody else, and do not log it."""
        at = _attempting()
        if at.callback is None:
            raise WorkflowError(
                f"here.callback is for steps whose result another system gives: declare @step(callback=True) for {at.step!r}"
            )
        if not at.callback:
            raise WorkflowError(
                "here.callback: nobody has said where servers of this store are reached: set `public_url` in the file of alerts "
                "that `holdfast up --alerts` or `holdfast supervisor --alerts` reads, or Holdfast(…, alerts={'public_url': …})"
            )
        return at.callback

    def later(self) -> T:  # type: ignore[type-var]  # it stands for any result
        """Return this at the end of a step with `callback=True`: type checkers take it for the result, which comes later."""
        return None  # type: ignore[return-value]

    @property
    def run_id(self) -> str:
        """The id of the run, as its namespace sees it. `here.key` is unique in the whole store."""
        return bare(_attempting().run_id)

    @property
    def attempt(self) -> int:
        """1 at the first attempt."""
        return _attempting().attempt

    @property
    def step(self) -> str:
        """The step's name."""
        return _attempting().step

    @property
    def cancelled(self) -> bool:
        """True if nobody waits for this step any more. A `def` step should look now and then, and return."""
        return _attempting().cancelled

    def beat(self, progress: float | None = None, note: str = "") -> None:
        """Say that the step is alive, and how far it is, from 0 to 1."""
        if progress is not None and not 0 <= progress <= 1:
            raise WorkflowError(f"here.beat({progress!r}): expected a number from 0 to 1")
        _attempting().on_beat(progress, codec.progress_note(note))

    def save(self, value: Any) -> Saved:
        """Keep a checkpoint for the next attempt. Await it in an `async def` step; in a `def` step it blocks until it
        is durable."""
        at = _attempting()
        raw = codec.encode_open(value, f"{at.step}: here.save()", at.limit)
        at.saved_raw = raw
        try:
            inside: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            inside = None
        if inside is not None:
            return Saved(asyncio.ensure_future(_saving(at, raw)))
        if at.loop is not None:
            asyncio.run_coroutine_threadsafe(_saving(at, raw), at.loop).result()
        return Saved(None)

    @property
    def saved(self) -> Any:
        """What an earlier attempt saved last, as plain JSON values, or None."""
        raw = _attempting().saved_raw
        return None if raw is None else codec.decode_any(raw)

    def load(self, type: type[T]) -> T | None:
        """What an earlier attempt saved last, as a value of this type, or None. If other code saved it and this type
        cannot read it whole, this raises `Unreadable`. The run is held if that exception leaves the step."""
        at = _attempting()
        if at.saved_raw is None:
            return None
        try:
            value: T = codec.Payload(type, "here.load()").decode_whole(at.saved_raw, typed=False)
        except InvalidInput as wrong:
            key = at.key.partition("::")[2]
            raise unreadable(
                key, "checkpoint", f"the checkpoint of step {key!r}", at.saved_raw, wrong
            ) from None
        return value

    def __repr__(self) -> str:
        at = here_var.get()
        return "<here>" if at is None else f"<here {at.step} {at.key} attempt {at.attempt}>"


here = Here()


@contextmanager
def called_in_step(step: str, label: str) -> Iterator[None]:
    """While a step calls another one, `here` is about the inner one."""
    outer = here_var.get()
    if outer is None or not outer.run_id:
        yield
        return
    token = here_var.set(InnerAttempt(outer, step, label))
    try:
        yield
    finally:
        here_var.reset(token)


def is_in_step() -> bool:
    """True if this is the code of a step that an agent executes."""
    at = here_var.get()
    return at is not None and at.run_id != ""


async def _saving(at: CurrentAttempt, raw: bytes) -> None:
    await at.on_save(raw)


def _attempting() -> CurrentAttempt:
    at = here_var.get()
    if at is not None:
        return at
    if running() is not None:
        raise NotInStep(
            "`here` is for steps: in workflow code use now(), random(), uuid4(), set_progress() and publish()"
        )
    key = _world.new_id()
    at = CurrentAttempt(
        run_id="", key=key, attempt=1, step="", on_beat=lambda progress, note: None, on_save=_keep,
        callback=f"https://callback.invalid/v1/callbacks/{key}",
    )  # fmt: skip
    here_var.set(at)
    return at


async def _keep(raw: bytes) -> None:
    """Write nothing: outside of a run a checkpoint is only in memory."""
