"""Turns errors into messages and exit codes. Nothing else does.

0: the command did its work. 1: the run did not succeed, or an invariant is broken. 2: the call or the environment is
wrong. 130 and 143: the command was interrupted or terminated. 141: nobody reads the output any more.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable

import click

from holdfast.errors import HoldfastError, Refused, UpdateFailed, UpdateTimeout, WorkflowError
from holdfast.terminal import streams
from holdfast.terminal.lines import json_document, print_words

DONE, ENDED_OTHERWISE, WRONG = 0, 1, 2
INTERRUPTED, TERMINATED, PIPE_CLOSED = 130, 143, 141
NO_ANSWER = (Refused, UpdateFailed, UpdateTimeout)
"""Errors of a run that was called. The call itself was right."""
THREADS_GRACE_S = 0.5
"""How long to wait for a thread of a step. The idle threads of an agent end by themselves in less than this."""


class NotLoadable(WorkflowError):
    """A file or module with workflows cannot be found, read or imported."""


def run_command(
    command: Callable[[], object], *, as_json: bool, has_result: bool = True, is_last: bool = True
) -> int:
    """Run a command and flush its output; return its exit code. `has_result`: the command is there for what it prints,
    so it has failed if nobody can read that. `is_last`: this process ends after the command."""
    is_read = streams.replace_missing()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a glyph gets a question mark
    try:
        code = command()
        code = code if isinstance(code, int) else DONE
        streams.flush()
        if has_result and not is_read:
            code = PIPE_CLOSED
    except (BrokenPipeError, streams.UnreadError):
        code = PIPE_CLOSED
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001  whatever it is, a person gets one line
        if os.environ.get("HOLDFAST_DEBUG"):
            traceback.print_exc()
        code = _print_error(_kind(error), _message(error), as_json=as_json)
        if isinstance(error, NO_ANSWER):
            code = ENDED_OTHERWISE
    if is_last:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left that would have to stop in good order
    if code == PIPE_CLOSED:
        streams.discard()
    _leave_threads(code)
    return code


def _kind(error: Exception) -> str:
    return "UsageError" if isinstance(error, click.ClickException) else type(error).__name__


def _message(error: Exception) -> str:
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "holdfast"
        return f"{error.format_message().rstrip('.')}: see `{path} --help`"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, HoldfastError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return (
        f"{type(error).__name__}: {error}: this should not happen; HOLDFAST_DEBUG=1 shows where it happened"
    )


def _print_error(kind: str, message: str, *, as_json: bool) -> int:
    line = " ".join(message.split())
    try:
        print_words("error: ", "red", bold=True, end=False, err=True)
        print_words(line, err=True)
        if as_json:
            print(json_document({"error": {"type": kind, "message": line}}), flush=True)
        streams.flush()
    except OSError:
        streams.discard()
    return WRONG


def _leave_threads(code: int) -> None:
    """End the process if a thread of a step is still running. A `def` step that was given up goes on in its thread,
    which nothing can stop, and the process does not wait for it."""
    for thread in threading.enumerate():
        if thread.name.startswith("holdfast-step"):
            thread.join(THREADS_GRACE_S)
            if thread.is_alive():
                try:
                    streams.flush()
                except OSError:
                    pass  # nobody reads the output any more
                os._exit(code)
