"""What a run was started for: a time of a schedule, or an occasion of a composed trigger. A workflow asks with `occasion()`."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.codec import Payload
from holdfast.decider.loop import running
from holdfast.errors import WorkflowError
from holdfast.model import AT_TAG, BACKFILL_TAG, LAST_TAG, SCHEDULE_TAG, VALUE_TAG, WHEN_TAG
from holdfast.workflow import outside
from holdfast.workflow.step import step

T = TypeVar("T")


@step(name="holdfast.last_output")
async def last_output(run_id: str) -> str | None:
    """Return what a run returned, as JSON. None if it is not known any more."""
    through = outside.current()
    if through is None:
        raise WorkflowError("no Holdfast is open here, so the last result cannot be read")
    raw = await through.output_of(run_id)
    return None if raw is None else raw.decode()


class Occasion(msgspec.Struct, frozen=True):
    """The time of a schedule that a run was started for, or the occasion of a composed trigger."""

    schedule: str
    """The name of the schedule, or of the trigger."""
    at: datetime
    """The time itself, in UTC. The run may have started later. Of a trigger: when the first part came."""
    backfill: str | None = None
    """The id of the backfill that started the run. None: the schedule itself did."""
    last_run: str | None = None
    """The run of the newest time that had succeeded when this one was started."""
    value: str | None = None
    """Of a trigger: the value that its events have in common, such as `2026-11-16`."""

    async def last(self, type: type[T]) -> T | None:
        """Return the result of the newest run of this schedule that had succeeded when this one was started. None if there
        was none, or it has been removed."""
        if self.last_run is None:
            return None
        raw = await last_output(self.last_run)
        if raw is None:
            return None
        found: T = Payload(type, f"the result of {self.last_run}").decode(raw.encode())
        return found


def occasion() -> Occasion | None:
    """Return what this run was started for. None if neither a schedule nor a
    composed trigger started it. Works in a workflow only."""
    loop = running()
    if loop is None:
        raise WorkflowError(
            "occasion() works in a workflow only: pass what a step needs of it as an argument"
        )
    return occasion_of(loop.host.tags)


def occasion_of(tags: str | None) -> Occasion | None:
    """Return the occasion that a run's tags name."""
    if tags is None or not (SCHEDULE_TAG in tags or WHEN_TAG in tags):
        return None
    found: dict[str, Any] = msgspec.json.decode(tags)
    if AT_TAG not in found:
        return None
    at = datetime.fromisoformat(found[AT_TAG])
    if WHEN_TAG in found:
        return Occasion(found[WHEN_TAG], at, value=found.get(VALUE_TAG))
    if SCHEDULE_TAG not in found:
        return None
    return Occasion(found[SCHEDULE_TAG], at, found.get(BACKFILL_TAG), found.get(LAST_TAG))
