"""Decides what a backfill does next. It changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import BackfillRow, BackfillState, FireFate, OpenFire, RunState
from holdfast.times.decision import NewFire, run_id
from holdfast.times.plan import Plan

Again = Literal["none", "failed", "all"]
AGAIN: tuple[str, ...] = get_args(Again)
TIMES_MAX = 10_000
"""How many times one backfill may have."""
MOST_MAX = 1000
LOOKED_AT = 500
"""How many times one decision looks at."""


class Filled(NamedTuple):
    """What a backfill does next: the times that start, and how far it has come."""

    starts: list[NewFire]
    cursor: float | None
    passed: int
    state: BackfillState


class Planned(NamedTuple):
    """What a backfill would do with one time."""

    at: float
    exists: str
    """What became of the time so far. Empty: nothing."""
    run: str | None
    """The run that would start. None: the time is left alone."""


def times_of(plan: Plan, from_at: float, to_at: float, *, newest_first: bool) -> list[float]:
    """Return the times of a span in the order in which they are run, one more than `TIMES_MAX` at most."""
    found = []
    for at in plan.between(from_at - 1, to_at):
        found.append(at)
        if len(found) > TIMES_MAX:
            break
    return found[::-1] if newest_first else found


def left_of(row: BackfillRow, times: Sequence[float]) -> list[float]:
    """Return the times that are not decided yet."""
    if row.cursor is None:
        return list(times)
    return [at for at in times if (at < row.cursor if row.newest_first else at > row.cursor)]


def starts_as(
    schedule: str, at: float, known: Sequence[OpenFire], taken: frozenset[str], again: str
) -> int | None:
    """Return the number of the repeat with which a time runs. None if it is left alone: it is open, or has run before."""
    runs = [one for one in known if one.fate == FireFate.STARTED]
    if any(one.fate == FireFate.BUFFERED for one in known):
        return None
    if any(one.state is not None and one.state not in RUN_ENDED for one in runs):
        return None
    if runs and again != "all":
        newest = runs[-1].state
        if again == "none" or newest == RunState.SUCCEEDED or newest is None:
            return None
    repeat = max((one.repeat for one in known), default=1) + 1
    while run_id(schedule, at, repeat) in taken:  # a retry of the time's run has this id
        repeat += 1
    return repeat


def fill(
    row: BackfillRow,
    left: Sequence[float],
    known: Mapping[float, Sequence[OpenFire]],
    taken: frozenset[str],
    is_open: int,
) -> Filled:
    """Return what to do next. `known` has what became of the times at the beginning of `left`, and `is_open` says how many
    runs of this backfill are open."""
    room, starts, passed, cursor, looked = row.most - is_open, list[NewFire](), 0, row.cursor, 0
    for at in left[:LOOKED_AT]:
        repeat = starts_as(row.schedule, at, known.get(at, ()), taken, row.again)
        if repeat is None:
            passed += 1
        elif len(starts) >= room:
            break
        else:
            why = f"backfill {row.id}"
            starts.append(NewFire(at, FireFate.STARTED, why, at, repeat=repeat, backfill=row.id))
        cursor, looked = at, looked + 1
    is_done = looked == len(left) and not starts and not is_open
    return Filled(starts, cursor, passed, BackfillState.DONE if is_done else BackfillState.RUNNING)


def candidates(schedule: str, at: float, known: Sequence[OpenFire]) -> list[str]:
    """Return ids that the next repeat of a time may have."""
    first = max((one.repeat for one in known), default=1) + 1
    return [run_id(schedule, at, repeat) for repeat in range(first, first + 4)]
