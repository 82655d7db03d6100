"""Steps, attempts and runs as short words for people. Pure: rows and the time in, text out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from holdfast.codec import describe_error
from holdfast.codec.secret import masked
from holdfast.durations import Eta, span
from holdfast.event_names import event_words
from holdfast.lateness import due_words
from holdfast.lifecycle import RUN_ENDED, STEP_ENDED
from holdfast.model import DEADLINE, Attempt, Ending, RunRow, RunState, StepKind, StepRow, StepState

BROKEN = "$broken"
"""The member under which text that is no JSON is shown."""
UNKNOWN_WAIT = "waits to begin"
"""What a list says of something that may wait for an agent, or a scheduler, or for room under a limit. `why` says which."""


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def plain_value(raw: bytes | str | None) -> Any:
    """Return a payload as it is recorded, with dots in the place of secrets. If it is no JSON, because somebody wrote to the database by hand, it is shown
    as it is."""
    if raw is None:
        return None
    try:
        return masked(json.loads(raw))
    except (ValueError, RecursionError):
        return {BROKEN: raw if isinstance(raw, str) else raw.decode(errors="backslashreplace")}


def plain_object(raw: bytes | str | None) -> dict[str, Any]:
    """Return a payload that should be an object, as `plain_value` does."""
    found = plain_value(raw) or {}
    return found if isinstance(found, dict) else {BROKEN: found}


def progress(raw: str | None) -> tuple[float | None, str]:
    """Return the progress that `set_progress` or `here.beat` recorded last: (fraction, note)."""
    recorded = plain_object(raw)
    fraction = recorded.get("fraction")
    note = recorded.get("note") or recorded.get(BROKEN) or ""
    return fraction if isinstance(fraction, int | float) else None, str(note)


def progress_words(raw: str | None) -> str:
    fraction, note = progress(raw)
    share = "" if fraction is None else f"{fraction:.0%}"
    return f"{share} {note}".strip()


def step_state(step: StepRow, now: float) -> str:
    """Return the step's state for people. A ready step that waits for its next attempt is backing off; one that waits
    for a person is quarantined."""
    if step.quarantined:
        return "quarantined"
    backs_off = step.state is StepState.READY and step.kind is StepKind.CALL and step.ready_at > now
    return "backing off" if backs_off else str(step.state)


def attempts_of(attempts: Iterable[Attempt]) -> dict[int, list[Attempt]]:
    """Return the attempts by the number of their step."""
    found: dict[int, list[Attempt]] = {}
    for attempt in attempts:
        found.setdefault(attempt.n, []).append(attempt)
    return found


def ending(attempt: Attempt) -> str:
    """Say how an attempt ended: `ConnectionError: reset`, `timed out`, `lost: its agent died`."""
    if attempt.ending == Ending.LOST:
        return f"lost: {_how_lost(attempt.error)}"
    if not attempt.error:
        return str(attempt.ending)
    if attempt.ending == Ending.TIMED_OUT:
        return "timed out"
    if (error := plain_object(attempt.error)).get("ending") == "outrun":
        return f"outrun: {error.get('message', '')}"
    return describe_error(attempt.error)


def _how_lost(error: str | None) -> str:
    """Say how an attempt was lost: how the step's own process died, or just that its agent did."""
    message = str(plain_object(error).get("message", ""))
    return message if message.startswith("the step's process") else "its agent died"


def detail(step: StepRow, attempts: Sequence[Attempt], now: float) -> str:
    """Say what there is to say about a step beyond its name and state."""
    if step.state is StepState.FAILED:
        error = describe_error(step.error) if step.error else ""
        return f"{error} (attempt {step.attempt})" if step.attempt > 1 else error
    if step.kind is StepKind.MARKER:
        return "the new way" if step.output == b"true" else "the old way"
    if step.state in STEP_ENDED:
        tried = step.state is StepState.SUCCEEDED and step.attempt > 1
        return counted(step.attempt, "attempt") if tried else ""
    if step.kind is not StepKind.CALL:
        return _waiting(step, now)
    last = ending(attempts[-1]) if attempts else ""
    if step.quarantined:
        return " · ".join(part for part in ("in quarantine", last) if part)
    if step.state is StepState.READY:
        return " · ".join(part for part in (_ready(step, now), last) if part)
    attempt = f"attempt {step.attempt}" if step.attempt > 1 else ""
    parts = (attempt, progress_words(step.progress), f"after {last}" if last else "")
    return " · ".join(part for part in parts if part)


def _waiting(step: StepRow, now: float) -> str:
    if step.kind is StepKind.TIMER:
        return f"another {span(step.ready_at - now)}" if step.ready_at > now else "due"
    if step.kind is StepKind.SIGNAL:
        return f"for {event_words(step.name) or f'signal {step.name!r}'}"
    if step.kind is StepKind.SERVE:
        return f"serves update {step.name!r}"
    if step.kind is StepKind.ASK:
        return "for people to answer"
    if step.kind is StepKind.CALLBACK:
        left = "" if step.complete_by is None else f", another {span(max(0.0, step.complete_by - now))}"
        return f"for the callback of another system{left}"
    return f"for a run of {step.name}" if step.kind is StepKind.CHILD else ""


def _ready(step: StepRow, now: float) -> str:
    if step.ready_at <= now:
        return "to begin"  # it waits for an agent, or for a gate to open; `why` says which
    return f"attempt {step.spent + 1} of {step.attempts_max} in {span(step.ready_at - now)}"


def waits_for(steps: Sequence[StepRow], now: float, gate: Callable[[StepRow], str] | None = None) -> str:
    """Say in a few words what an open run waits for: the step that is nearest to moving on, and how many others are
    open. A step in quarantine comes first. `gate` says what keeps a step from beginning, such as a hold or a limit; empty if
    nothing does."""
    live = [s for s in steps if s.state in {"waiting", "ready", "running"} and s.key != DEADLINE]
    if not live:
        return ""
    order = {StepState.RUNNING: 0, StepState.READY: 1, StepState.WAITING: 2}
    first = min(live, key=lambda step: (not step.quarantined, order[step.state], step.n))
    words = detail(first, (), now)
    if first.state is StepState.READY and first.kind is StepKind.CALL and not first.quarantined:
        gated = gate(first) if gate is not None else ""
        words = gated or (words if first.ready_at > now else "waits for an agent")
    elif words.startswith(("for ", "another ")):
        # Beside the state `waiting` these words are enough. Here they need their verb.
        words = f"waits {words}"
    more = f" and {len(live) - 1:,} more" if len(live) > 1 else ""
    return f"{first.key}{f' {words}' if words else ''}{more}"


def left(eta: Eta | None) -> str:
    """Say when a run will probably end; empty if that is not known."""
    return "" if eta is None else f"about {span(eta.left_s)} left"


def failure(run: RunRow) -> str:
    """Say in one line why a run did not succeed."""
    if run.state is RunState.HELD and run.note:
        return _held_because(run.note)
    if run.state is RunState.STUCK and run.note:
        return describe_error(run.note)
    if run.error:
        return describe_error(run.error)
    return run.note or ""


def _held_because(note: str) -> str:
    """Say why a run is held. A scheduler's note is JSON with a message; an operator's note is plain text."""
    try:
        value = json.loads(note)
    except ValueError:
        return note
    return str(value.get("message", note)) if isinstance(value, dict) else note


def in_short(
    run: RunRow,
    steps: Sequence[StepRow],
    now: float,
    eta: Eta | None = None,
    gate: Callable[[StepRow], str] | None = None,
    limit: str = "",
) -> str:
    """Say in a few words how a run ended, or what it waits for. `steps` are its open steps, and `limit` says what keeps the run
    itself from beginning; empty if nothing does."""
    return " · ".join(
        part for part in (*_in_short(run, steps, now, eta, gate, limit), promise(run, now, eta)) if part
    )


def promise(run: RunRow, now: float, eta: Eta | None = None) -> str:
    """Say when an open run is due, and of one that has ended only that it was late."""
    is_kept = run.due_at is not None and run.finished_at is not None and run.finished_at <= run.due_at
    return "" if is_kept else due_words(run.due_at, run.finished_at, now, eta)


def _in_short(
    run: RunRow,
    steps: Sequence[StepRow],
    now: float,
    eta: Eta | None,
    gate: Callable[[StepRow], str] | None,
    limit: str,
) -> tuple[str, ...]:
    if run.state in RUN_ENDED or run.state in {RunState.STUCK, RunState.HELD}:
        return ("" if run.state is RunState.SUCCEEDED else failure(run),)
    if run.state is RunState.PENDING:
        if run.begin_at is not None and run.begin_at > now:
            return (f"begins in {span(run.begin_at - now)}",)
        return (limit or "waits for a scheduler",)
    return progress_words(run.progress), waits_for(steps, now, gate), left(eta)
