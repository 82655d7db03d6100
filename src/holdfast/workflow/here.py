"""`here`: what a running step knows about itself, and how it reports its progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar
from typing import Any, TypeVar

from holdfast import codec
from holdfast.config import DEFAULT
from holdfast.decider.history import unreadable
from holdfast.decider.loop import running
from holdfast.environment import Environment
from holdfast.errors import InvalidInput, NotInStep, WorkflowError

T = TypeVar("T")
_world = Environment()


class Attempting:
    """One attempt of a step. The agent sets it in `here_var` around the step's code."""

    __slots__ = (
        "attempt", "cancelled", "key", "limit", "loop", "on_beat", "on_save", "run_id", "saved_raw", "step", "undoes"
    )  # fmt: skip

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


here_var: ContextVar[Attempting | None] = ContextVar("holdfast.here", default=None)


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
    def run_id(self) -> str:
        return _attempting().run_id

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


async def _saving(at: Attempting, raw: bytes) -> None:
    await at.on_save(raw)


def _attempting() -> Attempting:
    at = here_var.get()
    if at is not None:
        return at
    if running() is not None:
        raise NotInStep(
            "`here` is for steps: in workflow code use now(), random(), uuid4(), set_progress() and publish()"
        )
    at = Attempting(
        run_id="", key=_world.new_id(), attempt=1, step="", on_beat=lambda progress, note: None, on_save=_keep
    )
    here_var.set(at)
    return at


async def _keep(raw: bytes) -> None:
    """Write nothing: outside of a run a checkpoint is only in memory."""
