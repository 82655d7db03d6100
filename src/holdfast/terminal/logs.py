"""The engine's log as a command shows it. A message about the same trouble is shown once, not at every pass that meets
it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TextIO

from holdfast.codec.secret import redacted, redacted_json
from holdfast.errors import StoreFull
from holdfast.safe_text import visible_entry
from holdfast.terminal import streams
from holdfast.terminal.lines import json_document
from holdfast.terminal.output import moment

REPEAT_AFTER_S = 30.0
"""A message about a trouble that lasts is shown again after this long."""
KEPT_MAX = 1000
"""At most this many messages are remembered."""


class Once(logging.Filter):
    """Drops a warning or an error that was shown less than REPEAT_AFTER_S ago."""

    def __init__(self) -> None:
        super().__init__()
        self._shown_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        message = record.getMessage()
        if record.created - self._shown_at.get(message, 0.0) < REPEAT_AFTER_S:
            return False
        if len(self._shown_at) >= KEPT_MAX:
            self._shown_at.clear()
        self._shown_at[message] = record.created
        return True


class FullDisk(logging.Filter):
    """Removes log records about a full disk, and calls `on_full` with the error instead. The node only tries again, but
    a person wants to know."""

    def __init__(self, on_full: Callable[[StoreFull], None]) -> None:
        super().__init__()
        self._on_full = on_full

    def filter(self, record: logging.LogRecord) -> bool:
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, StoreFull):
                self._on_full(argument)
                return False
        return True


def notice_full_disk(on_full: Callable[[StoreFull], None]) -> None:
    """Call `on_full` when something is logged because the disk is full."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(FullDisk(on_full))


class LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return visible_entry(redacted(super().format(record)))


class Brief(logging.Formatter):
    """Log lines beside a live picture. They have no time, because people see them when they happen."""

    def format(self, record: logging.LogRecord) -> str:
        return visible_entry(f"{record.levelname.lower()}: {redacted(super().format(record))}")


class JsonLines(logging.Formatter):
    """Log records as one JSON object a line. Each says which node has logged it, and what it is about, if it is about a
    run: the run, and the step and the attempt, or the workflow."""

    def __init__(self, node: Callable[[], str | None] = lambda: None) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "at": moment(record.created),
            "event": getattr(record, "event", "log"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
            "run": getattr(record, "holdfast_run", "") or None,
            "workflow": getattr(record, "holdfast_workflow", "") or None,
            "step": getattr(record, "holdfast_step", "") or None,
            "attempt": getattr(record, "holdfast_attempt", 0) or None,
            "node": self._node(),
            **redacted_json(getattr(record, "fields", {})),
        }
        if record.exc_text:
            fields["traceback"] = redacted(record.exc_text)
        elif record.exc_info:
            fields["traceback"] = redacted(self.formatException(record.exc_info))
        return json_document(fields)


class _Piped(logging.StreamHandler[TextIO]):
    """A handler whose process leaves in good order when nobody reads the log any more, as when nobody reads its
    output."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the name is the library's
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            super().handleError(record)
        elif streams.when_unread is not None:
            streams.when_unread()


class _Current(_Piped):
    """Writes to what is standard error at that moment: a live picture puts itself in its place."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, stream: TextIO) -> None:
        raise AttributeError("always the current standard error")


def log_to_errors(level: int, formatter: logging.Formatter) -> None:
    """Write log lines to standard error."""
    _log_to(_Current(), level, formatter)


def log_to(stream: TextIO, level: int, formatter: logging.Formatter) -> None:
    """Write log lines to this stream."""
    _log_to(_Piped(stream), level, formatter)


def _log_to(handler: logging.Handler, level: int, formatter: logging.Formatter) -> None:
    handler.setFormatter(formatter)
    handler.addFilter(Once())
    handler.setLevel(level)
    # The handler drops what is below its level. What steps log is kept from INFO on, whatever is shown.
    logging.basicConfig(level=min(level, logging.INFO), handlers=[handler], force=True)
