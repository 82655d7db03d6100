"""Agents as processes on this host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from holdfast.pool.badge import PIPE, POOL
from holdfast.pool.fleet import FleetAgent, StopMode

CHUNK_BYTES = 65_536
LINE_MAX_BYTES = 1_000_000
"""A line that an agent prints is passed on in parts if it is longer than this."""
WRONG = 2
"""The exit code of a command whose arguments or environment are wrong."""
SIGNALS = {StopMode.DRAIN: signal.SIGTERM, StopMode.HURRY: signal.SIGTERM, StopMode.KILL: signal.SIGKILL}


class LocalFleet:
    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        on_line: Callable[[str, bool, str], None],
        on_end: Callable[[], None],
    ) -> None:
        """`on_line(member, is_error, line)` is called for each line that an agent prints; `is_error` is true for
        standard error. `on_end()` is called when an agent has ended."""
        self._command, self._environment = list(command), dict(environment)
        self._on_line, self._on_end = on_line, on_end
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._pipe, self._kept = os.pipe()

    def pid(self, member: str) -> int | None:
        process = self._processes.get(member)
        return None if process is None else process.pid

    async def start(self, member: str, badge: str) -> None:
        environment = {
            **self._environment,
            POOL: badge,
            PIPE: str(self._pipe),
            "PYTHONUNBUFFERED": "1",  # people see at once what a step prints
        }
        # In a session of its own the agent does not get a Ctrl-C at the pool's terminal. The pool handles it.
        process = await asyncio.create_subprocess_exec(
            *self._command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=(self._pipe,),
        )
        self._processes[member] = process
        self._following[member] = asyncio.create_task(
            self._follow(member, process), name=f"holdfast-agent-{member}"
        )

    async def _follow(self, member: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        outputs = asyncio.gather(
            self._pass_on(member, process.stdout, errors=False),
            self._pass_on(member, process.stderr, errors=True),
        )
        await process.wait()
        # Pass on its last lines before saying that it ended. A process that it started may keep its output open for
        # ever, so this does not wait long.
        await asyncio.wait([outputs], timeout=1.0)
        outputs.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await outputs
        self._on_end()

    async def _pass_on(self, member: str, stream: asyncio.StreamReader, *, errors: bool) -> None:
        unread = b""
        while read := await stream.read(CHUNK_BYTES):
            *lines, unread = (unread + read).split(b"\n")
            if len(unread) > LINE_MAX_BYTES:
                lines, unread = [*lines, unread], b""
            for line in lines:
                self._on_line(member, errors, line.decode("utf-8", "replace"))
        if unread:
            self._on_line(member, errors, unread.decode("utf-8", "replace"))

    async def stop(self, member: str, mode: StopMode) -> None:
        process = self._processes.get(member)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(SIGNALS[mode])

    async def living(self) -> Sequence[FleetAgent]:
        agents = []
        for member, process in list(self._processes.items()):
            if process.returncode is not None and self._following[member].done():
                del self._processes[member], self._following[member]
                code = process.returncode
                agents.append(FleetAgent(member, _words(code), orderly=code == 0, hopeless=code == WRONG))
            else:
                agents.append(FleetAgent(member))
        return agents

    async def close(self) -> None:
        """Close the pipe: agents that still live notice that the pool is gone, and drain."""
        for following in self._following.values():
            following.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)
        for pipe in (self._kept, self._pipe):
            os.close(pipe)


def _words(code: int) -> str:
    """Say how a process with this exit code ended: `with exit code 1`, `by SIGKILL`."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
