"""Finds out whether a workflow's code decides the same again on the same history. Pure: it takes the rows of a run that
has ended, and returns the difference.

After a crash results may come in another order, and with another order the code may decide otherwise; that is up to the
author. But the same results in the same order must lead to the same steps and the same end, in whatever process the
code runs: a replay has nothing else to go by.
"""

from __future__ import annotations

import msgspec

from holdfast import codec
from holdfast.decider.commands import Turn
from holdfast.decider.decider import Decider
from holdfast.decider.history import SHOWN_CHARS, described
from holdfast.errors import Drift, HoldfastError
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import UNDO_PREFIX, RunRow, RunState, SignalRow, StepRow
from holdfast.workflow.pages import code_of
from holdfast.workflow.workflow import Workflows


class History(msgspec.Struct):
    """The rows of one run, its steps and its signals."""

    run: RunRow
    steps: list[StepRow]
    signals: list[SignalRow]


class Unloaded(Exception):
    """The run's workflow is not loaded in this process."""


def differs(history: History, workflows: Workflows) -> str:
    """Return in words how the code that is loaded here decides otherwise than the run did; empty if it does not."""
    run = history.run
    delivered = [row for row in history.signals if row.delivered_seq]
    decided = history.steps or delivered or run.state is RunState.SUCCEEDED
    if run.state not in RUN_ENDED or not decided:
        return ""  # there is nothing to compare with: its code has not ended, or never ran
    workflow = code_of(workflows.get((run.workflow, run.version)), run.input)
    if workflow is None:
        raise Unloaded(run.workflow)
    decider = Decider.of_run(workflow, run)
    try:
        decider.replay(history.steps, delivered)
        return _difference(run, decider.take(), decider.unasked())
    except Drift as drift:
        return f"it asks for {drift.asked} as step {drift.key!r}, which was {drift.recorded}"
    except HoldfastError as error:
        return f"it cannot be replayed: {error}"
    finally:
        decider.close()


def _difference(run: RunRow, turn: Turn, left: list[StepRow]) -> str:
    if turn.issued:
        new = turn.issued[0]
        return f"it asks for {described(new.kind, new.name, new.input)} as step {new.key!r}, which was never asked for"
    for row in left:
        if not row.key.startswith(UNDO_PREFIX):  # the code does not ask for its undos
            return (
                f"it does not ask for step {row.key!r}, which was {described(row.kind, row.name, row.input)}"
            )
    finish = turn.finish
    if finish is None:
        return f"it does not end, and ended {run.state}"
    if run.state is not RunState.SUCCEEDED:
        # A child that succeeded is undone with its parent. Its own code has no part in that.
        if finish.how == "succeeded" and run.parent_id is None:
            return f"it succeeds with {_shown(finish.output)}, and ended {run.state}"
        return ""
    if finish.how != "succeeded":
        reason = f": {codec.describe_error(finish.error)}" if finish.error else ""
        return f"it fails{reason}, and had succeeded with {_shown(run.output)}"
    if finish.output != run.output:
        return f"its result is {_shown(finish.output)}, and was {_shown(run.output)}"
    return ""


def _shown(raw: bytes | None) -> str:
    text = (raw or b"nothing").decode("utf-8", "replace")
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 1] + "…"
