"""Steps that end in every way code can end: by every class of exception, and with results that cannot be stored."""

from __future__ import annotations

import asyncio
import concurrent.futures
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from holdfast import Holdfast, Retry, here, saga, step, workflow
from holdfast.config import Config
from tests.roles.outside import note

ONCE = Retry(attempts=1)


def _exit() -> str:
    sys.exit("asked for words")


def _wordless() -> str:
    raise RuntimeError("no words")


class Shy(Exception):
    def __str__(self) -> str:
        return _wordless()

    __repr__ = __str__


class Exiting(Exception):
    def __str__(self) -> str:
        return _exit()


class Bare(Exception):
    @property
    def args(self) -> Any:  # type: ignore[override]  # on purpose
        raise RuntimeError("no arguments")


class Hollow(Exception):
    @property
    def __dict__(self) -> Any:  # type: ignore[override]  # on purpose
        raise RuntimeError("no attributes")


class Mute(Exception):
    __notes__ = 7  # type: ignore[assignment]  # on purpose


class Rootless(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]  # on purpose
        raise RuntimeError("no cause")

    @property
    def __traceback__(self) -> Any:  # type: ignore[override]  # on purpose
        raise RuntimeError("no traceback")


class Liar(Exception):
    @property  # type: ignore[misc]  # on purpose
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class Picky(Exception):
    def __new__(cls, *args: Any) -> Any:
        if len(args) != 2:
            raise TypeError("two arguments")
        return super().__new__(cls, *args)

    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError("nothing is set")

    def add_note(self, note: str) -> None:
        raise TypeError("nothing is noted")


class Own(BaseException):
    pass


def circle() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def wide() -> Exception:
    return ExceptionGroup(
        "many", [ExceptionGroup(f"{i}", [ValueError(f"{i}.{j}") for j in range(9)]) for i in range(99)]
    )


RAISED: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("plain"),
    "StopIteration": lambda: StopIteration("done"),
    "StopAsyncIteration": lambda: StopAsyncIteration("done"),
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "CancelledError": asyncio.CancelledError,
    "concurrent.CancelledError": concurrent.futures.CancelledError,
    "TimeoutError": lambda: TimeoutError("theirs"),
    "InvalidStateError": asyncio.InvalidStateError,
    "Own": lambda: Own("own"),
    "ExceptionGroup": lambda: ExceptionGroup("two", [ValueError("a"), KeyError("b")]),
    "BaseExceptionGroup": lambda: BaseExceptionGroup("two", [SystemExit(1), ValueError("a")]),
    "wide": wide,
    "circle": circle,
    "Shy": Shy,
    "Exiting": Exiting,
    "Bare": lambda: Bare("x"),
    "Hollow": Hollow,
    "Mute": Mute,
    "Rootless": Rootless,
    "Liar": Liar,
    "Picky": lambda: Picky(1, 2),
    "NUL": lambda: ValueError("a\0b \ud800 c"),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "MemoryError": MemoryError,
    "RecursionError": lambda: RecursionError("deep"),
}
INTERRUPTS = {
    "GeneratorExit", "KeyboardInterrupt", "SystemExit", "CancelledError", "Own", "BaseExceptionGroup",
}  # fmt: skip
"""After these it is unknown how far the step came."""


def leave(how: str) -> NoReturn:
    error = RAISED[how]()
    raise error


@step(retry=ONCE)
async def leaves_async(folder: str, how: str) -> None:
    note(folder, "acted")
    leave(how)


@step(retry=ONCE)
def leaves_thread(folder: str, how: str) -> None:
    note(folder, "acted")
    leave(how)


@step(retry=ONCE, isolate=True)
def leaves_isolated(folder: str, how: str) -> None:
    note(folder, "acted")
    leave(how)


@leaves_async.undo
def unleave_async(done: None, folder: str, how: str) -> None:
    note(folder, "undone")


@leaves_thread.undo
def unleave_thread(done: None, folder: str, how: str) -> None:
    note(folder, "undone")


@leaves_isolated.undo
def unleave_isolated(done: None, folder: str, how: str) -> None:
    note(folder, "undone")


LEAVES = {"async": leaves_async, "thread": leaves_thread, "isolated": leaves_isolated}


@workflow
async def leaving(kind: str, folder: str, how: str) -> None:
    await LEAVES[kind](folder, how)


@workflow
async def caught(kind: str, folder: str, how: str) -> str:
    try:
        await LEAVES[kind](folder, how)
    except Exception as error:  # noqa: BLE001  the test looks at the error
        return type(error).__name__
    return "?"


@workflow
async def raising(how: str) -> None:
    leave(how)


@workflow
async def raising_in_a_task(how: str) -> None:
    async def deep() -> None:
        leave(how)

    await asyncio.create_task(deep())


@dataclass
class Restless:
    """Gives another value each time it is read."""

    number: int

    def __post_init__(self) -> None:
        self.number += 1


class Bomb:
    def __post_init__(self) -> None:
        raise AssertionError


@dataclass
class Fuse:
    lit: bool = False

    def __post_init__(self) -> None:
        if self.lit:
            raise SystemExit("bang")


def _lit() -> Fuse:
    fuse = Fuse()
    fuse.lit = True
    return fuse


def _circle() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["a"] = made
    return made


RETURNED: dict[str, Callable[[], Any]] = {
    "wrong type": lambda: "text",
    "NaN": lambda: {"a": float("nan")},
    "too large": lambda: {"a": "x" * 5000},
    "no JSON": object,
    "surrogate": lambda: {"a": "\ud800"},
    "contains itself": _circle,
    "tuple under Any": lambda: {"a": (1, 2)},
}
ODD: dict[str, Callable[[], Any]] = {"restless": lambda: Restless(1), "lit": _lit}


@step(retry=3)
async def gives_async(folder: str, what: str) -> dict[str, Any]:
    note(folder, f"acted {here.key}")
    return RETURNED[what]()  # type: ignore[no-any-return]


@step(retry=3)
def gives_thread(folder: str, what: str) -> dict[str, Any]:
    note(folder, f"acted {here.key}")
    return RETURNED[what]()  # type: ignore[no-any-return]


@step(retry=3, isolate=True)
def gives_isolated(folder: str, what: str) -> dict[str, Any]:
    note(folder, f"acted {here.key}")
    return RETURNED[what]()  # type: ignore[no-any-return]


@step(retry=3)
async def gives_odd_async(folder: str, what: str) -> Restless | None:
    note(folder, f"acted {here.key}")
    return ODD[what]()  # type: ignore[no-any-return]


@step(retry=3)
def gives_fuse_thread(folder: str, what: str) -> Fuse:
    note(folder, f"acted {here.key}")
    return ODD[what]()  # type: ignore[no-any-return]


def _undo(done: Any, folder: str) -> None:
    note(folder, f"undone {here.undoes} with {done}")


@gives_async.undo
def ungive_async(done: dict[str, Any] | None, folder: str, what: str) -> None:
    _undo(done, folder)


@gives_thread.undo
def ungive_thread(done: dict[str, Any] | None, folder: str, what: str) -> None:
    _undo(done, folder)


@gives_isolated.undo
def ungive_isolated(done: dict[str, Any] | None, folder: str, what: str) -> None:
    _undo(done, folder)


@gives_odd_async.undo
def ungive_odd(done: Restless | None, folder: str, what: str) -> None:
    _undo(done, folder)


@gives_fuse_thread.undo
def ungive_fuse(done: Fuse | None, folder: str, what: str) -> None:
    _undo(done, folder)


GIVES = {"async": gives_async, "thread": gives_thread, "isolated": gives_isolated}


@workflow
async def giving(kind: str, folder: str, what: str) -> None:
    await GIVES[kind](folder, what)


@workflow
async def giving_odd(folder: str, what: str) -> None:
    if what == "lit":
        await gives_fuse_thread(folder, what)
    else:
        await gives_odd_async(folder, what)


@workflow
async def giving_in_a_saga(kind: str, folder: str, what: str) -> str:
    try:
        async with saga():
            await GIVES[kind](folder, what)
    except Exception as error:  # noqa: BLE001  the test looks at the error
        return type(error).__name__
    return "?"


@step(retry=ONCE, undo_failed=ConnectionError, isolate=True)
def splits_isolated(folder: str) -> None:
    note(folder, "acted")
    raise ExceptionGroup("both", [ConnectionError("no reply")])


@step(retry=ONCE, undo_failed=ConnectionError)
async def splits_async(folder: str) -> None:
    note(folder, "acted")
    raise ExceptionGroup(
        "both", [ValueError("x"), ExceptionGroup("inner", [ConnectionResetError("no reply")])]
    )


@splits_isolated.undo
def unsplit_isolated(done: None, folder: str) -> None:
    note(folder, "undone")


@splits_async.undo
def unsplit_async(done: None, folder: str) -> None:
    note(folder, "undone")


@workflow
async def splitting(isolated: bool, folder: str) -> None:
    await (splits_isolated if isolated else splits_async)(folder)


@step(retry=ONCE)
async def interrupted_then_refused(folder: str) -> None:
    note(folder, f"acted {here.attempt}")
    if here.attempt == 1:
        await asyncio.sleep(600)
    raise ValueError("refused")


@interrupted_then_refused.undo
def undo_interrupted(done: None, folder: str) -> None:
    note(folder, "undone")


@workflow
async def interrupting(folder: str) -> None:
    await interrupted_then_refused(folder)


@step
async def works(number: int) -> int:
    return number


@workflow
async def working(number: int) -> int:
    return await works(number)


@step(retry=ONCE)
async def exits_in_a_task(how: str) -> None:
    """Raise one of these in a task: an event loop stops at them, whichever task raises them."""

    async def deep() -> None:
        leave(how)

    async with asyncio.TaskGroup() as group:
        group.create_task(deep())


@workflow
async def exiting_in_a_task(how: str) -> None:
    await exits_in_a_task(how)


@step(retry=ONCE)
async def busy(folder: str) -> int:
    note(folder, f"busy {here.attempt}")
    while here.attempt == 1:
        time.sleep(0.01)  # noqa: ASYNC251  it blocks the event loop, so a signal arrives there
    return here.attempt


@workflow
async def being_busy(folder: str) -> int:
    return await busy(folder)


@workflow
async def busy_itself(folder: str) -> int:
    _block_the_loop(folder)
    return 2


def _block_the_loop(folder: str) -> None:
    """Block the event loop once, so that a signal arrives there."""
    if not Path(folder, "effects").exists():
        note(folder, "busy")
        while True:
            time.sleep(0.01)


async def main(url: str, flow: str, folder: str) -> None:
    async with Holdfast(url, config=Config(heart=False)) as hf:
        await (
            await hf.start({"step": being_busy, "workflow": busy_itself}[flow].using(id="busy"), folder)
        ).result()


if __name__ == "__main__":
    # One program has its own signal handler, the other one has Python's.
    if sys.argv[1] == "SIGTERM":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    loop = asyncio.new_event_loop()  # not asyncio.run, which has its own handler for SIGINT
    loop.run_until_complete(main(*sys.argv[2:]))
