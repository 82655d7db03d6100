"""A program of the operator's: the notice as JSON on its standard input. Exit code 0 means taken."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping

from holdfast.errors import InvalidSettings
from holdfast.supervisor.channels.channel import Channel, Notice, NotSent

NEEDED = frozenset({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"})
"""What a program gets of this process's environment, which holds the store's password and the other channels' secrets."""


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
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
            raise NotSent(f"{self._argv[0]} {how}")
