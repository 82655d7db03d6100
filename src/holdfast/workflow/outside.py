"""The way from plain code to the store, for the few words that work in and out of a workflow. Opened by `Holdfast`."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from typing import Protocol
from weakref import WeakValueDictionary

from holdfast.config import Config


class Door(Protocol):
    config: Config

    async def send_signal(self, run_id: str, name: str, payload: bytes, key: str | None) -> None: ...


bar: Callable[[], None] | None = None
"""Raises where no `Holdfast` may be opened: in a process that loads an author's file only to execute one of its steps."""
chosen: ContextVar[Door | None] = ContextVar("holdfast.door", default=None)
"""The one that plain code names: `hf.wait(paid.send(…))`."""
_opened: WeakValueDictionary[int, Door] = WeakValueDictionary()
_numbers = count()


def enter(door: Door) -> None:
    """This `Holdfast` is open."""
    _opened[next(_numbers)] = door


def leave(door: Door) -> None:
    for number in [number for number, one in _opened.items() if one is door]:
        del _opened[number]


def current() -> Door | None:
    """Through which a signal is sent: the one that was named, else the one of this process that was opened last."""
    named = chosen.get()
    if named is not None or not _opened:
        return named
    return _opened[max(_opened)]
