"""Gives every log record the attributes that say what it belongs to: the run, and the step and the attempt, or the
workflow.

`logging` calls the record factory for each record that its levels let through, whatever handlers, filters and formats
there are. So this works with any configuration, whenever it is made, and changes none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

fill: Callable[[logging.LogRecord], None] | None = None
"""Fills in what a record belongs to. `holdfast.workflow.log_records` sets it. Before that is loaded, nothing is executed
that a record could belong to."""

_ours: Callable[..., logging.LogRecord] | None = None
"""The factory that was installed last."""


def install() -> None:
    """Wrap the record factory, unless it is wrapped already. Whoever wraps it after us still calls ours; if somebody
    replaced it instead, this wraps theirs."""
    global _ours  # noqa: PLW0603  the factory is global, too
    inner = logging.getLogRecordFactory()
    if inner is _ours:
        return
    probe = inner("holdfast.probe", logging.DEBUG, "", 0, "", (), None)
    if hasattr(probe, "holdfast_run"):
        return

    def make_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = inner(*args, **kwargs)
        # The names have a prefix, because `logging` refuses a call whose `extra` has the name of an attribute.
        record.holdfast_run = record.holdfast_workflow = record.holdfast_step = ""
        record.holdfast_attempt = 0
        if fill is not None:
            fill(record)
        return record

    logging.setLogRecordFactory(make_record)
    _ours = make_record
