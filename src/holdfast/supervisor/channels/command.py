"""A channel that runs a program of the operator. The program gets the notice as JSON on its standard input, and exits
with 0 if it took it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping

from holdfast.errors import InvalidSettings
from holdfast.supervisor.channels.channel import Channel, Notice, NotSent

NEEDED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"})
"""The only variables of this process's environment that a program gets. The others may contain the store's password and
the secrets of other channels."""


class Command(Channel):
    type = "command"

    def __init__(self, name: str, *, argv: tuple[str, ...], env: Mapping[str, str], **more: object) -> None:
        super().__init__(name, secrets=tuple(env.values()), **more)  # type: ignore[arg-type]
        if not argv or not argv[0]:
            raise InvalidSettings(f"channel {name!r}: `argv` names no program")
        self._argv = argv
        self._env = {key: value for key, value in os.environ.items() if key in NEEDED} | dict(env)

    async def send(self, notice: Notice) -> None:
        try:
            child = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                env=self._env,
            )
        except OSError as error:
            raise NotSent(f"cannot start {self._argv[0]}: {error.strerror}") from None
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await child.communicate(notice.as_json() + b"\n")
            code = await child.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await asyncio.shield(child.wait())
        if code != 0:
            ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
            raise NotSent(f"{self._argv[0]} {ended}")
