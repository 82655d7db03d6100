"""Rows as words for people. Pure: rows and the time in, text out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.codec import describe_error
from holdfast.codec.secret import masked_json
from holdfast.durations import span as span  # noqa: PLC0414  the commands find it here
from holdfast.event_names import awaited_of
from holdfast.glyphs import COLOURS as COLOURS  # noqa: PLC0414  the commands find it here
from holdfast.glyphs import GLYPHS as GLYPHS  # noqa: PLC0414  the commands find it here
from holdfast.lifecycle import STEP_ENDED
from holdfast.model import (
    AT_TAG,
    BACKFILL_TAG,
    CANCEL,
    EVENT_PREFIX,
    SCHEDULE_TAG,
    UNDO_PREFIX,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    TwinState,
    UpdateAnswer,
    undone_key,
)
from holdfast.step_words import BROKEN as BROKEN  # noqa: PLC0414  the commands find it here
from holdfast.step_words import attempts_of as attempts_of  # noqa: PLC0414  the commands find it here
from holdfast.step_words import counted as counted  # noqa: PLC0414  the commands find it here
from holdfast.step_words import detail as detail  # noqa: PLC0414  the commands find it here
from holdfast.step_words import ending as ending  # noqa: PLC0414  the commands find it here
from holdfast.step_words import failure as failure  # noqa: PLC0414  the commands find it here
from holdfast.step_words import left as left  # noqa: PLC0414  the commands find it here
from holdfast.step_words import plain_object as plain_object  # noqa: PLC0414  the commands find it here
from holdfast.step_words import plain_value as plain_value  # noqa: PLC0414  the commands find it here
from holdfast.step_words import progress as progress  # noqa: PLC0414  the commands find it here
from holdfast.step_words import progress_words as progress_words  # noqa: PLC0414  the commands find it here
from holdfast.step_words import step_state as step_state  # noqa: PLC0414  the commands find it here
from holdfast.step_words import waits_for as waits_for  # noqa: PLC0414  the commands find it here
from holdfast.supervisor.outlook import Outlook
from holdfast.supervisor.phrases import parsed
from holdfast.terminal.lines import json_document


def trimmed(text: str, width: int) -> str:
    """Return the text as one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


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


def taking_long(step: StepRow, outlook: Outlook, now: float) -> str:
    """Say if a running step takes longer than usual, and if it has a twin; empty if neither."""
    words = []
    if outlook.straggles(step, now):
        words.append(f"longer than usual (at most {span(outlook.bounds[step.name])})")
    twin = outlook.twin(step)
    if twin is not None and twin.state is TwinState.RUNNING and step.state is StepState.RUNNING:
        words.append(f"its twin has been running for {took(twin.started_at, None, now)}")
    return " · ".join(words)


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


def answer_words(update: SignalRow) -> str:
    """Say what became of an update."""
    if update.answer is None:
        return "no answer yet" if update.delivered_seq is not None else "not delivered yet"
    reply = masked_json(update.reply or b"").decode(errors="backslashreplace")
    words = reply if update.answer == UpdateAnswer.RETURNED else describe_error(reply)
    return f"{update.answer}: {words}"


def signal_words(signal: SignalRow) -> tuple[str, str]:
    """Return a signal's name and payload for people. A request to cancel is put into words."""
    if signal.name == CANCEL:
        request = plain_object(signal.payload)
        note = f" ({request['note']})" if request.get("note") else ""
        return "cancel", f"asked by {request.get('actor', 'somebody')}{note}"
    payload = masked_json(signal.payload).decode(errors="backslashreplace")
    if signal.name.startswith(EVENT_PREFIX):
        awaited = awaited_of(signal.name)
        return f"event {awaited.type} ({awaited.path} {awaited.value!r})", payload
    return signal.name, payload


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
