"""What authors write for schedules: `every("0 3 * * 1-5", tz="Europe/Oslo")(nightly, "today")`.

A line declares a schedule. The node that loads it publishes all lines of its code together, and the leader makes them
schedules.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import CodeType, FrameType
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec

from holdfast import codec
from holdfast.codec.secret import demand_no_secret
from holdfast.errors import DefinitionError, InvalidInput
from holdfast.model import DEFAULT_NAMESPACE, NewSchedule
from holdfast.programs import MAIN, module_name
from holdfast.times import Calendar, Plan
from holdfast.times.grammar import instant_of, moment_of
from holdfast.times.plan import WINDOW_S, Overlap, Shift
from holdfast.times.zones import zone
from holdfast.workflow import options, registry
from holdfast.workflow.options import Seconds
from holdfast.workflow.workflow import Workflow

P = ParamSpec("P")
R = TypeVar("R")

ARGUMENTS = "the arguments of a schedule"
NAME_MAX_CHARS = 150
"""A run's id is the schedule's name and the time, and may have 200 characters."""

Moment = str | datetime
"""A local time in the schedule's zone, or an instant with an offset."""


class ScheduleLine(NamedTuple):
    """One schedule that code declares."""

    name: str
    plan: Plan
    workflow: Workflow[Any, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    module: str
    """The module in which the line stands."""
    place: str
    unit: CodeType

    def new(self, origin: str) -> NewSchedule:
        """Return the schedule as the store has it. Raise if the arguments do not fit."""
        return new_schedule(self.name, self.plan, self.workflow, self.args, self.kwargs, origin)


class Every:
    """Times and policies, which wait for a workflow. See `every`."""

    def __init__(self, plan: Plan, name: str | None, place: str) -> None:
        self.plan, self.name, self._place = plan, name, place

    def __call__(self, workflow: Workflow[P, R], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Declare a schedule that starts the workflow with these arguments. Its name is that of the workflow, unless
        `every(name=…)` gives another one."""
        frame = sys._getframe(1)
        place = line_place(frame)
        if not isinstance(workflow, Workflow):
            raise DefinitionError(f"{place}: every(…) takes a workflow and its arguments, not {workflow!r}")
        if workflow.namespace not in {None, DEFAULT_NAMESPACE}:
            raise DefinitionError(f"{place}: a schedule in code starts runs in the namespace of its node")
        try:
            plan_of(self.plan, workflow)
        except DefinitionError as wrong:
            raise DefinitionError(f"{place}: {wrong}") from None
        name = schedule_name(self.name or workflow.label, place)
        line = ScheduleLine(name, self.plan, workflow, args, kwargs, line_module(frame), place, frame.f_code)
        try:
            line.new("")
        except DefinitionError:
            pass  # a type that the workflow names does not exist yet; the node checks it
        except InvalidInput as wrong:
            raise InvalidInput(f"{place}: {wrong}") from None
        registry.register_schedule(line)


def every(  # noqa: PLR0913  each is a word that an author may want to write
    times: str | timedelta | None = None,
    *,
    at: Moment | Sequence[Moment] | None = None,
    tz: str = "UTC",
    name: str | None = None,
    skip: Calendar | None = None,
    only: Calendar | None = None,
    shift: Shift | None = None,
    anchor: Moment | None = None,
    start: Moment | None = None,
    end: Moment | None = None,
    count: int | None = None,
    overlap: Overlap = "skip",
    missed: str | int = "once",
    window: Seconds = WINDOW_S,
    jitter: Seconds | None = None,
    pause_after: int | None = None,
    due: str | None = None,
) -> Every:
    """Say when a workflow starts: `every("0 3 * * 1-5", tz="Europe/Oslo")(nightly, "today")`.

    `times` is a cron expression with five fields, an interval such as `15m` or `1h30m`, a date, or several joined by
    `|`; `at` is one date or a list of them. `skip` and `only` are calendars of days that are left out or kept;
    `shift` moves a time to the `next` or `previous` day that is kept. `start`, `end` and `count` bound it.

    `overlap` says what happens to a time that comes while a run of the schedule is open: `skip`, `buffer_one`,
    `buffer_all`, `cancel_other` or `allow`. `missed` says which of the times that came while nothing ran are made up
    for, within the last `window`: `skip` none, `once` the newest, a number that many of the newest. `jitter` delays
    each start by up to that many seconds. `pause_after=3` pauses the schedule when three runs in a row did not succeed.
    `due="06:00"` promises that each run ends by then, in the zone of the schedule: a run that is late raises an alert.
    A span is said of the workflow: `every("@daily")(nightly.using(due=timedelta(hours=2)))`.
    """
    place = line_place(sys._getframe(1))
    try:
        made = _plan(times, at, tz, anchor, start, end)
        plan = msgspec.structs.replace(
            made,
            skip=_days(skip, "skip"),
            only=_days(only, "only"),
            shift=shift,
            count=count,
            overlap=overlap,
            **_missed(missed),
            window_s=options.seconds(window, "window") or WINDOW_S,
            jitter_s=options.patience(jitter, "jitter") or 0.0,
            pause_after=pause_after,
            due=_due(due),
        )
        plan.check()
        if plan.after(0.0) is None:
            raise DefinitionError("it never fires: no time is left by the calendar, start and end")
        if name is not None:
            schedule_name(name, "name")
    except DefinitionError as wrong:
        raise DefinitionError(f"{place}: every(…): {wrong}") from None
    return Every(plan, name, place)


def _plan(
    times: str | timedelta | None,
    at: Moment | Sequence[Moment] | None,
    tz: str,
    anchor: Moment | None,
    start: Moment | None,
    end: Moment | None,
) -> Plan:
    where = zone(tz)
    if isinstance(times, timedelta):
        if times % timedelta(seconds=1):
            raise DefinitionError(f"{times} is no interval: it has a part of a second")
        times = f"{times.total_seconds():.0f}s"
    if (times is None) == (at is None):
        raise DefinitionError('give times, such as "0 3 * * *" or "15m", or at=')
    if at is not None:
        moments = [at] if isinstance(at, str | datetime) else list(at)
        times = " | ".join(one if isinstance(one, str) else one.isoformat() for one in moments)
    if not isinstance(times, str):
        raise DefinitionError(f"expected a text, such as 0 3 * * * or 15m, not {times!r}")

    def instant(given: Moment | None) -> float | None:
        if given is None:
            return None
        return instant_of(moment_of(given) if isinstance(given, str) else given.replace(microsecond=0), where)

    return Plan(times, tz, instant(anchor) or 0.0, start=instant(start), end=instant(end))


def _missed(given: str | int) -> dict[str, Any]:
    if isinstance(given, int) and not isinstance(given, bool):
        return {"missed": "all", "missed_max": given}
    if given not in {"skip", "once"}:
        raise DefinitionError(f'missed: expected "skip", "once" or how many of the newest, not {given!r}')
    return {"missed": given}


def _due(given: object) -> str | None:
    if given is not None and not isinstance(given, str):
        raise DefinitionError(
            f'due: expected a wall time, such as "06:00", not {given!r}: a span is said of the workflow: nightly.using(due=…)'
        )
    return given


def _days(calendar: Calendar | None, what: str) -> Any:
    if calendar is not None and not isinstance(calendar, Calendar):
        raise DefinitionError(f"{what}: expected a Calendar, not {calendar!r}")
    return None if calendar is None else calendar.stored


def new_schedule(
    name: str,
    plan: Plan,
    workflow: Workflow[Any, Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    origin: str = "",
) -> NewSchedule:
    """Return a schedule that starts a workflow with these arguments. Raise InvalidInput if they do not fit."""
    plan = plan_of(plan, workflow)
    raw, _ = workflow.shape.checked(args, kwargs)
    demand_no_secret(raw, ARGUMENTS)
    return NewSchedule(
        name,
        workflow.name,
        workflow.version,
        raw,
        codec.digest(raw),
        msgspec.json.encode(plan).decode(),
        origin=origin,
        priority=workflow.priority,
        tags=msgspec.json.encode(workflow.tags).decode() if workflow.tags else None,
        timeout_s=workflow.timeout_s,
    )


def plan_of(plan: Plan, workflow: Workflow[Any, Any]) -> Plan:
    """Return the plan with what the workflow says about its runs: whom they are for, and within what time they are due, unless
    the plan has a wall time. Raise if it says what runs of a schedule cannot have."""
    workflow.demand_at_once("a schedule says when its runs begin")
    if workflow.id is not None:
        raise DefinitionError(
            f"{workflow.name}: the id of a run is the name of its schedule and the time, so leave out id"
        )
    if workflow.due_at is not None:
        raise DefinitionError(
            f'{workflow.name}: a schedule has many runs, so leave out due_at: write due="06:00" in every(…), or a span'
        )
    return msgspec.structs.replace(
        plan, fair=workflow.fair, due_s=plan.due_s if plan.due is not None else workflow.due_s
    )


def schedule_name(value: object, what: str, noun: str = "schedule") -> str:
    """Check the name of a schedule or a trigger. The ids of its runs begin with it."""
    name = options.text(value, what)
    if (
        len(name) > NAME_MAX_CHARS
        or any(mark in name for mark in ("::", "//", "@", "~"))
        or "/" in (name[0], name[-1])
    ):
        raise DefinitionError(
            f"{what}: {name!r} cannot be the name of a {noun}: at most {NAME_MAX_CHARS} characters, no ::, //, @ or ~, and "
            "no / at either end"
        )
    return name


def line_place(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"


def line_module(frame: FrameType) -> str:
    name: str = frame.f_globals.get("__name__", "")
    return name if name and name not in MAIN else module_name(frame.f_globals)
