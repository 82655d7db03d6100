"""`why`: a sentence or two about any run, true in every state: what it waits for, and what would move it.

Pure: facts in, words out.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.config import DEFAULT
from holdfast.event_names import awaited_of, event_words
from holdfast.lateness import due_words
from holdfast.lifecycle import RUN_ENDED, STEP_LIVE
from holdfast.model import (
    AT_TAG,
    BACKFILL_TAG,
    CANCEL,
    DEADLINE,
    REQUEST_PREFIX,
    SCHEDULE_TAG,
    UNDO_PREFIX,
    Breaker,
    BreakerState,
    Ending,
    Hold,
    HoldScope,
    Lane,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    request_key,
    undone_key,
)
from holdfast.namespaces import ALL, bare
from holdfast.step_words import step_state
from holdfast.store.limits import LimitRow
from holdfast.supervisor.facts import Facts
from holdfast.supervisor.outlook import Outlook
from holdfast.supervisor.phrases import counted, lower, quoted, remark
from holdfast.supervisor.said import (
    SentencePart,
    ago,
    command,
    parsed,
    parts,
    place,
    plain,
    reason,
    run_said,
    said,
    step_said,
)


class Why(msgspec.Struct, frozen=True):
    """Why a run is where it is: a sentence or two, whose parts say what they are."""

    text: str
    parts: list[SentencePart]
    state: str
    """The state that it is about, as commands name it: of the run, or of the step that it waits for."""


def explain(facts: Facts) -> str:
    """Return in a sentence or two what this run waits for, and what would move it. Of a fork, also say where it came
    from."""
    return plain(_sentence(facts))


def explained(facts: Facts) -> Why:
    """Return the same with its parts."""
    found = parts(_sentence(facts))
    return Why("".join(part.text for part in found), found, _state(facts))


def _sentence(facts: Facts) -> str:
    run = facts.run
    origin = (
        f" It was forked from {said('run', quoted(run.forked_from), run.forked_from)}."
        if run.forked_from is not None
        else ""
    )
    return _explained(facts) + origin + _occasion(run) + _promise(facts)


def _promise(facts: Facts) -> str:
    """Say whether the run keeps the promise of when it ends, or kept it."""
    run, expected = facts.run, None if facts.outlook is None else facts.outlook.eta
    found = due_words(run.due_at, run.finished_at, facts.now, expected)
    return f" It {'' if run.finished_at is not None else 'is '}{found}." if found else ""


def _state(facts: Facts) -> str:
    if facts.run.state not in {RunState.RUNNING, RunState.UNDOING}:
        return str(facts.run.state)
    first = foremost(facts)
    return str(facts.run.state) if first is None else step_state(first, facts.now)


def foremost(facts: Facts) -> StepRow | None:
    """Return the open step that most needs explaining. None if nothing is open."""
    is_undoing = facts.run.state is RunState.UNDOING
    live = [
        step
        for step in facts.steps
        if step.state in STEP_LIVE
        and step.key != DEADLINE
        and (not is_undoing or step.kind is StepKind.CHILD or step.key.startswith(UNDO_PREFIX))
    ]
    return min(live, key=_urgency, default=None)


def _occasion(run: RunRow) -> str:
    """Say what an open run was started for."""
    if run.tags is None or SCHEDULE_TAG not in run.tags or run.state in RUN_ENDED:
        return ""
    tags = parsed(run.tags)
    if SCHEDULE_TAG not in tags:
        return ""
    by = f" by backfill {tags[BACKFILL_TAG]}" if BACKFILL_TAG in tags else ""
    return (
        f" It was started{by} for the time {tags.get(AT_TAG)} of schedule {quoted(str(tags[SCHEDULE_TAG]))}."
    )


def _explained(facts: Facts) -> str:
    run = facts.run
    if run.state in RUN_ENDED:
        return _ended(facts)
    if run.state is RunState.HELD:
        return _held(facts)
    if run.state is RunState.STUCK:
        return _stuck(facts)
    if run.state is RunState.PENDING:
        return _pending(facts)
    if run.state is RunState.UNDOING:
        return _undoing(facts)
    requests = [row for row in facts.signals if row.name == CANCEL]
    undelivered = [row for row in requests if row.delivered_seq is None]
    if undelivered:
        asked = _asked_to_cancel(undelivered[0], facts.now)
        return f"{asked}; its code does not know yet. {facts.staff.who_goes_on()}"
    return (_cancel_delivered(requests[-1], facts) if requests else "") + _running(facts)


def _running(facts: Facts) -> str:
    live = [step for step in facts.steps if step.state in STEP_LIVE and step.key != DEADLINE]
    if not live:
        return _undecided(facts)
    asked_for = {step.key.removeprefix(REQUEST_PREFIX) for step in live if step.kind is StepKind.CALL}
    live = [step for step in live if step.kind is not StepKind.CALLBACK or step.key not in asked_for]
    first, *others = sorted(live, key=_urgency)
    scopes = [step for step in others if step.kind is StepKind.SERVE]
    others = [step for step in others if step.kind is not StepKind.SERVE]
    more = counted(len(others), "other step")
    return (
        _step(first, facts)
        + (f" {more} {'is' if len(others) == 1 else 'are'} open, too." if others else "")
        + "".join(f" {_serves(step, facts)}" for step in scopes)
        + _unserved(live, facts)
    )


def _urgency(step: StepRow) -> tuple[int, int]:
    """Return a sort key that puts first the step that most needs explaining: a step that waits for a person, then a
    step that nobody has claimed, then one that runs, then one that sleeps."""
    if step.quarantined:
        return -1, step.n
    if step.kind is StepKind.SERVE:
        return 4, step.n
    order = {StepState.READY: 0, StepState.RUNNING: 1, StepState.WAITING: 2}
    return order.get(StepState(step.state), 3), step.n


def _by(request: SignalRow, now: float) -> str:
    """Say who sent a request, when and why."""
    payload = parsed(request.payload.decode())
    return (
        f"by {payload.get('actor', 'somebody')} {ago(now - request.sent_at)} ago{remark(payload.get('note'))}"
    )


def _asked_to_cancel(request: SignalRow, now: float) -> str:
    return f"It was asked to cancel itself {_by(request, now)}"


def _cancel_delivered(request: SignalRow, facts: Facts) -> str:
    """Say that the run's code got the request to cancel. The run can still go on: as in asyncio, code may catch it."""
    return (
        f"{_asked_to_cancel(request, facts.now)}; its code got the request, and is cleaning up or goes on anyway: "
        f"{command('cancel', facts.run.id, '--force')} asks again. "
    )


# --- runs that have ended ---------------------------------------------------------------------------------------------


def _ended(facts: Facts) -> str:
    run = facts.run
    took = ago((run.finished_at or facts.now) - run.created_at)
    error = parsed(run.error)
    if run.state is RunState.UNDONE and error.get("by"):
        return (
            f"It succeeded, and what it did was undone later, because run {run_said(str(error['by']))}, which had started it, undid "
            f"what it did or a part of it: {command('why', str(error['by']))} says why."
        )
    if run.state is RunState.SUCCEEDED:
        return f"It succeeded, {took} after it was started; nothing is left to do."
    ended = _cancelled(facts) if _was_cancelled(run) else f"It failed{_culprit(facts)}"
    logs = "" if _was_cancelled(run) else _logs_words(_steps_that_ended_it(facts)[-1:], facts)
    return f"{ended}{_undone_words(facts)}.{logs} {_what_next(facts)}."


def _was_cancelled(run: RunRow) -> bool:
    return run.state is RunState.CANCELLED or run.ending == RunState.CANCELLED


def _cancelled(facts: Facts) -> str:
    entry = facts.last("cancel")
    if entry is not None:
        return f"It was cancelled by {entry.actor} {ago(facts.now - entry.at)} ago{remark(entry.note)}"
    request = next((row for row in facts.signals if row.name == CANCEL), None)
    return f"It was cancelled{f' {_by(request, facts.now)}' if request else remark(facts.run.note)}"


def _culprit(facts: Facts) -> str:
    """Name the step that ended the run, if one did, and the error."""
    error, where = reason(facts.run.error), ""
    for step in _steps_that_ended_it(facts)[-1:]:
        where = f" after {_how_it_failed(step, facts)}"
    return where + (f": {error}" if error else "")


def _how_it_failed(step: StepRow, facts: Facts) -> str:
    if step.kind is StepKind.CHILD:
        child = _child_of(step, facts)
        return f"its child run {run_said(child.id) if child else step_said(step)} did not succeed"
    if step.kind in {StepKind.CALLBACK, StepKind.ASK}:
        expired = parsed(step.error).get("ending") == Ending.TIMED_OUT
        name = said("step", step.name.rsplit(".", 1)[-1], str(step.n))
        return f"{'nobody answered' if expired else 'an error was the answer to'} {step.kind} {name}"
    if step.kind is StepKind.TIMER:
        return f"{step_said(step)} ran out"
    return f"step {step_said(step)} gave up at attempt {step.attempt}"


def _logs_words(steps: Sequence[StepRow], facts: Facts) -> str:
    """Say where to read what these steps have logged, if they have."""
    for step in steps:
        if lines := facts.log_lines.get(step.n):
            shows = f"{command('logs', facts.run.id, shlex.quote(step.key))} shows"
            return f" {shows} the {counted(lines, 'line')} that it logged."
    return ""


def _steps_that_ended_it(facts: Facts) -> list[StepRow]:
    """Return the steps whose failure ended the run. A step whose failure the code handled is not among them, nor is an
    undo."""
    error = parsed(facts.run.error)
    if "seq" in error:
        return [step for step in facts.steps if step.n in error.get("steps", ())]
    # An old version of Holdfast did not record these steps. Then it is the last step that failed with the run's own
    # error.
    run_error = error.get("type"), error.get("message")
    failed = [
        step
        for step in facts.steps
        if step.state is StepState.FAILED and step.delivered_seq and not step.key.startswith(UNDO_PREFIX)
    ]
    errors = [(step, parsed(step.error)) for step in failed]
    return [step for step, own in errors if (own.get("type"), own.get("message")) == run_error][-1:]


def _undone_words(facts: Facts) -> str:
    """Say what became of the things the run had done, and who decided so."""
    run = facts.run
    if run.ending is None:
        return ""
    done, total = _undo_count(facts.steps, facts.lanes, run.kept_n)
    stopped = facts.last("abandon")
    if stopped is not None:
        return (
            f"; {stopped.actor} stopped its undoing{remark(stopped.note)} after {done} of {total} undos, "
            "and the rest stays as it is"
        )
    if not total:
        return ""
    keys = {step.n: undone_key(step.key)[0] for step in facts.steps if step.key.startswith(UNDO_PREFIX)}
    skipped = [
        f"{entry.actor} skipped "
        f"{f'the undo of {keys[entry.n]}' if entry.n in keys else 'the undos that gave up'}{remark(entry.note)}"
        for entry in reversed(facts.journal)
        if entry.verb == "skip" and (entry.n is None or entry.n in keys)
    ]
    return "; what it had done has been undone" + (f", but {' and '.join(skipped)}" if skipped else "")


def _what_next(facts: Facts) -> str:
    """Say what would move the run, now that it has ended."""
    run = facts.run
    if facts.retried is not None:
        newest = facts.retried.id
        return f"It was retried as {run_said(newest)}: {command('why', newest)} says how that run is doing"
    if run.parent_id is not None:
        return f"Its parent decides what happens next: {command('why', run.parent_id)} says what that is"
    return _retry_words(run, _steps_that_ended_it(facts), parsed(run.error))


def _retry_words(run: RunRow, ended: Sequence[StepRow], error: Mapping[str, Any]) -> str:
    """Say what `retry` does to a run that has ended."""
    undone = len(error.get("undone", ()))
    timers = [step.key for step in ended if step.kind is StepKind.TIMER]
    keys = [step.key for step in ended if step.kind is not StepKind.TIMER]
    again = [" and ".join(keys[:3]) + (" …" if len(keys) > 3 else "")] if keys else []
    if undone:
        again.append(f"the {counted(undone, 'undone step')}")
    keeps = f"{command('retry', run.id)} keeps what was recorded"
    if again or timers:
        parts = [f"executes {' and '.join(again)} again"] if again else []
        parts += [f"begins {timers[0]} anew"] if timers else []
        return f"{keeps}, {', '.join(parts)}, and goes on"
    if run.state is RunState.CANCELLED or str(error.get("type", "")).endswith(".RunTimeout"):
        return f"{keeps} and goes on where it was"
    return f"{keeps} and replays its code, which fails in the same way unless the code has changed"


# --- runs that undo what they did -------------------------------------------------------------------------------------


def _undo_count(steps: Sequence[StepRow], lanes: Sequence[Lane], kept_n: int) -> tuple[int, int]:
    """Return (undos done, undos in all) of a run that undoes what it did, as far as its own rows show."""
    undoable = {lane.id for lane in lanes if lane.undo}
    tried: dict[str, StepRow] = {}
    effects = set()
    for step in steps:
        if step.key.startswith(UNDO_PREFIX):
            tried[undone_key(step.key)[0]] = step
        elif step.n > kept_n and (
            step.kind is StepKind.UNDO
            or (
                step.kind is StepKind.CALL
                and step.lane in undoable
                and (
                    step.state is StepState.SUCCEEDED or (step.state is StepState.CANCELLED and step.attempt)
                )
            )
        ):
            effects.add(step.key)
    tried = {key: step for key, step in tried.items() if not _had_nothing_to_undo(step)}
    done = sum(step.state is StepState.SUCCEEDED for step in tried.values())
    return done, len(effects | tried.keys())


def _had_nothing_to_undo(step: StepRow) -> bool:
    """True for the undo of a child that turned out to have nothing to undo."""
    return step.kind is StepKind.CHILD and step.output == b"false"


def _undoing(facts: Facts) -> str:
    done, total = _undo_count(facts.steps, facts.lanes, facts.run.kept_n)
    live = [step for step in facts.steps if step.state in STEP_LIVE and step.key.startswith(UNDO_PREFIX)]
    if not live:
        waits = [step for step in facts.steps if step.kind is StepKind.CHILD and step.state in STEP_LIVE]
        rest = _step(waits[0], facts) if waits else _undecided(facts)
        return f"It is undoing what it did, {done} of {total} done: {lower(rest)}"
    first = min(live, key=_urgency)
    if first.kind is StepKind.CHILD:
        return f"It is undoing what it did, {done + 1} of {total}: {lower(_step(first, facts))}"
    short = first.name.rsplit(".", 1)[-1]
    what = f"It is undoing what it did, {done + 1} of {total}: {said('step', short, str(first.n))} undoes {undone_key(first.key)[0]}"
    more = f" ({len(live)} in parallel)" if len(live) > 1 else ""
    return f"{what}{more}. {_step(first, facts)}"


# --- runs that wait for a person --------------------------------------------------------------------------------------


def _stuck(facts: Facts) -> str:
    run = facts.run
    last: dict[str, StepRow] = {}
    for step in facts.steps:
        if step.key.startswith(UNDO_PREFIX):
            last[undone_key(step.key)[0]] = step
    failed = [(key, step) for key, step in last.items() if step.state is StepState.FAILED]
    poison = [step for step in facts.steps if step.quarantined]
    if poison:
        left = len(poison) + len(failed) - 1
        others = (
            f" {counted(left, 'other step')} wait{'s' if left == 1 else ''} for a person, too."
            if left
            else ""
        )
        return f"It is stuck: {lower(_in_quarantine(poison[0], facts))}{others}"
    retry = command("retry", run.id)
    if not failed:
        cause = reason(run.note)
        return (
            f"It is stuck{f': {cause}' if cause else ''}; {retry} tries again, "
            f"{command('show', run.id)} shows the whole run."
        )
    key, step = failed[0]
    message = parsed(step.error).get("message")
    more = f" (and {counted(len(failed) - 1, 'other undo')} gave up)" if len(failed) > 1 else ""
    what = (
        f"the child run of step {key} could not be undone"
        if step.kind is StepKind.CHILD
        else f"{said('step', step.name.rsplit('.', 1)[-1], str(step.n))}, the undo of {key}, gave up at attempt {step.attempt}"
    )
    return (
        f"It is stuck: {what}{': ' + said('error', str(message)) if message else ''}{more}. Decide how it goes on: {retry} tries the undo again, "
        f"{command('skip', run.id, key, '--note', 'done by hand')} counts it as done, "
        f"{command('cancel', run.id, '--force')} stops undoing and leaves the rest as it is."
    )


def _held(facts: Facts) -> str:
    run = facts.run
    note, release = parsed(run.note), command("release", run.id)
    message = note.get("message", "")
    if note.get("why") == "drift":
        return (
            f"It is held because its code has changed and no longer fits what the run recorded: {said('error', str(message))}. "
            f"Deploy code that fits, then {release} lets it go on; "
            f"{command('cancel', run.id)} ends it and undoes what it did."
        )
    if note.get("why") == "bug":
        return (
            f"It is held because its workflow code raised {said('error', str(message))}. Nothing of that turn was kept. Mend the code and "
            f"deploy it, then {release} lets it go on from there; {command('cancel', run.id)} ends it and undoes what it "
            "did."
        )
    if note.get("why") == "refused":
        refusal = note.get("said") or "it gave no reason, which should not happen"
        return (
            f"It is held because the store refused {note.get('times', 'several')} times what it had to write: {said('error', str(refusal))}. "
            f"Once that is mended, {release} lets it try again."
        )
    if note:
        return f"It is held because it cannot be loaded: {said('error', str(message))}. Once that is mended, {release} lets it try again."
    entry = facts.last("hold")
    by = (
        f"has been held by {entry.actor} for {ago(facts.now - entry.at)}"
        if entry
        else "is held by an operator"
    )
    return f"It {by}{remark(run.note)}; {release} lets it go on."


def _in_quarantine(step: StepRow, facts: Facts) -> str:
    """Explain a step in quarantine. The command names its fingerprint, because a person decides about all steps that
    are alike."""
    entry = next((one for one in facts.quarantined if one.n == step.n), None)
    after = f" after {reason(step.error)}" if step.error else ""
    retry = command("retry", facts.run.id)
    if entry is None:
        return f"Step {step_said(step)} is in quarantine{after}; {retry} tries it again."
    return (
        f"Step {step_said(step)} has been in quarantine for {ago(facts.now - entry.at)}{after} ({entry.place}). "
        f"{command('quarantine', 'release', entry.fingerprint)} tries it again, and so does {retry}; "
        f"with `skip` or `fail` in place of `release` the run goes on without it.{_logs_words([step], facts)}"
    )


# --- runs that wait for a scheduler -----------------------------------------------------------------------------------


def limit_words(queue: int, facts: Facts) -> str | None:
    """Say which limit keeps what waits in a queue from beginning. None if no limit does."""
    row = full_limit(facts.limits.get(queue, ()))
    if row is None:
        return None
    name = bare(row.name)
    shows = command("limits", name)
    if row.kind == "limit":
        slots = "a slot" if row.takes == 1 else f"{row.takes} slots"
        if row.takes > row.most:
            has = row.most or "none"
            more = command("limits", "set", name, str(row.takes))
            return f"{slots} under {name}, which has {has}: {more} would give it enough{_moved(row)}"
        saved = ""
        if row.saved_for is not None:
            whom = "what takes several at once" if row.is_saved_for_others else "it"
            saved = f"; what is free is saved up for {whom}"
        taken = f"{row.used} of {row.most} are taken"
        return f"{slots} under {name}: {taken}, and {shows} says by whom{saved}{_moved(row)}"
    again_at = row.room.again_at
    when = "" if again_at is None else f": the next one may in {ago(again_at - row.now)}"
    if row.most == 0:
        when = ", whose number is 0"
    return f"its turn under the rate {name}{when}; {shows} says more"


def full_limit(limits: Sequence[LimitRow]) -> LimitRow | None:
    """Return the first of the limits and rates of a queue that has no room. None if all have."""
    return next((row for row in limits if not row.has_room), None)


def limit_in_short(row: LimitRow) -> str:
    """Say in a few words what has no room, for a list of runs."""
    name = bare(row.name)
    return f"waits for a slot under {name}" if row.kind == "limit" else f"waits for its turn under {name}"


def _moved(row: LimitRow) -> str:
    """Say why an adaptive limit is below its ceiling."""
    if not row.is_adaptive or row.is_set or row.most >= row.declared:
        return ""
    why = f": {row.moved}" if row.moved else ""
    return f"; the limit found its number by itself, {row.most} of {row.declared}{why}"


def _pending(facts: Facts) -> str:
    run, staff = facts.run, facts.staff
    if run.begin_at is not None and run.begin_at > facts.now:
        begins = f"It is to begin in {ago(run.begin_at - facts.now)}"
        return f"{begins}." if staff.schedulers else f"{begins}. {staff.no_scheduler()}."
    waited = ago(facts.now - max(run.created_at, run.begin_at or 0.0))
    if limit := limit_words(run.queue, facts):
        return f"It has been waiting for {waited} for {limit}."
    able = staff.schedulers
    if not able:
        return f"It has been waiting for a scheduler for {waited}. {staff.no_scheduler()}."
    who = f"the scheduler on {place(able[0])}" if len(able) == 1 else f"one of {len(able)} schedulers"
    return f"It has been waiting for {waited} for {who}, which is busy or about to start it."


def _undecided(facts: Facts) -> str:
    owner = facts.staff.node(facts.run.owner)
    if owner is not None and facts.staff.is_live(owner):
        return f"Its scheduler, {place(owner)}, is deciding what comes next."
    return f"What comes next is not decided yet. {facts.staff.who_goes_on()}"


# --- steps ------------------------------------------------------------------------------------------------------------


def _step(step: StepRow, facts: Facts) -> str:  # noqa: PLR0911  one sentence for each kind
    now = facts.now
    if step.kind is StepKind.TIMER:
        return _timer(step, facts)
    if step.kind is StepKind.SIGNAL:
        return _signal(step, facts)
    if step.kind is StepKind.SERVE:
        return _serves(step, facts)
    if step.kind is StepKind.ASK:
        return _ask(step, facts)
    if step.kind is StepKind.CALLBACK:
        return _callback(step, facts)
    if step.kind is StepKind.CHILD:
        return _child(step, facts)
    if step.state is StepState.RUNNING:
        return _executing(step, facts)
    if step.quarantined:
        return _in_quarantine(step, facts)
    gate = _gate_words(step, facts)
    if gate:
        return f"Step {step_said(step)} has been waiting for {ago(now - step.issued_at)}: {gate}."
    if step.ready_at > now:
        return _backing_off(step, facts)
    return _unclaimed(step, facts)


def _timer(step: StepRow, facts: Facts) -> str:
    left_s, staff = step.ready_at - facts.now, facts.staff
    if left_s <= 0:
        return f"Its timer {step_said(step)} came due {ago(-left_s)} ago. {staff.who_goes_on()}"
    asleep = f"It sleeps ({step_said(step)}) for another {ago(left_s)}."
    owner = staff.node(facts.run.owner)
    can_wake = staff.schedulers or (owner is not None and staff.is_live(owner))
    return asleep if can_wake else f"{asleep} Nobody could wake it now. {staff.no_scheduler()}."


def _signal(step: StepRow, facts: Facts) -> str:
    undelivered = [row for row in facts.signals if row.name == step.name and row.delivered_seq is None]
    what = event_words(step.name) or f"the signal {step.name!r}"
    if undelivered:
        sent = ago(facts.now - undelivered[0].sent_at)
        return f"It waits for {what}, which was sent {sent} ago. {facts.staff.who_goes_on()}"
    if what != f"the signal {step.name!r}":
        return _event(step, what, facts)
    declared = facts.signals_declared
    data = " --data JSON" if declared is None else declared.data.get(step.name, "")
    send = said("command", f"`holdfast signal {quoted(facts.run.id)} {quoted(step.name)}{data}`")
    waited = ago(facts.now - step.issued_at)
    return f"It has been waiting for {waited} for the signal {step.name!r}{_set_aside(step, facts)}: {send} sends it."


def _event(step: StepRow, what: str, facts: Facts) -> str:
    _, kind, path, value = awaited_of(step.name)
    about = f"--subject {quoted(value)} " if path == "subject" else ""
    send = f"`holdfast emit {quoted(kind)} {about}--data JSON`"
    waited = ago(facts.now - step.issued_at)
    return f"It has been waiting for {waited} for {what}{_set_aside(step, facts)}: {send} sends one."


def _ask(step: StepRow, facts: Facts) -> str:
    """Say who is asked. What they are asked is a payload."""
    seen = next((one for one in facts.asks if one.row.n == step.n), None)
    waited = ago(facts.now - step.issued_at)
    if seen is None:
        return f"It has been waiting for {waited} for people to answer."
    row, people = seen
    asked = ", ".join(one.who for one in people if one.handed_to is None and one.answered_at is None)
    given = sum(one.answered_at is not None for one in people)
    has = f"; {given} of {row.quorum} have answered" if row.quorum > 1 else ""
    left = "" if row.expires_at is None else f" It expires in {ago(max(0.0, row.expires_at - facts.now))}."
    move = (
        f"`holdfast asks {row.id}` shows the question, and `holdfast answer {row.id} --data JSON` answers it."
    )
    return f"It has been waiting for {waited} for an answer of {asked}{has}.{left} {move}"


def _callback(step: StepRow, facts: Facts) -> str:
    """Say which step handed an address on, and until when an answer counts. The address itself stands nowhere."""
    request = next((one for one in facts.steps if one.key == request_key(step.key)), None)
    since = step.issued_at if request is None else request.finished_at or step.issued_at
    left = (
        "" if step.complete_by is None else f" It expires in {ago(max(0.0, step.complete_by - facts.now))}."
    )
    again = (
        f" The callback can be asked for {step.attempts_max} times." if step.attempts_max > 1 and left else ""
    )
    move = said("command", f"`holdfast callback {quoted(facts.run.id)} {quoted(step.key)} --data JSON`")
    return (
        f"It has been waiting for {ago(facts.now - since)} for the callback of step {step_said(step)} ({step.name}) "
        f"by another system.{left}{again} {move} answers in its place."
    )


def _serves(step: StepRow, facts: Facts) -> str:
    """Say that the run serves an update. `why` asks how to call it, too."""
    declared = facts.signals_declared
    data = " --data JSON" if declared is None else declared.updates.get(step.name, "")
    call = said("command", f"`holdfast update {quoted(facts.run.id)} {quoted(step.name)}{data}`")
    calls = [row for row in facts.signals if row.update == step.name and row.answer is None]
    text = f"It has been serving the update {step.name!r} for {ago(facts.now - step.issued_at)}"
    if not calls:
        return f"{text}: {call} calls it."
    return f"{text}; {counted(len(calls), 'call')} {'has' if len(calls) == 1 else 'have'} no answer yet."


def _unserved(live: Sequence[StepRow], facts: Facts) -> str:
    """Name the updates that wait because no scope that serves them is open."""
    served = {step.name for step in live if step.kind is StepKind.SERVE}
    waiting = [
        row
        for row in facts.signals
        if row.update is not None and row.update not in served and row.answer is None
    ]
    if not waiting:
        return ""
    first = waiting[0]
    more = f" ({len(waiting)} calls wait)" if len(waiting) > 1 else ""
    return (
        f" An update has been waiting for {ago(facts.now - first.sent_at)}: nothing in the run serves {first.update!r} now"
        f"{more}."
    )


def _set_aside(step: StepRow, facts: Facts) -> str:
    """Name the newest signal of this name that was set aside because no wait could read it; empty if there is none."""
    aside = [row for row in facts.signals if row.name == step.name and row.set_aside is not None]
    if not aside:
        return ""
    last = aside[-1]
    return f"; the one sent {ago(facts.now - last.sent_at)} ago (key {last.key}) did not fit and was set aside ({last.set_aside})"


def _child_of(step: StepRow, facts: Facts) -> RunRow | None:
    return next((child for child in facts.children if child.parent_n == step.n), None)


def _child(step: StepRow, facts: Facts) -> str:
    child, waited = _child_of(step, facts), ago(facts.now - step.issued_at)
    if step.key.startswith(UNDO_PREFIX):
        return _child_undo(step, facts)
    if step.n in facts.joins:
        joined = facts.joins[step.n]
        return (
            f"It has been waiting for {waited} for run {run_said(joined)} ({step.name}), which it joined: "
            f"{command('why', joined)} says what that run waits for."
        )
    if child is None:
        return f"It has been waiting for {waited} for its child run {step_said(step)} ({step.name})."
    if child.state in RUN_ENDED:
        return f"Its child run {run_said(child.id)} has ended ({child.state}). {facts.staff.who_goes_on()}"
    doing = _CHILD_DOES[child.state]
    return f"It has been waiting for {waited} for its child run {run_said(child.id)}, {doing}: {command('why', child.id)} says more."


_CHILD_DOES = {
    RunState.PENDING: "which waits for a scheduler",
    RunState.RUNNING: "which is running",
    RunState.UNDOING: "which is undoing what it did",
    RunState.HELD: "which is held",
    RunState.STUCK: "which is stuck",
}


def _child_undo(step: StepRow, facts: Facts) -> str:
    """Explain a step that waits until a child is undone."""
    key = undone_key(step.key)[0]
    asked = next((row for row in facts.steps if row.key == key), None)
    child = None if asked is None else _child_of(asked, facts)
    saga = "" if facts.run.state is RunState.UNDOING else " What a saga did is being undone."
    if child is None or child.state in RUN_ENDED:
        ended = (
            f"Its child run {key} is undone."
            if child is None
            else f"Its child run {run_said(child.id)} is {child.state}."
        )
        return f"{ended}{saga} {facts.staff.who_goes_on()}"
    return (
        f"It has been waiting for {ago(facts.now - step.issued_at)} until its child run {run_said(child.id)}, "
        f"{_CHILD_DOES[child.state]}, is undone: {command('why', child.id)} says more.{saga}"
    )


def _executing(step: StepRow, facts: Facts) -> str:
    staff = facts.staff
    agent = staff.node(step.agent)
    where = f"on {place(agent)}" if agent else "on an agent that is no longer in the store"
    text = f"Step {step_said(step)} has been running {where} for {ago(facts.now - (step.started_at or facts.now))}, attempt {step.attempt}"
    if agent is None or not staff.is_live(agent):
        gone = ""
        if agent is not None:
            gone = f"; that agent has been gone for {ago(facts.now - min(agent.lease_until, agent.retired_at or facts.now))}"
        if staff.has_supervisor:
            return f"{text}{gone}, and a Supervisor is about to reclaim the step."
        return f"{text}{gone}, and no Supervisor is up to reclaim the step: start one with {staff.start('supervisor')}."
    if facts.outlook is not None:
        text += _taking_long(step, facts, facts.outlook)
    if step.complete_by is not None:
        left = step.complete_by - facts.now
        text += f"; it times out in {ago(left)}" if left > 0 else f"; it is overdue by {ago(-left)}"
    return text + "."


def _taking_long(step: StepRow, facts: Facts, outlook: Outlook) -> str:
    text = ""
    if outlook.straggles(step, facts.now):
        text = f"; that is longer than such steps usually take, which is at most {ago(outlook.bounds[step.name])}"
    twin = outlook.twin(step)
    if twin is not None and twin.started_at is not None:
        agent = facts.staff.node(twin.agent)
        where = f"on {place(agent)}" if agent else "elsewhere"
        text += f"; its twin has been running {where} for {ago(facts.now - twin.started_at)}"
    return text


def gate_of(
    step: StepRow, run: RunRow, lanes: Sequence[Lane], holds: Sequence[Hold], breakers: Sequence[Breaker]
) -> Hold | Breaker | None:
    """Return what keeps a ready step from beginning: a hold, or the breaker of its dependency. None if nothing does."""
    lane = next((lane for lane in lanes if lane.id == step.lane), None)
    depends = lane.depends if lane else step.name
    covered = {
        HoldScope.WORKFLOW: run.workflow,
        HoldScope.STEP: step.name,
        HoldScope.DEPENDENCY: depends,
        HoldScope.NAMESPACE: run.namespace,
        HoldScope.ALL: "",
    }
    not_closed = [row for row in breakers if row.name == depends and row.state is not BreakerState.CLOSED]
    return next(
        (hold for hold in holds if covered[hold.scope] == hold.value), not_closed[0] if not_closed else None
    )


def gate_in_short(gate: Hold | Breaker) -> str:
    """Describe a gate in a few words, for a list of runs."""
    if isinstance(gate, Breaker):
        return f"waits for {gate.name}, whose breaker is {gate.state}"
    return f"is held by {gate.actor}{remark(gate.note)}"


def _gate_words(step: StepRow, facts: Facts) -> str | None:
    gate = gate_of(step, facts.run, facts.lanes, facts.holds, facts.breakers)
    if gate is None:
        return None
    if isinstance(gate, Hold):
        return _hold_words(gate, facts.now)
    words = _breaker_words(gate, facts.now)
    if not gate.forced and not facts.staff.has_supervisor:
        words += (
            f". But that takes a Supervisor, and none is up: start one with {facts.staff.start('supervisor')}"
        )
    return words


def _hold_words(hold: Hold, now: float) -> str:
    what = "everything" if hold.scope is HoldScope.ALL else f"the {hold.scope} {hold.value}"
    options = (
        ["--all", "--namespace", ALL] if hold.scope is HoldScope.ALL else [f"--{hold.scope}", hold.value]
    )
    what = said("hold", what, f"{hold.scope}:{hold.value}")
    return (
        f"{what} has been held by {hold.actor} for {ago(now - hold.at)}{remark(hold.note)}; "
        f"{command('release', *options)} lets it go on"
    )


def breaker_words(row: Breaker, now: float) -> str:
    """Explain a breaker that is not closed, in half a sentence."""
    return plain(_breaker_words(row, now))


def _breaker_words(row: Breaker, now: float) -> str:
    name = said("breaker", row.name, row.name)
    open_for, reset = ago(now - (row.opened_at or now)), command("breakers", "reset", row.name)
    if row.forced:
        return (
            f"the breaker of {name} was opened by {row.actor} {open_for} ago{remark(row.note)}; "
            f"it stays open until {reset} lets one step try it"
        )
    why = ": ".join(part for part in (row.note, row.error) if part)
    trouble = f"{name} has been in trouble for {open_for}{remark(why)}"
    if row.state is BreakerState.OPEN:
        left = ago((row.open_until or now) - now)
        return (
            f"{trouble}; its breaker is open for another {left}, then one step tries it again; "
            f"waiting costs no attempt; {reset} tries it now"
        )
    return (
        f"{trouble}; it is being tried with {counted(row.wave, 'step')} at a time; waiting costs no attempt"
    )


def _backing_off(step: StepRow, facts: Facts) -> str:
    after = f" after {reason(step.error)}" if step.error else ""
    text = (
        f"Step {step_said(step)} backs off{after}; attempt {step.spent + 1} of {step.attempts_max} begins in "
        f"{ago(step.ready_at - facts.now)}, and {command('retry', facts.run.id)} begins it at once"
    )
    missing = _missing_agent(step, facts)
    return (f"{text}, but {missing}." if missing else f"{text}.") + _logs_words([step], facts)


def _unclaimed(step: StepRow, facts: Facts) -> str:
    if limit := limit_words(step.queue, facts):
        return f"Step {step_said(step)} has been waiting for {ago(facts.now - step.ready_at)} for {limit}."
    text = f"Step {step_said(step)} has been ready for {ago(facts.now - step.ready_at)}"
    missing = _missing_agent(step, facts)
    if missing:
        return f"{text}, but {missing}."
    able = facts.staff.able(step.name, _needs(step, facts))
    if step.losses >= DEFAULT.suspect_losses:
        return (
            f"{text}; its agents were lost {step.losses} times while it ran, so it may be what kills them. "
            f"An agent begins one such step at a time, and this one waits for its turn on {counted(len(able), 'agent')}."
        )
    who = f"the agent on {place(able[0])}" if len(able) == 1 else f"any of {len(able)} agents"
    return f"{text}; {who} can execute it, and is busy or about to claim it."


def _missing_agent(step: StepRow, facts: Facts) -> str:
    """Say that no live agent could execute the step, and what to start; empty if one can."""
    needs, staff = _needs(step, facts), facts.staff
    if staff.able(step.name, needs):
        return ""
    start = staff.start("agent", step.name, needs)
    if staff.agents(step.name) and needs:
        return f"no live agent with {step.name} has {', '.join(needs)}: start one with {start}"
    return f"{staff.no_agent(step.name)}: start one with {start}"


def _needs(step: StepRow, facts: Facts) -> Sequence[str]:
    return next((lane.needs for lane in facts.lanes if lane.id == step.lane), ())
