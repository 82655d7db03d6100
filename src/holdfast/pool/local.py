"""Agents as processes on this host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence

from holdfast.pool.badge import PIPE, POOL
from holdfast.pool.fleet import How, Seen

CHUNK_BYTES = 65_536
LINE_MAX_BYTES = 1_000_000
"""A longer line is passed on in parts."""
WRONG = 2
"""The exit code of a call or an environment that is wrong."""
SIGNALS = {How.DRAIN: signal.SIGTERM, How.HURRY: signal.SIGTERM, How.KILL: signal.SIGKILL}


class LocalFleet:
    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        heard: Callable[[str, bool, str], None],
        ended: Callable[[], None],
    ) -> None:
        """`heard` is told (member, whether on standard error, line) of what agents print; `ended` that one has ended."""
        self._command, self._environment = list(command), dict(environment)
        self._heard, self._ended = heard, ended
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._following: dict[str, asyncio.Task[None]] = {}
        self._pipe, self._kept = os.pipe()

    def pid(self, member: str) -> int | None:
        process = self._processes.get(member)
        return None if process is None else process.pid

    async def start(self, member: str, badge: str) -> None:
        given = {
            **self._environment,
            POOL: badge,
            PIPE: str(self._pipe),
            "PYTHONUNBUFFERED": "1",  # what a step prints is seen when it is printed
        }
        # A session of its own: Ctrl-C at the pool's terminal is the pool's affair.
        process = await asyncio.create_subprocess_exec(
            *self._command,
            env=given,
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
        # What it said last comes before the word that it ended; what it started may hold its output open for ever.
        await asyncio.wait([outputs], timeout=1.0)
        outputs.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await outputs
        self._ended()

    async def _pass_on(self, member: str, stream: asyncio.StreamReader, *, errors: bool) -> None:
        unread = b""
        while read := await stream.read(CHUNK_BYTES):
            *lines, unread = (unread + read).split(b"\n")
            if len(unread) > LINE_MAX_BYTES:
                lines, unread = [*lines, unread], b""
            for line in lines:
                self._heard(member, errors, line.decode("utf-8", "replace"))
        if unread:
            self._heard(member, errors, unread.decode("utf-8", "replace"))

    async def stop(self, member: str, how: How) -> None:
        process = self._processes.get(member)
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(SIGNALS[how])

    async def living(self) -> Sequence[Seen]:
        seen = []
        for member, process in list(self._processes.items()):
            if process.returncode is not None and self._following[member].done():
                del self._processes[member], self._following[member]
                code = process.returncode
                seen.append(Seen(member, _words(code), orderly=code == 0, hopeless=code == WRONG))
            else:
                seen.append(Seen(member))
        return seen

    async def close(self) -> None:
        """Whoever still lives finds itself alone, and drains."""
        for following in self._following.values():
            following.cancel()
        await asyncio.gather(*self._following.values(), return_exceptions=True)
        for pipe in (self._kept, self._pipe):
            os.close(pipe)


def _words(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
