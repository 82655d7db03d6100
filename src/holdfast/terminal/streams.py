"""Standard input, output and error of this process. They may be closed from the start, and their reader may go away."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STDOUT, STDERR = 1, 2
when_unread: Callable[[], None] | None = None
"""Called when a log line cannot be written because nobody reads the log any more. A command that can leave in good
order sets it."""


class UnreadError(Exception):
    """Nobody reads the output any more. It is our own exception because click would handle a BrokenPipeError itself."""


@contextmanager
def broken_pipe_as_unread() -> Iterator[None]:
    """Turn a BrokenPipeError into an UnreadError."""
    try:
        yield
    except BrokenPipeError as error:
        raise UnreadError from error


def replace_missing() -> bool:
    """Replace each stream that was closed when this process was started (`>&-`) by /dev/null. Otherwise the next file
    that is opened, which may be the store, would get the stream's number. Return whether standard output was open."""
    missing = [number for number in (0, STDOUT, STDERR) if not _is_open(number)]
    for number in missing:
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(STDOUT, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  the same
    return STDOUT not in missing


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def flush() -> None:
    """Write out what standard output and error still have in their buffers. Raises BrokenPipeError if nobody reads it
    any more."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def discard() -> None:
    """Send the rest of the output to /dev/null because nobody reads it any more. Then the interpreter's own last flush
    does not fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(null, stream.fileno())
        except (OSError, ValueError, AttributeError):
            pass  # not a real stream, so there is nothing to flush
    os.close(null)
