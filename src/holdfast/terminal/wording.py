"""Rows as words for people. Pure: rows and the time in, text out."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holdfast.codec import describe_error
from holdfast.durations import Eta
from holdfast.durations import span as span  # noqa: PLC0414  the commands find it here
from holdfast.glyphs import COLOURS as COLOURS  # noqa: PLC0414  the commands find it here
from holdfast.glyphs import GLYPHS as GLYPHS  # noqa: PLC0414  the commands find it here
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import (
    AT_TAG,
    BACKFILL_TAG,
    CANCEL,
    DEADLINE,
    SCHEDULE_TAG,
    UNDO_PREFIX,
    Answered,
    Attempt,
    Ending,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    TwinState,
    undone_key,
)
from holdfast.supervisor.outlook import Outlook
from holdfast.supervisor.phrases import parsed
from holdfast.terminal.lines import json_document

BROKEN = "$broken"
"""The member under which text that is no JSON is shown."""


def trimmed(text: str, width: int) -> str:
    """Return the text as one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def plain_value(raw: bytes | str | None) -> Any:
    """Return a payload as it is recorded. If it is no JSON, because somebody wrote to the database by hand, it is shown
    as it is."""
    if raw is None:
        return None
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return {BROKEN: raw if isinstance(raw, str) else raw.decode(errors="backslashreplace")}


def plain_object(raw: bytes | str | None) -> dict[str, Any]:
    """Return a payload that should be an object, as `plain_value` does."""
    found = plain_value(raw) or {}
    return found if isinstance(found, dict) else {BROKEN: found}


def occasion(tags: Mapping[str, Any]) -> str:
    """Say what a run was started for, by its tags. Empty: no schedule started it."""
    if SCHEDULE_TAG not in tags:
        return ""
    by = f", by backfill {tags[BACKFILL_TAG]}" if BACKFILL_TAG in tags else ""
    return f"schedule {tags[SCHEDULE_TAG]}, its time {tags.get(AT_TAG, '?')}{by}"


def json_text(value: Any) -> str:
    """Return a value as JSON for people: on one line if it is short, else indented."""
    line = json_document(value)
    return line if len(line) <= 72 else json_document(value, indent=2)


def took(begun: float | None, ended: float | None, now: float) -> str:
    return "" if begun is None else span((now if ended is None else ended) - begun)


def run_took(run: RunRow, now: float) -> str:
    return took(run.created_at, run.finished_at, now)


def left(eta: Eta | None) -> str:
    """Say when a run will probably end; empty if that is not known."""
    return "" if eta is None else f"about {span(eta.left_s)} left"


def taking_long(step: StepRow, outlook: Outlook, now: float) -> str:
    """Say if a running step takes longer than usual, and if it has a twin; empty if neither."""
    words = []
    if outlook.straggles(step, now):
        words.append(f"longer than usual (at most {span(outlook.bounds[step.name])})")
    twin = outlook.twin(step)
    if twin is not None and twin.state is TwinState.RUNNING and step.state is StepState.RUNNING:
        words.append(f"its twin has been running for {took(twin.started_at, None, now)}")
    return " · ".join(words)


def failure(run: RunRow) -> str:
    """Say in one line why a run did not succeed."""
    if run.state is RunState.HELD and run.note:
        return _held_because(run.note)
    if run.state is RunState.STUCK and run.note:
        return describe_error(run.note)
    if run.error:
        return describe_error(run.error)
    return run.note or ""


def bug_of(run: RunRow) -> str | None:
    """Return the recorded exception of the workflow code that a run is held for. None if it is not held for one."""
    note = parsed(run.note) if run.state is RunState.HELD else {}
    return str(note.get("error", "")) if note.get("why") == "bug" else None


def kept_steps(run: RunRow, steps: Sequence[StepRow]) -> list[str]:
    """Return the keys of steps whose effects stay although the run undid what it did: steps that may have done
    something and have no undo."""
    if run.ending is None:
        return []
    undone = {undone_key(step.key)[0] for step in steps if step.key.startswith(UNDO_PREFIX)}
    return [
        step.key
        for step in steps
        if step.kind is StepKind.CALL
        and not step.key.startswith(UNDO_PREFIX)
        and step.key not in undone
        and (step.state is StepState.SUCCEEDED or (step.state is StepState.CANCELLED and step.attempt > 0))
    ]


def _held_because(note: str) -> str:
    """Say why a run is held. A scheduler's note is JSON with a message; an operator's note is plain text."""
    try:
        value = json.loads(note)
    except ValueError:
        return note
    return str(value.get("message", note)) if isinstance(value, dict) else note


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
        return f"for signal {step.name!r}"
    if step.kind is StepKind.SERVE:
        return f"serves update {step.name!r}"
    return f"for a run of {step.name}" if step.kind is StepKind.CHILD else ""


def _ready(step: StepRow, now: float) -> str:
    if step.ready_at <= now:
        return "to begin"  # it waits for an agent, or for a gate to open; `why` says which
    return f"attempt {step.spent + 1} of {step.attempts_max} in {span(step.ready_at - now)}"


def waits_for(steps: Sequence[StepRow], now: float, gate: Callable[[StepRow], str] | None = None) -> str:
    """Say in a few words what an open run waits for: the step that is nearest to moving on, and how many others are
    open. A step in quarantine comes first. `gate` says what keeps a step from beginning; empty if nothing does."""
    live = [s for s in steps if s.state in {"waiting", "ready", "running"} and s.key != DEADLINE]
    if not live:
        return ""
    order = {StepState.RUNNING: 0, StepState.READY: 1, StepState.WAITING: 2}
    first = min(live, key=lambda step: (not step.quarantined, order[step.state], step.n))
    words = detail(first, (), now)
    if first.state is StepState.READY and first.kind is StepKind.CALL and not first.quarantined:
        gated = gate(first) if gate is not None else ""
        words = gated or (words if first.ready_at > now else "waits for an agent")
    more = f" and {len(live) - 1:,} more" if len(live) > 1 else ""
    return f"{first.key}{f' {words}' if words else ''}{more}"


def answer_words(update: SignalRow) -> str:
    """Say what became of an update."""
    if update.answer is None:
        return "no answer yet" if update.delivered_seq is not None else "not delivered yet"
    reply = (update.reply or b"").decode(errors="backslashreplace")
    words = reply if update.answer == Answered.RETURNED else describe_error(reply)
    return f"{update.answer}: {words}"


def signal_words(signal: SignalRow) -> tuple[str, str]:
    """Return a signal's name and payload for people. A request to cancel is put into words."""
    if signal.name == CANCEL:
        request = plain_object(signal.payload)
        note = f" ({request['note']})" if request.get("note") else ""
        return "cancel", f"asked by {request.get('actor', 'somebody')}{note}"
    return signal.name, signal.payload.decode(errors="backslashreplace")


def chosen_steps(steps: list[StepRow], rows: int) -> tuple[list[StepRow], int]:
    """Return the steps that are shown in `rows` lines, by number, and how many are left out. If there is no room for
    all, open steps come first, then failed ones, then those that ended last."""
    if len(steps) <= rows:
        return steps, 0
    room = max(1, rows - 1)

    def weight(step: StepRow) -> tuple[int, float]:
        if step.state == "running":
            return 0, step.n
        if step.state not in STEP_ENDED:
            return 1, step.n
        return (2 if step.state == "failed" else 3), -(step.finished_at or 0)

    chosen = sorted(sorted(steps, key=weight)[:room], key=lambda step: step.n)
    return chosen, len(steps) - len(chosen)


def lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"
