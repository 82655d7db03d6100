"""Executes steps in a process of their own (`isolate=True`). Such a step can be killed, and can die without its agent.

The child is a fresh interpreter. It is never a fork, because two processes must not share a connection. The agent sends
the request to the child's standard input, which stays open. When it closes, the agent is gone, and the child exits. The
child answers with JSON lines on a pipe of their own, so a step can print as it likes. After a timeout or a cancellation
the agent sends SIGTERM to the child's process group, and SIGKILL a moment later.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import logging
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
from holdfast.agent.printed import PrintedStreams
from holdfast.errors import DefinitionError, StepLost
from holdfast.interpreters import module_path, python
from holdfast.model import LogLine
from holdfast.workflow import log_records
from holdfast.workflow.here import CurrentAttempt
from holdfast.workflow.step import Step

KILL_AFTER_S = 2.0
"""How long the agent waits between SIGTERM and SIGKILL: long enough to close a file, too short to finish the work."""
LINE_MIN_BYTES = 1024 * 1024
"""How much longer than two payloads a line from the child may be. An error needs this room for its traceback and the
like."""


class ChildDied(Exception):
    """The child process ended without an answer. `place` says how (`SIGSEGV`, `exit 3`). `error` is recorded."""

    def __init__(self, code: int, step: str) -> None:
        self.place = signal.Signals(-code).name if code < 0 else f"exit {code}"
        how = f"was killed by {self.place}" if code < 0 else f"exited with {code}"
        self.error = StepLost(f"the step's process {how} before it answered", step=step)
        super().__init__(str(self.error))


class AttemptRequest(msgspec.Struct):
    """What the child needs to know about one attempt."""

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
    callback: str | None
    limit: int
    """How many bytes a result or a checkpoint may have."""
    log_level: int | None = None
    """What the child logs from this level on is kept. None if nothing is kept."""
    root_level: int = logging.WARNING
    """The level of the agent's root logger, which the child begins with."""
    trace: str | None = None
    """The span of the attempt. The spans of the child's code are under it."""
    streams: tuple[int, int] | None = None
    """Descriptors of the agent's own standard output and standard error, if those of the child are pipes."""


class Message(msgspec.Struct, omit_defaults=True):
    """A message from the child: progress, a checkpoint, a log line, or how the attempt ended."""

    beat: tuple[float | None, str] | None = None
    save: str | None = None
    log: LogLine | None = None
    unhandled: bool = False
    """The child has no handler of `logging`, so the agent's handlers get the line."""
    output: str | None = None
    error: str | None = None
    """The error as it is recorded. It says whether the step may have had its effect."""


async def execute(step: Step[Any, Any], arguments: Any, here: CurrentAttempt, limit: int) -> bytes | Raised:
    """Execute one attempt in a child process. Return the encoded result, or the error that the code raised. Cancelling
    this kills the child."""
    _check_main(step)
    if here.keeper is None:
        return await _execute(step, arguments, here, limit, None)
    with PrintedStreams(here) as printed:
        return await _execute(step, arguments, here, limit, printed)


async def _execute(
    step: Step[Any, Any], arguments: Any, here: CurrentAttempt, limit: int, printed: PrintedStreams | None
) -> bytes | Raised:
    request = AttemptRequest(
        path=module_path(),
        module=step.place.module,
        file=step.place.file or "",
        step=step.bare_name,
        input=step.shape.encode(arguments, limit=sys.maxsize).decode(),
        run_id=here.run_id,
        key=here.key,
        attempt=here.attempt,
        trace=here.trace,
        saved=None if here.saved_raw is None else here.saved_raw.decode(),
        undoes=here.undoes,
        callback=here.callback,
        limit=limit,
    )
    options: dict[str, Any] = {}
    inherited: tuple[int, ...] = ()
    if printed is not None and here.keeper is not None:
        request.log_level, request.streams = here.keeper.level, printed.ours
        request.root_level = logging.getLogger().level
        options = {"stdout": printed.theirs[0], "stderr": printed.theirs[1]}
        inherited = printed.ours
    inner, outer = os.pipe()
    try:
        child = await asyncio.create_subprocess_exec(
            *python("-m", "holdfast.agent.child", str(outer)),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=[outer, *inherited],
            start_new_session=True,
            **options,
        )
    except BaseException:
        os.close(inner)
        raise
    finally:
        os.close(outer)
    try:
        if printed is not None:
            await printed.read()
        messages, pipe = await _reader(inner, 2 * limit + LINE_MIN_BYTES)
        try:
            assert child.stdin is not None
            child.stdin.write(msgspec.json.encode(request) + b"\n")
            return await _listen(messages, child, here)
        finally:
            pipe.close()
    finally:
        await asyncio.shield(_end(child, printed))


async def _reader(descriptor: int, limit: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader(limit=limit)
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), os.fdopen(descriptor, "rb", 0)
    )
    return reader, pipe


async def _listen(
    messages: asyncio.StreamReader, child: asyncio.subprocess.Process, here: CurrentAttempt
) -> bytes | Raised:
    """Act on the child's messages until one says how the attempt ended."""
    while line := await messages.readline():
        message = msgspec.json.decode(line, type=Message)
        if message.beat is not None:
            here.on_beat(*message.beat)
        elif message.save is not None:
            await here.on_save(message.save.encode())
            assert child.stdin is not None
            child.stdin.write(b"saved\n")
        elif message.log is not None:
            if here.keeper is not None:
                here.keeper.keep_line(here, message.log)
            if message.unhandled:
                log_records.handle(message.log, here)
        elif message.output is not None:
            return message.output.encode()
        elif message.error is not None:
            error = codec.decode_error(message.error)
            return Raised(error, codec.is_unsure(0, message.error), message.error)
    raise ChildDied(await child.wait(), here.step)


def _check_main(step: Step[Any, Any]) -> None:
    """Raise if the child would run this program once more. The child loads the file that declares the step. If this is
    the script that runs here, and the script has no `__main__` guard, the child would do everything that the script
    does, and start children of its own."""
    if step.fn.__module__ != "__main__":
        return
    file = step.fn.__code__.co_filename
    if not Path(file).is_file():
        raise DefinitionError(
            f"{step.bare_name}: isolate=True loads the step's file in another process, and {file} is not a file: "
            "put the step into a module and import it"
        )
    line = _line_of_main(file)
    if line is not None:
        raise DefinitionError(
            f"{step.bare_name}: isolate=True loads {Path(file).name} in another process, "
            f"which would run its line {line} again: "
            'put what the script does under `if __name__ == "__main__":`'
        )


def _line_of_main(file: str) -> int | None:
    """Return the line of the script that runs now, if this line runs whenever the file is loaded. Otherwise None."""
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
    """True if the statement is `if __name__ == "__main__":`, in any form."""
    names = ast.walk(node.test) if isinstance(node, ast.If) else ()
    return any(isinstance(name, ast.Name) and name.id == "__name__" for name in names)


async def _end(child: asyncio.subprocess.Process, printed: PrintedStreams | None) -> None:
    """End the child process and all processes of its group, and read what they have printed."""
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
    if printed is not None:
        await printed.drain()
