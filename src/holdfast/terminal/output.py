"""What commands print: JSON for scripts, and text for people at a terminal. It imports rich only for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from holdfast.durations import Eta
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import Attempt, JournalEntry, RunRow, RunState, SignalRow, StepRow, Twin, UpdateAnswer
from holdfast.supervisor.phrases import parsed
from holdfast.terminal.lines import json_document, print_words
from holdfast.terminal.wording import BROKEN, COLOURS, GLYPHS, json_text, plain_object, plain_value, progress

if TYPE_CHECKING:
    from holdfast.terminal.screen import Screen

Object = dict[str, Any]


def print_json(value: Any) -> None:
    """Print one JSON document: on one line for a pipe, indented for a terminal."""
    indent = 2 if sys.stdout.isatty() else None
    print(json_document(value, indent), flush=True)


def print_line(value: Any) -> None:
    """Print one of many JSON documents, each on a line of its own."""
    print(json_document(value), flush=True)


def print_result(raw: bytes | None) -> None:
    """Print a workflow's result. At a terminal, None is not printed."""
    value = plain_value(raw)
    if value is not None or not sys.stdout.isatty():
        print(json_text(value), flush=True)


def say(line: str, state: str | None = None) -> None:
    """Print one line for people, after the glyph of a state if one is given."""
    if state is not None:
        print_words(f"{GLYPHS.get(state, '·')} ", COLOURS.get(state), end=False)
    print_words(line)


def screen(*, to_errors: bool = False) -> Screen:
    """Return a screen for people: on standard output, or on standard error for what only accompanies a result."""
    from holdfast.terminal.screen import Screen  # noqa: PLC0415  rich takes longer to load than most commands to run

    return Screen(stderr=to_errors, soft_wrap=False)


def shown_path(file: str) -> str:
    """Return a path as seen from the working folder, if that is shorter."""
    return min(file, os.path.relpath(file), key=len)


@contextmanager
def stdout_kept(as_json: bool) -> Iterator[TextIO]:
    """With --json, keep standard output for JSON: what the author's code and the programs it starts print meanwhile
    goes to standard error. Yields the stream that is still standard output."""
    if not as_json:
        yield sys.stdout
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(kept, "w", encoding="utf-8", closefd=False) as stream:
            yield stream
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


# --- rows as JSON objects -----------------------------------------------------------------------------------------


def moment(at: float | None) -> str | None:
    """Return a time in UTC: 2030-01-31T12:00:00.250Z."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def local_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def seconds(begun: float | None, ended: float | None) -> float | None:
    return None if begun is None or ended is None else round(max(0.0, ended - begun), 6)


def error_object(raw: str | None) -> Object | None:
    if raw is None:
        return None
    recorded = plain_object(raw)
    name = str(recorded.get("type", "")).removeprefix("builtins.")
    message = recorded.get("message", recorded.get(BROKEN, ""))
    found: Object = {"type": name.removeprefix("holdfast.errors."), "message": message}
    if recorded.get("step"):
        found["step"] = recorded["step"]
    if isinstance(cause := recorded.get("cause"), dict):
        found["cause"] = {key: cause.get(key, "") for key in ("type", "message")}
    return found


def note_text(note: str | None) -> str | None:
    """Return the note of a run as text. That of a held or stuck run is a record, which `why` puts into words."""
    recorded = parsed(note)
    return str(recorded.get("message", "")) if recorded else note


def run_object(run: RunRow) -> Object:
    """Return a run without its payloads."""
    fraction, note = progress(run.progress)
    return {
        "id": run.id,
        "workflow": run.workflow,
        "version": run.version,
        "state": str(run.state),
        "namespace": run.namespace,
        "priority": run.priority,
        "fair": run.fair,
        "tags": plain_object(run.tags),
        "parent_id": run.parent_id,
        "started_by": run.started_by,
        "retry_of": run.retry_of,
        "forked_from": run.forked_from,
        "generation": run.generation,
        "progress": None if run.progress is None else {"fraction": fraction, "note": note},
        "note": note_text(run.note),
        "created_at": moment(run.created_at),
        "started_at": moment(run.started_at),
        "finished_at": moment(run.finished_at),
        "deadline": moment(run.deadline),
        "begin_at": moment(run.begin_at),
        "due_at": moment(run.due_at),
        "seconds": seconds(run.created_at, run.finished_at),
    }


def eta_object(eta: Eta | None, now: float) -> Object | None:
    """Return when a run will probably end."""
    if eta is None:
        return None
    return {
        "at": moment(now + eta.left_s),
        "left_s": round(eta.left_s, 3),
        "most_s": round(eta.most_s, 3),
        "samples": eta.samples,
    }


def twin_object(twin: Twin | None) -> Object | None:
    if twin is None:
        return None
    return {
        "state": str(twin.state),
        "agent": twin.agent,
        "made_at": moment(twin.made_at),
        "started_at": moment(twin.started_at),
        "ended_at": moment(twin.ended_at),
    }


def result_object(run: RunRow, steps: Sequence[StepRow], *, why: str = "") -> Object:
    """Return what `run`, `watch` and `start` print: with `output` if the run succeeded, with `error` if it did not."""
    found: Object = {"id": run.id, "state": str(run.state)}
    if run.state is RunState.SUCCEEDED:
        found["output"] = plain_value(run.output)
    elif run.error is not None:
        found["error"] = error_object(run.error)
    elif run.state in RUN_ENDED:
        found["error"] = {
            "type": f"Run{run.state.capitalize()}",
            "message": run.note or f"it was {run.state}",
        }
    elif why:
        found["error"] = {"type": "NotEnded", "message": why}
    found["workflow"] = run.workflow
    found["seconds"] = seconds(run.created_at, run.finished_at)
    found["steps"] = [step_object(step) for step in steps]
    return found


def step_object(step: StepRow) -> Object:
    return {
        "key": step.key,
        "name": step.name,
        "kind": str(step.kind),
        "state": str(step.state),
        "attempts": step.attempt,
        "started_at": moment(step.started_at or step.issued_at),
        "finished_at": moment(step.finished_at),
        "seconds": seconds(step.started_at or step.issued_at, step.finished_at),
        "error": error_object(step.error) if step.state == "failed" else None,
    }


def whole_step_object(step: StepRow, attempts: Sequence[Attempt]) -> Object:
    """Return a step with its payloads, and with the attempts that did not become its outcome."""
    return step_object(step) | {
        "n": step.n,
        "input": plain_value(step.input),
        "output": plain_value(step.output),
        "issued_at": moment(step.issued_at),
        "ready_at": moment(step.ready_at),
        "agent": step.agent,
        "quarantined": step.quarantined,
        "spent": step.spent,
        "losses": step.losses,
        "timeouts": step.timeouts,
        "throttled": step.throttled,
        "delivered_seq": step.delivered_seq,
        "failed_attempts": [attempt_object(attempt) for attempt in attempts],
    }


def attempt_object(attempt: Attempt) -> Object:
    return {
        "attempt": attempt.attempt,
        "ending": str(attempt.ending),
        "agent": attempt.agent,
        "started_at": moment(attempt.started_at),
        "finished_at": moment(attempt.finished_at),
        "error": error_object(attempt.error),
    }


def signal_object(signal: SignalRow) -> Object:
    return {
        "name": signal.name,
        "key": signal.key,
        "payload": plain_value(signal.payload),
        "sent_at": moment(signal.sent_at),
        "delivered": signal.delivered_seq is not None,
        "set_aside": signal.set_aside,
    }


def update_object(update: SignalRow) -> Object:
    reply = None if update.reply is None else update.reply.decode()
    returned = update.answer == UpdateAnswer.RETURNED
    return {
        "name": update.update,
        "key": update.key,
        "payload": plain_value(update.payload),
        "sent_at": moment(update.sent_at),
        "delivered": update.delivered_seq is not None,
        "answer": update.answer,
        "reply": plain_value(update.reply) if returned else None,
        "error": None if returned else error_object(reply),
        "replied_at": moment(update.replied_at),
    }


def journal_object(entry: JournalEntry) -> Object:
    return {
        "at": moment(entry.at),
        "actor": entry.actor,
        "verb": entry.verb,
        "n": entry.n,
        "note": entry.note,
        "via": entry.via,
        "request": entry.request,
    }


def by_state(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of runs by state, in the order of a run's life, without those that are zero."""
    return {state: counts[state] for state in RunState if counts.get(state)}
