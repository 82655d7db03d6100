"""Keeps what an isolated step prints, line by line. Its standard output and standard error are pipes, which are read
here, and all that comes is also printed where this process prints."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from types import TracebackType
from typing import Self

from holdfast.codec.secret import redacted
from holdfast.model import LogLine
from holdfast.workflow.here import CurrentAttempt

LINE_MAX_BYTES = 64 * 1024
"""The rest of a line that is longer is not kept."""
DRAIN_S = 1.0
"""How long to wait for the end of the pipes after the child has ended. A process that the step started, and that has
left its process group, may keep them open for ever."""


class PrintedLines(asyncio.Protocol):
    """One of the two streams."""

    def __init__(self, stream: str, own: int, here: CurrentAttempt) -> None:
        self._stream, self._own, self._here = stream, own, here
        self._rest = bytearray()
        self.ended = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(self._own, left) :]
        except OSError:
            pass  # nobody reads it here, but it is kept
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._add(line)
            self._keep()
        self._add(rest)

    def _add(self, data: bytes) -> None:
        self._rest += data[: LINE_MAX_BYTES - len(self._rest)]

    def _keep(self) -> None:
        line = self._rest.decode("utf-8", "backslashreplace").rstrip("\r")
        self._rest.clear()
        if self._here.keeper is not None:
            self._here.keeper.keep_line(self._here, LogLine(0.0, "", "", redacted(line), None, self._stream))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._rest:
            self._keep()
        if not self.ended.done():
            self.ended.set_result(None)


class PrintedStreams:
    """The pipes of one child. `theirs` are the ends that the child gets as its standard output and standard error.
    `ours` are descriptors of this process's own, for what the child's handlers of `logging` write: the records are kept
    already, and must not be kept a second time as printed lines."""

    def __init__(self, here: CurrentAttempt) -> None:
        self._here = here
        self._pipes = (os.pipe(), os.pipe())
        self.theirs = (self._pipes[0][1], self._pipes[1][1])
        self.ours = (_copy(1), _copy(2))
        self._open = {*self._pipes[0], *self._pipes[1], *self.ours}
        self._reading: list[tuple[asyncio.ReadTransport, PrintedLines]] = []

    async def read(self) -> None:
        """Begin to read. The child has its ends."""
        self._close(*self.theirs)
        loop = asyncio.get_running_loop()
        for stream, (inner, _), own in zip(("stdout", "stderr"), self._pipes, self.ours, strict=True):
            lines = PrintedLines(stream, own, self._here)
            self._open.discard(inner)
            transport, _ = await loop.connect_read_pipe(partial(_same, lines), os.fdopen(inner, "rb", 0))
            self._reading.append((transport, lines))

    async def drain(self) -> None:
        """Read what is left. The child has ended."""
        if self._reading:
            await asyncio.wait([lines.ended for _, lines in self._reading], timeout=DRAIN_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for transport, _ in self._reading:
            transport.close()
        self._close(*self._open)

    def _close(self, *descriptors: int) -> None:
        for one in descriptors:
            self._open.discard(one)
            os.close(one)


def _same(lines: PrintedLines) -> PrintedLines:
    return lines


def _copy(descriptor: int) -> int:
    try:
        return os.dup(descriptor)
    except OSError:  # this process has closed it
        return os.open(os.devnull, os.O_WRONLY)
