"""The other side of `interpreters.py`: a process that imports the author's code and replays histories with it.

It has its own hash seed. On request it also replays the histories with its clock put forward, with chosen random
numbers, on another host, and with environment variables that are set or missing the other way round. Code that decides
by any of these decides otherwise then. The process answers the one that started it, and ends together with it.
"""

# ruff: noqa: TID251  clocks and dice are named here to be tampered with

from __future__ import annotations

import ctypes
import datetime as dt
import gc
import importlib
import importlib.util
import os
import platform
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from holdfast.testing.replays import History, Unloaded, differs
from holdfast.workflow import registry

DAY_S = 86_400.0
AHEAD_S = (397.1 * DAY_S + 431.5, 402.2 * DAY_S + 431.5, 400.5 * DAY_S + 431.5)
"""How far the clock is put forward. Each changes the year, date and minute. Whatever the time is now, one of them
changes a working day for a free day or the other way round, and one a morning for an afternoon."""
LOW, HIGH = 152_872, 119_191
"""Seeds with which the first numbers of `random.random()` are below 0.02, and above 0.98."""
SCATTER_MAX = 200
"""At most how many objects of each size are made and kept before a replay, so that later objects get other
addresses."""

serving = False
"""Whether this process is such an interpreter."""


class Module(msgspec.Struct, frozen=True):
    """A module that has the author's code: its name, and its file."""

    name: str
    file: str


class ReplayRequest(msgspec.Struct):
    """Asks for a replay of these histories with the code of these modules."""

    path: list[str]
    modules: list[Module]
    histories: list[History]
    badly: bool
    """Replay also with another clock, other random numbers and another environment."""


class Difference(msgspec.Struct):
    """Which of the histories was replayed otherwise, under which circumstances, and how."""

    history: int
    when: str
    how: str
    seeded: bool = False
    """True if nothing was changed for this replay, except that it ran in another interpreter."""


class ReplayReply(msgspec.Struct):
    differences: list[Difference] = []
    trouble: str = ""
    """Why nothing was replayed."""


def answer(request: ReplayRequest) -> ReplayReply:
    """Load the code, replay until something differs, and return the difference."""
    sys.path[:] = [*request.path, *(entry for entry in sys.path if entry not in request.path)]
    for module in request.modules:
        try:
            _load(module)
        except BaseException as error:  # noqa: BLE001  the answer reports it, even a SystemExit
            return ReplayReply(
                trouble=f"{module.file} cannot be imported there: {type(error).__name__}: {error}"
            )
    kept: list[object] = []
    for when, circumstances in _circumstances() if request.badly else _unchanged():
        kept += _scattered()
        with circumstances:
            for number, history in enumerate(request.histories):
                try:
                    how = differs(history, registry.workflows)
                except Unloaded as error:
                    return ReplayReply(
                        trouble=f"importing {request.modules[0].file} does not define {error}: "
                        "it is defined by other code, or inside a function"
                    )
                if how:
                    return ReplayReply([Difference(number, when, how, seeded=not when)])
    return ReplayReply()


def _load(module: Module) -> None:
    """Import a module by its name. If the name leads to another file here, import the module's own file under that
    name."""
    if module.name in sys.modules:
        return
    try:
        spec = importlib.util.find_spec(module.name)
    except ModuleNotFoundError:
        spec = None
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(module.file):
        importlib.import_module(module.name)
        return
    spec = importlib.util.spec_from_file_location(module.name, module.file)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    made = importlib.util.module_from_spec(spec)
    sys.modules[module.name] = made
    spec.loader.exec_module(made)


def _scattered() -> list[object]:
    """Return objects that fill random parts of memory, so that later objects get other addresses."""
    system_random = random.SystemRandom()
    return [bytes(size) for size in range(0, 480, 16) for _ in range(system_random.randrange(SCATTER_MAX))]


# --- circumstances ------------------------------------------------------------------------------------------------------


def _unchanged() -> Iterator[tuple[str, Any]]:
    yield "", nullcontext()


def _circumstances() -> Iterator[tuple[str, Any]]:
    yield "", nullcontext()
    yield "replayed for the second time in one process", nullcontext()
    for ahead_s in AHEAD_S:
        yield "replayed while the clock is ahead", _clock_ahead(ahead_s)
    yield "replayed with low random numbers", _random_seed(LOW)
    yield "replayed with high random numbers", _random_seed(HIGH)
    yield "replayed on another host", _another_host()
    yield "replayed with other environment variables", _inverted_environment()


@contextmanager
def _clock_ahead(ahead_s: float) -> Iterator[None]:
    """Put all clocks forward, also for modules that imported a clock's function by its name before."""
    now, now_ns = time.time, time.time_ns
    local, utc, words, text = time.localtime, time.gmtime, time.strftime, time.ctime

    def ahead(of: Callable[[], Any], by: float) -> Callable[[], Any]:
        return lambda: of() + by

    def at(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda at=None: of(now() + ahead_s if at is None else at)

    changed: list[tuple[Any, Any]] = [
        (now, ahead(now, ahead_s)),
        (now_ns, ahead(now_ns, int(ahead_s * 1e9))),
        (time.monotonic, ahead(time.monotonic, ahead_s)),
        (time.monotonic_ns, ahead(time.monotonic_ns, int(ahead_s * 1e9))),
        (time.perf_counter, ahead(time.perf_counter, ahead_s)),
        (local, at(local)),
        (utc, at(utc)),
        (text, at(text)),
        (words, lambda form, at=None: words(form, local(now() + ahead_s) if at is None else at)),
    ]
    shift = dt.timedelta(seconds=ahead_s)
    real_now, real_utcnow = dt.datetime.now, dt.datetime.utcnow

    def its_now(cls: type[dt.datetime], tz: dt.tzinfo | None = None) -> dt.datetime:
        return cls.fromtimestamp((real_now(dt.UTC) + shift).timestamp(), tz)

    def its_utcnow(cls: type[dt.datetime]) -> dt.datetime:
        there = real_utcnow() + shift
        return cls(*there.timetuple()[:6], there.microsecond)

    with (
        _replaced(changed),
        _attribute(dt.datetime, "now", classmethod(its_now)),
        _attribute(dt.datetime, "utcnow", classmethod(its_utcnow)),
    ):
        yield


@contextmanager
def _random_seed(seed: int) -> Iterator[None]:
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def _another_host() -> Iterator[None]:
    name = "another-host"
    with _replaced(
        [(socket.gethostname, lambda: name), (platform.node, lambda: name), (os.getpid, lambda: 4_000_001)]
    ):
        yield


class _InvertedEnvironment(type(os.environ)):  # type: ignore[misc]  # the class has no public name
    """Environment variables the other way round: those that are set are missing, and the others are "1"."""

    def __getitem__(self, key: str) -> str:
        try:
            super().__getitem__(key)
        except KeyError:
            return "1"
        raise KeyError(key)


@contextmanager
def _inverted_environment() -> Iterator[None]:
    kind = type(os.environ)
    os.environ.__class__ = _InvertedEnvironment
    try:
        yield
    finally:
        os.environ.__class__ = kind


@contextmanager
def _replaced(changed: list[tuple[Any, Any]]) -> Iterator[None]:
    """Replace each of these objects by another one in all modules that have a name for it, except Holdfast's and
    asyncio's."""
    others = {id(old): new for old, new in changed}
    found = [
        (module, name, value)
        for module in list(sys.modules.values())
        if type(module) is ModuleType and not module.__name__.startswith(("holdfast.", "asyncio"))
        for name, value in list(vars(module).items())
        if id(value) in others
    ]
    for module, name, value in found:
        setattr(module, name, others[id(value)])
    try:
        yield
    finally:
        for module, name, value in found:
            setattr(module, name, value)


@contextmanager
def _attribute(kind: type, name: str, value: Any) -> Iterator[None]:
    """Change an attribute of a type that is written in C. Where Python gives no access to the type's members, do
    nothing."""
    members = next(iter(gc.get_referents(kind.__dict__)), None)
    if not isinstance(members, dict):
        yield
        return
    before = members[name]
    members[name] = value
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    try:
        yield
    finally:
        members[name] = before
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


# --- requests and replies ---------------------------------------------------------------------------------------------


def serve(descriptor: int) -> None:
    """Answer the requests that come by standard input until it closes, which means that the asking process is gone."""
    global serving  # noqa: PLW0603  there is one process
    serving = True
    requests = sys.stdin.buffer
    with os.fdopen(descriptor, "wb") as out:
        while size := requests.read(4):
            raw = requests.read(int.from_bytes(size, "big"))
            out.write(framed(answer(msgspec.msgpack.decode(raw, type=ReplayRequest))))
            out.flush()


def framed(message: ReplayRequest | ReplayReply) -> bytes:
    raw = msgspec.msgpack.encode(message)
    return len(raw).to_bytes(4, "big") + raw
