"""Says what a log record belongs to: the run, and the step and the attempt, or the workflow. `holdfast.log_fields` asks
for each record. This also passes the record on to whoever keeps what a step or a workflow logs.
"""

from __future__ import annotations

import logging

from holdfast import log_fields
from holdfast.decider.loop import RunLoop, running
from holdfast.model import LogLine
from holdfast.workflow.here import CurrentAttempt, here_var

SUPPRESSED = -1
"""A level below that of every handler. A factory has to return a record, so this is how it makes nobody handle it."""
ENGINE, WORKFLOW = "holdfast.", "holdfast.workflow"
"""The engine's own records may be made while a step's context is set, but they are not what the step logs. What the
logger `holdfast.workflow` says is about the author's code."""


_process: CurrentAttempt | None = None


def belong_to(at: CurrentAttempt) -> None:
    """Let everything that this process logs belong to this attempt, in whatever thread: it is the process of an
    isolated step."""
    global _process  # noqa: PLW0603  there is one for each process
    _process = at


def handle(line: LogLine, at: CurrentAttempt) -> None:
    """Let the handlers of this process handle what an isolated step has logged in its own process."""
    logger, level = logging.getLogger(line.logger), logging.getLevelName(line.level)
    if not isinstance(level, int) or not logger.isEnabledFor(level):
        return
    record = logger.makeRecord(line.logger, level, "", 0, line.message, (), None)
    record.exc_text = line.traceback
    _name(at, record)
    try:
        logger.handle(record)
    except Exception:  # noqa: BLE001, S110  a handler of the author's failed; the line is kept all the same
        pass


def _fill(record: logging.LogRecord) -> None:
    loop = running()
    if loop is not None:  # this comes first: workflow code may have inherited the context of a step
        _of_workflow(loop, record)
    elif (at := here_var.get() or _process) is not None:
        _of_step(at.outermost, record)


def _of_workflow(loop: RunLoop, record: logging.LogRecord) -> None:
    if loop.quiet or loop.closing:
        # The code is replayed, or is closed because its run leaves memory. It has logged this before, or never will.
        record.levelno = SUPPRESSED
        return
    host = loop.host
    record.holdfast_run, record.holdfast_workflow = host.run_id, host.workflow.name
    if _is_authors(record):
        host.log(record)


def _of_step(at: CurrentAttempt, record: logging.LogRecord) -> None:
    _name(at, record)
    keeper = at.keeper
    if keeper is not None and record.levelno >= keeper.level and _is_authors(record):
        keeper.keep(at, record)


def _name(at: CurrentAttempt, record: logging.LogRecord) -> None:
    record.holdfast_run, record.holdfast_attempt = at.run_id, at.attempt
    record.holdfast_step = at.effect.partition("::")[2]


def _is_authors(record: logging.LogRecord) -> bool:
    return not record.name.startswith(ENGINE) or record.name == WORKFLOW


log_fields.fill = _fill
