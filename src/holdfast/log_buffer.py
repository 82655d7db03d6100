"""Keeps what one attempt of a step, or the code of one run, has logged, until it is written. The memory that this takes
is bounded, and so are the rows.

The lines are kept in parts. The first half of the bound is for the beginning: its parts are written once and stay. The
second half is a ring of a few parts for the end: each new part takes the place of the oldest one. Each part says which
line and which byte it begins with, so whoever reads the parts knows how much is left out between them.
"""

from __future__ import annotations

import logging
import threading
import traceback
from types import TracebackType
from typing import Any

import msgspec

from holdfast.codec.secret import redacted
from holdfast.model import LogLine, LogPart

ExcInfo = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None] | None | bool
)

RING = 4
"""How many parts the end of the lines is kept in. Each may have an eighth of the bound, and so may a single line."""
AROUND, NAME_MAX = 60, 100
"""Room in a line for its time and the like, and for its level and the name of its logger if it has to be shortened."""
PART_MIN = 512
"""A part has room for one line that says something, however small the bound is."""
EARLY = 1024
"""A part of the beginning that has at least this many bytes is not added to after it was written. Otherwise the same
lines would be written again and again."""


class LogLimits(msgspec.Struct, frozen=True):
    """What is kept: lines of this level and above, up to this many bytes."""

    level: int
    max_bytes: int

    @classmethod
    def of(cls, level: str, max_bytes: int) -> LogLimits | None:
        """Return the limits for these settings. None if nothing is kept."""
        return cls(level_number(level), max_bytes) if max_bytes > 0 else None


def level_number(name: object) -> int:
    """Return the number of a level of `logging`. It may have been added by `logging.addLevelName`."""
    number = logging.getLevelName(name.upper()) if isinstance(name, str) else None
    if not isinstance(number, int):
        raise ValueError(f"{name!r} is no level of logging: use DEBUG, INFO, WARNING, ERROR or CRITICAL")
    return number


class _Part:
    __slots__ = ("at", "encoded", "first_byte", "first_line", "size")

    def __init__(self, first_line: int, first_byte: int, at: float) -> None:
        self.first_line, self.first_byte, self.at = first_line, first_byte, at
        self.encoded: list[bytes] = []
        self.size = 0


class LogBuffer:
    """The lines of one attempt that are not written yet. Any thread may add lines."""

    def __init__(self, attempt: int, max_bytes: int, *, twin: bool = False) -> None:
        self._attempt, self._twin = attempt, twin
        self._part_max = max(max_bytes // (2 * RING), PART_MIN)
        self._head_max = max_bytes // 2
        self._lock = threading.Lock()
        self._lines = self._bytes = 0
        self._number = -1
        """The number of the part that lines are added to. In the ring, numbers come again."""
        self._ring_begins: int | None = None
        self._current: _Part | None = None
        self._unwritten: dict[int, _Part] = {}
        self.closed = False

    @property
    def has_unwritten(self) -> bool:
        return bool(self._unwritten)

    def add(self, line: LogLine) -> None:
        encoded = encode_line(line, self._part_max)
        size = len(encoded) + 1
        with self._lock:
            if self.closed:
                return
            part = self._current
            if part is None or part.size + size > self._part_max:
                part = self._current = _Part(self._lines, self._bytes, line.at)
                self._number = self._next_number()
            self._unwritten[self._number] = part
            part.encoded.append(encoded)
            part.size += size
            self._lines += 1
            self._bytes += size

    def _next_number(self) -> int:
        number = self._number + 1
        if self._ring_begins is None:
            if self._bytes + self._part_max <= self._head_max:
                return number
            self._ring_begins = number
        return number if number < self._ring_begins + RING else self._ring_begins

    def take(self) -> list[LogPart]:
        """Return the parts that have changed since the last call. They must be written in this order."""
        with self._lock:
            parts, self._unwritten = self._unwritten, {}
            if (
                self._current is not None
                and self._ring_begins is None
                and self._current.size >= min(EARLY, self._part_max // 2)
            ):
                self._current = None
            return [self._written(number, part) for number, part in parts.items()]

    def _written(self, number: int, part: _Part) -> LogPart:
        return LogPart(
            self._attempt,
            self._twin,
            number,
            part.first_line,
            part.first_byte,
            len(part.encoded),
            part.at,
            b"[" + b",".join(part.encoded) + b"]",
        )

    def close(self) -> list[LogPart]:
        """Return what `take` returns, and accept no more lines: the attempt is over."""
        parts = self.take()
        self.closed = True
        return parts


# --- lines ------------------------------------------------------------------------------------------------------------


def line_of(record: logging.LogRecord, at: float) -> LogLine:
    """Return what a log record says, as plain text. This never raises: a message that cannot be formatted is kept as it
    was given."""
    traceback = formatted_traceback(record.exc_info)
    return LogLine(
        at,
        str(record.levelname),
        str(record.name),
        redacted(_message(record)),
        None if traceback is None else redacted(traceback),
    )


def _message(record: logging.LogRecord) -> str:
    try:
        if type(record.msg) is dict and "event" in record.msg and not record.args:
            # structlog passes what it knows as a dict to the formatter of the handler.
            fields = {key: value for key, value in record.msg.items() if not str(key).startswith("_")}
            event = fields.pop("event")
            return " ".join([str(event), *(f"{key}={value!r}" for key, value in fields.items())])
        return record.getMessage()
    except Exception as error:  # noqa: BLE001  the arguments are the author's, and may do anything
        return f"{_shown(record.msg)} {_shown(record.args)} (cannot be formatted: {_shown(error)})"


def _shown(value: Any) -> str:
    try:
        return value if isinstance(value, str) else repr(value)
    except Exception:  # noqa: BLE001  the same
        return f"<{type(value).__name__}>"


def formatted_traceback(error: ExcInfo) -> str | None:
    if not isinstance(error, tuple) or error[1] is None:
        return None
    try:
        return "".join(traceback.format_exception(*error)).rstrip("\n")
    except Exception as failed:  # noqa: BLE001  an exception's own text may raise
        return f"{type(error[1]).__name__} (its traceback cannot be formatted: {_shown(failed)})"


def encode_line(line: LogLine, most: int) -> bytes:
    """Return the line as JSON of at most `most` bytes."""
    encoded = msgspec.json.encode(shortened(line, most))
    if len(encoded) > most:  # a character may need six bytes
        encoded = msgspec.json.encode(shortened(line, most // 6))
    return encoded


def shortened(line: LogLine, most: int) -> LogLine:
    """Return the line with the middle of its texts left out if they have more than `most` characters together, and with
    halves of characters written as their numbers, because no store can keep them."""
    if len(line.message) + len(line.traceback or "") + len(line.logger) + len(line.level) > most - AROUND:
        room = max(most - AROUND - NAME_MAX, 0)
        half = room if line.traceback is None else room // 2
        line = msgspec.structs.replace(
            line,
            level=line.level[:20],
            logger=line.logger[: NAME_MAX - 20],
            message=_cut(line.message, half),
            traceback=None if line.traceback is None else _cut(line.traceback, half),
        )
    try:
        msgspec.json.encode(line)
    except UnicodeEncodeError:
        return msgspec.structs.replace(
            line,
            level=_whole(line.level),
            logger=_whole(line.logger),
            message=_whole(line.message),
            traceback=None if line.traceback is None else _whole(line.traceback),
        )
    return line


def _whole(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    note = f" … {len(text) - most:,} characters left out … "
    begin = max(most - len(note), 0) // 2
    return f"{text[:begin]}{note}{text[len(text) - begin :]}"
