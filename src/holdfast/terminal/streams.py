"""Standard input, output and errors, as this process was given them: there may be none, or nobody may read them any more."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STDOUT, STDERR = 1, 2
when_unread: Callable[[], None] | None = None
"""Called when a log line cannot be written because nobody reads it any more. Set by a command that can leave in good order."""


class UnreadError(Exception):
    """Whoever read the output has gone away. As an exception of our own: click would make of a BrokenPipeError its own end."""


@contextmanager
def reading() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:
        raise UnreadError from error


def mend() -> bool:
    """Put nowhere in the place of a stream that was closed when this process was started (`>&-`), or the next file that is
    opened, which may be the store, would stand there. Whether standard output is one that somebody can read."""
    missing = [number for number in (0, STDOUT, STDERR) if not _is_open(number)]
    for number in missing:
        nowhere = os.open(os.devnull, os.O_RDWR)
        if nowhere != number:
            os.dup2(nowhere, number)
            os.close(nowhere)
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
    """Say what is left to say. Raises BrokenPipeError if whoever read it has gone away."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def forget() -> None:
    """Nobody reads any more: let what is left to say, and the interpreter's own last flush, go nowhere, silently."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError, AttributeError):
            pass  # not a real stream: nothing to flush
    os.close(nowhere)
