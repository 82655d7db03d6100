"""Time, chance, identity and what a run says about itself: functions that work anywhere in workflow code.

Inside a run `now`, `random` and `uuid4` follow from its history; outside they are the real ones.
"""

from __future__ import annotations

import random as chance
from datetime import UTC, datetime
from typing import Any, NoReturn
from uuid import UUID

from holdfast import codec
from holdfast.decider.loop import Host, running
from holdfast.environment import Environment
from holdfast.errors import ContinueAsNew, WorkflowError

_world = Environment()


def now() -> datetime:
    """Return the time, in UTC. In a workflow it is when the last outcome that it waited for came."""
    loop = running()
    return datetime.fromtimestamp(_world.now() if loop is None else loop.now, UTC)


def random() -> chance.Random:
    """Return a source of random numbers. In a workflow they are the same at every replay."""
    loop = running()
    return _world.random if loop is None else loop.host.random()


def uuid4() -> UUID:
    """Return a random UUID. In a workflow it is the same at every replay."""
    return UUID(int=random().getrandbits(128), version=4)


def set_progress(fraction: float, note: str = "") -> None:
    """Say how far the run is, from 0 to 1, and in a few words."""
    host = _host("set_progress()")
    if not 0 <= fraction <= 1:
        raise WorkflowError(f"set_progress({fraction!r}): expected a number from 0 to 1")
    host.set_progress(float(fraction), codec.progress_note(note))


def publish(key: str, value: Any) -> None:
    """Let others read a value of the run while it goes on: a JSON value, or a record such as a dataclass, which
    `run.published(key, Type)` reads."""
    host = _host("publish()")
    codec.stored_text(key, "publish(): the key")
    encode = codec.encode_open if codec.is_record(type(value)) else codec.encode_any
    host.publish(key, encode(value, f"publish({key!r})", host.payload_max))


def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End here and begin again with these arguments and an empty history: for workflows that never end."""
    if not _host("continue_as_new()").is_main():
        raise WorkflowError(
            "continue_as_new() works in the workflow function itself, not in a task it started"
        )
    raise ContinueAsNew(args, kwargs)


def _host(what: str) -> Host:
    loop = running()
    if loop is None:
        raise WorkflowError(f"{what} works in a workflow only")
    return loop.host
