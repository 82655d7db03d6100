"""Steps in a process of their own (`isolate=True`): they can be killed, and they can die without taking the agent along.

The child is a fresh interpreter (never a fork: connections must not be shared). The request goes in by its standard
input, which stays open: when it closes, the agent is gone and the child leaves. Messages come back as JSON lines by a
pipe of their own, so that what the step prints is just printed. On timeout or cancellation the child's process group
gets SIGTERM, and SIGKILL a moment later.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from holdfast import codec
from holdfast.agent.outcome import Raised
from holdfast.errors import DefinitionError, StepLost
from holdfast.interpreters import module_path, python
from holdfast.workflow.here import Attempting
from holdfast.workflow.step import Step

KILL_AFTER_S = 2.0
"""Between SIGTERM and SIGKILL: enough to close a file, too short to finish the work."""
LINE_MIN_BYTES = 1024 * 1024
"""A line from the child may be so much longer than two payloads, for an error with all that is recorded of it."""


class ChildDied(Exception):
    """The child left without an answer: `place` is how (`SIGSEGV`, `exit 3`), `error` what is recorded of it."""

    def __init__(self, code: int, step: str) -> None:
        self.place = signal.Signals(-code).name if code < 0 else f"exit {code}"
        how = f"was killed by {self.place}" if code < 0 else f"exited with {code}"
        self.error = StepLost(f"the step's process {how} before it answered", step=step)
        super().__init__(str(self.error))


class AttemptRequest(msgspec.Struct):
    """What the child needs to know of one attempt."""

    path: list[str]
    module: str
    file: str
    step: str
    input: str
    run_id: str
    key: str
    attempt: int
    saved: str | None
    undoes: str | None
    limit: int
    """Bytes of a result or a checkpoint."""


class Message(msgspec.Struct, omit_defaults=True):
    """What the child says: a beat, a checkpoint, or how it ended."""

    beat: tuple[float | None, str] | None = None
    save: str | None = None
    output: str | None = None
    error: str | None = None
    """As it is recorded, with whether the step may have had its effect."""


async def execute(step: Step[Any, Any], arguments: Any, here: Attempting, limit: int) -> bytes | Raised:
    """Run one attempt in a child; its encoded result, or what left its code. Cancelling kills the child."""
    _check_main(step)
    request = AttemptRequest(
        path=module_path(),
        module=step.place.module,
        file=step.place.file or "",
        step=step.name,
        input=step.shape.encode(arguments, limit=sys.maxsize).decode(),
        run_id=here.run_id,
        key=here.key,
        attempt=here.attempt,
        saved=None if here.saved_raw is None else here.saved_raw.decode(),
        undoes=here.undoes,
        limit=limit,
    )
    inner, outer = os.pipe()
    try:
        child = await asyncio.create_subprocess_exec(
            *python("-m", "holdfast.agent.child", str(outer)),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=[outer],
            start_new_session=True,
        )
    except BaseException:
        os.close(inner)
        raise
    finally:
        os.close(outer)
    try:
        said, pipe = await _reader(inner, 2 * limit + LINE_MIN_BYTES)
        try:
            assert child.stdin is not None
            child.stdin.write(msgspec.json.encode(request) + b"\n")
            return await _listen(said, child, here)
        finally:
            pipe.close()
    finally:
        await asyncio.shield(_end(child))


async def _reader(descriptor: int, limit: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader(limit=limit)
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), os.fdopen(descriptor, "rb", 0)
    )
    return reader, pipe


async def _listen(
    said: asyncio.StreamReader, child: asyncio.subprocess.Process, here: Attempting
) -> bytes | Raised:
    while line := await said.readline():
        message = msgspec.json.decode(line, type=Message)
        if message.beat is not None:
            here.on_beat(*message.beat)
        elif message.save is not None:
            await here.on_save(message.save.encode())
            assert child.stdin is not None
            child.stdin.write(b"saved\n")
        elif message.output is not None:
            return message.output.encode()
        elif message.error is not None:
            error = codec.decode_error(message.error)
            return Raised(error, codec.is_unsure(0, message.error), message.error)
    raise ChildDied(await child.wait(), here.step)


def _check_main(step: Step[Any, Any]) -> None:
    """The child loads the file that declares the step. If that is the script which runs here, and it runs without a guard, the
    child would run it once more, with all it does, and start children of its own."""
    if step.fn.__module__ != "__main__":
        return
    file = step.fn.__code__.co_filename
    if not Path(file).is_file():
        raise DefinitionError(
            f"{step.name}: isolate=True loads the step's file in another process, and {file} is none: "
            "put the step into a module and import it"
        )
    line = _line_of_main(file)
    if line is not None:
        raise DefinitionError(
            f"{step.name}: isolate=True loads {Path(file).name} in another process, which would run its line {line} again: "
            'put what the script does under `if __name__ == "__main__":`'
        )


def _line_of_main(file: str) -> int | None:
    """The line of the script that runs now, if it runs whenever the file is loaded."""
    frame: FrameType | None = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and not (frame.f_code.co_name == "<module>" and frame.f_code.co_filename == file):
        frame = frame.f_back
    if frame is None:
        return None
    for node in ast.parse(Path(file).read_bytes()).body:
        if node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno):
            return None if _is_guard(node) else frame.f_lineno
    return None


def _is_guard(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":`, however it is written."""
    names = ast.walk(node.test) if isinstance(node, ast.If) else ()
    return any(isinstance(name, ast.Name) and name.id == "__name__" for name in names)


async def _end(child: asyncio.subprocess.Process) -> None:
    """Nothing of the child is left behind, its own children included."""
    if child.stdin is not None:
        child.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    try:
        await asyncio.wait_for(child.wait(), KILL_AFTER_S)
    except TimeoutError:
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    await child.wait()
