"""Whether a run or a step keeps the promise of when it ends. Pure: what is known about it and about earlier ones in, a verdict
out.

| what was promised to end | is late when |
|---|---|
| all | its due time has passed |
| runs, and 30 earlier ones are known | nine of ten took up to so long from here that it would end after its due time |
| stands, and 30 earlier ones are known | the same, if it went on now |
| stands, and fewer are known | half of its time is gone |

A run stands if it has not begun, is held or is stuck. A step stands if nobody executes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.durations import Eta, eta, eta_names, span, start_name, step_name
from holdfast.model import DueRun, DueStep, Landmark, RunState, StepState
from holdfast.sketch import Sketch

SAMPLES = 30
"""How many earlier ones must be known before they can say that something will be late."""
CAUGHT_UP = 1.1
"""What people were warned of has caught up only if a tenth more than what is left would still be in time. So it is not late,
in time and late again within minutes."""


class Promise(NamedTuple):
    due_at: float
    begins: float
    """From when on the time counts."""
    stands: str
    """Why it does not go on, for people. Empty if it does."""
    rest_s: float | None
    """Nine of ten took at most this long from here. None if too little is known."""


class Verdict(NamedTuple):
    why: str
    """Why it is late, or will be, for people. Empty if it is in time, as far as is known."""
    look_at: float | None
    """When to judge again, if nothing happens before. None if time alone changes nothing."""

    @property
    def is_late(self) -> bool:
        return self.why != ""


def judge(promise: Promise, now: float, *, warned: bool = False) -> Verdict:
    """Return whether something open will be late. `warned` says that people were notified so."""
    due_at, begins, stands, rest_s = promise
    if now >= due_at:
        return Verdict(f"it was due {span(now - due_at)} ago", None)
    due = f"it is due in {span(due_at - now)}"
    if rest_s is None:
        half = begins + (due_at - begins) / 2
        if stands and now >= half:
            return Verdict(f"{due} and {stands}, and half of the time is gone", due_at)
        late_from = half if stands else due_at
    else:
        if max(now, begins) + rest_s * (CAUGHT_UP if warned else 1.0) > due_at:
            took = f"nine of ten took up to {span(rest_s)} from here"
            return Verdict(f"{due} and {stands}; {took}" if stands else f"{due}, and {took}", due_at)
        late_from = due_at - rest_s
    return Verdict("", late_from if late_from > now else due_at)


# --- what is known about a run or a step ------------------------------------------------------------------------------


def run_names(run: DueRun, mark: Landmark | None) -> list[str]:
    """Return the names of the sketches that say how long a run takes from here, the most precise one first."""
    if run.started_at is None:
        return [start_name(run.workflow)]
    return eta_names(replace(run, state=RunState.RUNNING), mark)


def run_promise(run: DueRun, mark: Landmark | None, known: Mapping[str, Sketch], now: float) -> Promise:
    stands = ""
    if run.state is RunState.PENDING:
        stands = "has not begun" if run.started_at is None else "has not gone on"
    elif run.state not in {RunState.RUNNING, RunState.UNDOING}:
        stands = f"is {run.state}"
    begins = max(run.created_at, run.begin_at or 0.0)
    return Promise(run.due_at, begins, stands, _rest_of_run(run, mark, known, now))


def _rest_of_run(run: DueRun, mark: Landmark | None, known: Mapping[str, Sketch], now: float) -> float | None:
    """Return how long nine of ten runs took at most from here. Undoing takes a time of its own, of which nothing is known."""
    if run.state is RunState.UNDOING:
        return None
    if run.started_at is None:
        return _rest(known.get(start_name(run.workflow)), 0.0)
    found = eta(replace(run, state=RunState.RUNNING), mark, known, now, least=SAMPLES)
    return None if found is None else found.most_s


def step_promise(step: DueStep, known: Mapping[str, Sketch], now: float) -> Promise:
    is_running = step.state is StepState.RUNNING and step.started_at is not None
    passed_s = max(0.0, now - (step.started_at or now)) if is_running else 0.0
    stands = "" if is_running else "nobody executes it"
    return Promise(step.due_at, step.issued_at, stands, _rest(known.get(step_name(step.name)), passed_s))


def _rest(sketch: Sketch | None, passed_s: float) -> float | None:
    return None if sketch is None or sketch.total < SAMPLES else sketch.left(passed_s, 0.9)


# --- words ------------------------------------------------------------------------------------------------------------


def due_words(
    due_at: float | None, finished_at: float | None, now: float, expected: Eta | None = None
) -> str:
    """Say of any run when it is due, and whether it is late, was late or will probably be. Empty if nothing was promised."""
    if due_at is None:
        return ""
    if finished_at is not None:
        return f"ended {span(finished_at - due_at)} late" if finished_at > due_at else "ended in time"
    if now >= due_at:
        return f"late: due {span(now - due_at)} ago"
    is_slow = expected is not None and expected.samples >= SAMPLES and now + expected.most_s > due_at
    return f"due in {span(due_at - now)}" + (", probably late" if is_slow else "")
