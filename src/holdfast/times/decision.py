"""Decides what becomes of the times of a schedule that have come, and of those that wait. It changes nothing.

*Open* is a run of the schedule that has not ended. `overlap` says what happens to a time that comes meanwhile, and
`missed` what happens to times that are decided late, because nobody led.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import FireFate, OpenFire, RunState, ScheduleRow, ScheduleState
from holdfast.times.plan import BUFFERED_MAX, LATE_S, Plan
from holdfast.times.zones import TZDATA, iso

COUNTED_MAX = 2000
"""How many times that are too old to run are counted in one decision. The next one goes on."""
DUE_MAX = 100_000
"""How many times within the window are looked at."""
_FAILED = frozenset({RunState.FAILED, RunState.UNDONE})


class NewFire(NamedTuple):
    """A fate to write, of one time or of several that were missed together."""

    at: float
    fate: FireFate
    why: str
    last_at: float
    times: int = 1
    repeat: int = 1
    backfill: str | None = None

    def run_id(self, schedule: str) -> str:
        return run_id(schedule, self.at, self.repeat)


class FireChange(NamedTuple):
    """A change of a fire that has not ended: it starts or is replaced, or its run has ended or is stuck."""

    at: float
    repeat: int
    fate: FireFate
    why: str
    ended: bool
    counted: bool


class Decision(msgspec.Struct):
    """What becomes of a schedule."""

    row: ScheduleRow
    """As it will be. Its fence is still the one that was read."""
    fires: list[NewFire] = []
    changes: list[FireChange] = []
    starts: list[NewFire] = []
    """Those whose runs start: new ones, and those that were buffered."""
    cancels: list[str] = []
    alerts: list[tuple[str, str]] = []
    """What each is about, and its message."""


def run_id(schedule: str, at: float, repeat: int = 1) -> str:
    """Return the id of the run of a time: `nightly@2026-11-16T02:00Z`."""
    return f"{schedule}@{iso(at)}" + (f"~{repeat}" if repeat > 1 else "")


def decide(row: ScheduleRow, plan: Plan, opened: Sequence[OpenFire], now: float) -> Decision:
    """Return what becomes of a schedule now: of runs that have ended, of times that wait for them, and of times that have
    come. A paused schedule only learns that runs have ended."""
    decider = _Decider(row, plan, opened, now)
    decider.note_ends()
    if decider.row.state is not ScheduleState.PAUSED:
        decider.start_buffered()
        decider.come()
    return decider.decision()


def decide_now(
    row: ScheduleRow, plan: Plan, opened: Sequence[OpenFire], now: float, at: float, why: str, *, anyway: bool
) -> Decision:
    """Return what becomes of a time that somebody asks for now. With `anyway`, it starts whatever is open."""
    decider = _Decider(row, plan, opened, now)
    decider.note_ends()
    decider.start_buffered()
    decider.one(at, why, anyway=anyway)
    return decider.decision()


def resume(row: ScheduleRow, plan: Plan, opened: Sequence[OpenFire], now: float) -> Decision:
    """Return the schedule as it goes on after a pause: times that came meanwhile were missed."""
    passed = count_all(plan, row.cursor, now + 1e-6)
    changed = msgspec.structs.replace(row, state=ScheduleState.ACTIVE, note="", failures=0)
    if passed is not None:
        changed = msgspec.structs.replace(changed, cursor=passed[2])
    decider = _Decider(scheduled(changed, plan), plan, opened, now)
    decider.note_ends(counts=False)
    decider.start_buffered()
    decided = decider.decision()
    if passed is not None:
        count, first, last = passed
        decided.fires.append(NewFire(first, FireFate.MISSED, "the schedule was paused", last, count))
    return decided


def count_all(plan: Plan, after: float, until: float) -> tuple[int, float, float] | None:
    """Return how many times there are after `after` and before `until`, the first and the last of them."""
    found = plan.count_between(after, until, DUE_MAX)
    while found is not None:
        more = plan.count_between(found[2], until, DUE_MAX)
        if more is None:
            break
        found = (found[0] + more[0], found[1], more[2])
    return found


def scheduled(row: ScheduleRow, plan: Plan) -> ScheduleRow:
    """Return the row with its next time after the cursor. A schedule without one has ended."""
    next_at = None
    if plan.count is None or row.started < plan.count:
        next_at = plan.next_start(row.name, row.cursor)
    state = row.state
    if next_at is None:
        state = ScheduleState.ENDED
    elif state is ScheduleState.ENDED:
        state = ScheduleState.ACTIVE
    return msgspec.structs.replace(row, next_at=next_at, state=state, tzdata=TZDATA)


class _Decider:
    def __init__(self, row: ScheduleRow, plan: Plan, opened: Sequence[OpenFire], now: float) -> None:
        self.row, self._plan, self._now = row, plan, now
        own = [one for one in opened if one.backfill is None]
        self._buffered = sorted((one for one in own if one.fate == FireFate.BUFFERED), key=lambda one: one.at)
        self._open: list[str] = []
        """The open runs of the schedule, without those of backfills."""
        self._seen = [one for one in opened if one.fate == FireFate.STARTED]
        self._decided = Decision(row, [], [], [], [], [])
        self._waiting = [
            NewFire(one.at, FireFate.BUFFERED, "", one.at, repeat=one.repeat) for one in self._buffered
        ]
        self._known = {fire.at for fire in self._waiting}
        """Times that are buffered in the store."""

    def _change(self, **fields: object) -> None:
        self.row = msgspec.structs.replace(self.row, **fields)

    def decision(self) -> Decision:
        self._decided.row = self.row
        return self._decided

    # --- runs that have ended -------------------------------------------------------------------------------------------

    def note_ends(self, *, counts: bool = True) -> None:
        """Note which runs have ended, and how. Unless it `counts`, failures are forgiven."""
        for one in sorted(self._seen, key=lambda each: each.at):
            is_over = one.state is None or one.state in RUN_ENDED
            is_stuck = one.state == RunState.STUCK and not one.counted
            if not is_over and one.backfill is None:
                self._open.append(one.run_id or "")
            if is_over or is_stuck:
                change = FireChange(
                    one.at, one.repeat, FireFate.STARTED, "", is_over, one.counted or is_stuck
                )
                self._decided.changes.append(change)
                if counts or one.state == RunState.SUCCEEDED:
                    self._count(one, is_stuck=is_stuck)

    def _count(self, one: OpenFire, *, is_stuck: bool) -> None:
        if one.state == RunState.SUCCEEDED:
            if self.row.last_at is None or one.at >= self.row.last_at:
                self._change(last_run=one.run_id, last_at=one.at)
            if one.backfill is None:
                self._change(failures=0)
            return
        if one.backfill is not None or not (is_stuck or (one.state in _FAILED and not one.counted)):
            return
        self._change(failures=self.row.failures + 1)
        limit = self._plan.pause_after
        if limit is not None and self.row.failures >= limit and self.row.state is ScheduleState.ACTIVE:
            note = f"{self.row.failures} runs in a row did not succeed, the last is {one.run_id}"
            self._change(state=ScheduleState.PAUSED, note=note, actor="supervisor")
            self._decided.alerts.append(
                (
                    "paused",
                    f"schedule {self.row.name} is paused: {note}; `holdfast schedules resume {self.row.name}`",
                )
            )

    # --- times that wait ------------------------------------------------------------------------------------------------

    def start_buffered(self) -> None:
        """Start the oldest time that waits, if no run is open."""
        if self._waiting and not self._open:
            self._start(self._waiting.pop(0))

    # --- times that have come -------------------------------------------------------------------------------------------

    def come(self) -> None:
        if self.row.next_at is None or self.row.next_at > self._now:
            return
        too_old = self._now - self._plan.window_s
        passed = self._plan.count_between(self.row.cursor, too_old, COUNTED_MAX)
        if passed is not None:
            count, first, last = passed
            self._miss(
                first, last, count, f"nobody led for more than the window of {self._plan.window_s:g} s"
            )
            self._change(cursor=last)
            if self._plan.count_between(last, too_old, 1) is not None:
                return  # there are more, so it stays due
        due = list(islice(self._due(), DUE_MAX))
        late = {at for at in due if self._now - self._plan.starts_at(self.row.name, at) > LATE_S}
        is_whole = len(due) < DUE_MAX
        chosen = self._made_up(sorted(late), is_more=len(late) < len(due)) if is_whole else set()
        missed = [at for at in due if at in late and at not in chosen]
        if missed:
            self._miss(missed[0], missed[-1], len(missed), "it came while nobody led")
        for at in due:
            if at in chosen or at not in late:
                if self._plan.count is not None and self.row.started >= self._plan.count:
                    break
                self.one(at, "")
            self._change(cursor=at)
        if is_whole:  # else there are more, so it stays due
            self.row = scheduled(self.row, self._plan)

    def _due(self) -> Iterator[float]:
        """Yield the times after the cursor whose start has come."""
        for at in self._plan.between(self.row.cursor, self._now):
            if self._plan.starts_at(self.row.name, at) > self._now:
                return
            yield at

    def _made_up(self, late: list[float], *, is_more: bool) -> set[float]:
        """Return which of the times that are late are made up for."""
        if self._plan.missed == "skip" or not late:
            return set()
        if self._plan.missed == "once":
            return set() if is_more else {late[-1]}
        return set(late[-self._plan.missed_max :])

    def _miss(self, first: float, last: float, times: int, why: str) -> None:
        self._decided.fires.append(NewFire(first, FireFate.MISSED, why, last, times))

    def one(self, at: float, why: str, *, anyway: bool = False) -> None:
        """Decide about one time that has come, by the overlap policy."""
        overlap = self._plan.overlap
        if anyway or overlap == "allow" or not (self._open or self._waiting):
            self._start(NewFire(at, FireFate.STARTED, why, at))
            return
        what = f"{self._open[0]} was open" if self._open else f"{iso(self._waiting[0].at)} waited"
        if overlap == "skip" or (overlap == "buffer_all" and len(self._waiting) >= BUFFERED_MAX):
            self._decided.fires.append(NewFire(at, FireFate.SKIPPED, what, at))
            if overlap == "buffer_all":
                full = f"schedule {self.row.name}: {BUFFERED_MAX:,} times wait, so the time {iso(at)} was skipped"
                self._decided.alerts.append(("full", full))
            return
        if overlap == "cancel_other":
            self._decided.cancels += [run for run in self._open if run not in self._decided.cancels]
        if overlap != "buffer_all":
            for waiting in self._waiting:
                self._replace(waiting, at)
            self._waiting.clear()
        fire = NewFire(at, FireFate.BUFFERED, what, at)
        self._waiting.append(fire)
        self._decided.fires.append(fire)
        self._change(started=self.row.started + 1)

    def _replace(self, waiting: NewFire, at: float) -> None:
        self._change(started=self.row.started - 1)  # it never runs
        why = f"{iso(at)} came while it waited"
        if waiting.at in self._known:
            self._decided.changes.append(
                FireChange(waiting.at, waiting.repeat, FireFate.REPLACED, why, True, False)
            )
        else:  # it was buffered in this decision
            place = self._decided.fires.index(waiting)
            self._decided.fires[place] = waiting._replace(fate=FireFate.REPLACED, why=why)

    def _start(self, fire: NewFire) -> None:
        started = fire._replace(fate=FireFate.STARTED)
        self._decided.starts.append(started)
        self._open.append(fire.run_id(self.row.name))
        if fire.at in self._known:
            self._decided.changes.append(
                FireChange(fire.at, fire.repeat, FireFate.STARTED, "it waited", False, False)
            )
        else:
            self._decided.fires.append(started)
            self._change(started=self.row.started + 1)
