"""What the engine logs, as a command shows it: each trouble once, not at every pass that meets it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TextIO

from holdfast.errors import StoreFull
from holdfast.safe_text import visible
from holdfast.terminal import streams
from holdfast.terminal.lines import json_document
from holdfast.terminal.output import moment

REPEAT_AFTER_S = 30.0
"""A trouble that lasts is told again after this long."""
KEPT_MAX = 1000


class Once(logging.Filter):
    """Drops what was said a moment ago."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        message = record.getMessage()
        if record.created - self._said.get(message, 0.0) < REPEAT_AFTER_S:
            return False
        if len(self._said) >= KEPT_MAX:
            self._said.clear()
        self._said[message] = record.created
        return True


class FullDisk(logging.Filter):
    """Takes out of the log that the store cannot write, and tells it: a node tries again, a person wants to know."""

    def __init__(self, told: Callable[[StoreFull], None]) -> None:
        super().__init__()
        self._told = told

    def filter(self, record: logging.LogRecord) -> bool:
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, StoreFull):
                self._told(argument)
                return False
        return True


def notice_full_disk(told: Callable[[StoreFull], None]) -> None:
    for stream in logging.getLogger().handlers:
        stream.addFilter(FullDisk(told))


class LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


class Brief(logging.Formatter):
    """Beside a live picture: no time, it is now."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(f"{record.levelname.lower()}: {super().format(record)}")


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "at": moment(record.created),
            "event": getattr(record, "event", "log"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "told", {}),
        }
        if record.exc_info:
            told["traceback"] = self.formatException(record.exc_info)
        return json_document(told)


class _Piped(logging.StreamHandler[TextIO]):
    """Whoever read the log went away: then this process leaves in good order, as one does whose output nobody reads."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the name is the library's
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)
        elif streams.when_unread is not None:
            streams.when_unread()


class _Current(_Piped):
    """Writes to what is standard error now: a live picture puts itself in its place."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        raise AttributeError("always the current standard error")


def log_to_errors(level: int, formatter: logging.Formatter) -> None:
    """Log lines on standard error."""
    _log_to(_Current(), level, formatter)


def log_to(stream: TextIO, level: int, formatter: logging.Formatter) -> None:
    """Log lines on a stream of their own."""
    _log_to(_Piped(stream), level, formatter)


def _log_to(stream: logging.Handler, level: int, formatter: logging.Formatter) -> None:
    stream.setFormatter(formatter)
    stream.addFilter(Once())
    logging.basicConfig(level=level, handlers=[stream], force=True)
