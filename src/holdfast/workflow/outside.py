"""The open `Holdfast` of this process, by which functions that work in and out of a workflow reach the store."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

from holdfast.config import Config


class OpenHoldfast(Protocol):
    """What such a function uses of an open `Holdfast`."""

    config: Config

    async def send_signal(self, run_id: str, name: str, payload: bytes, key: str | None) -> None: ...
    async def output_of(self, run_id: str) -> bytes | None: ...
    async def call_update(
        self, run_id: str, name: str, payload: bytes, key: str | None, patience_s: float | None
    ) -> bytes: ...


refuse_opening: Callable[[], None] | None = None
"""What to call before a `Holdfast` is opened. It raises where none may be opened: in a process that loads an author's
file only to execute one of its steps."""
chosen: ContextVar[OpenHoldfast | None] = ContextVar("holdfast.opened", default=None)
"""The `Holdfast` that plain code names: `hf.wait(paid.send(…))`."""
_opened: WeakValueDictionary[int, OpenHoldfast] = WeakValueDictionary()
_numbers = count()


def enter(opened: OpenHoldfast) -> None:
    """Remember a `Holdfast` that was opened."""
    _opened[next(_numbers)] = opened


def leave(opened: OpenHoldfast) -> None:
    for number in [number for number, one in _opened.items() if one is opened]:
        del _opened[number]


def current() -> OpenHoldfast | None:
    """Return the `Holdfast` through which a signal is sent: the one that was named, or else the one opened last."""
    named = chosen.get()
    if named is not None or not _opened:
        return named
    return _opened[max(_opened)]
