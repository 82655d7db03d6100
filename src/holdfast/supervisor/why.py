"""`why`: for any run one true sentence or two, what it waits for and what would move it. Pure: facts in, words out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.config import DEFAULT
from holdfast.lifecycle import RUN_ENDED, STEP_LIVE
from holdfast.model import (
    CANCEL,
    DEADLINE,
    UNDO_PREFIX,
    Breaker,
    BreakerState,
    Hold,
    HoldScope,
    Lane,
    RunRow,
    RunState,
    SignalRow,
    StepKind,
    StepRow,
    StepState,
    undone_key,
)
from holdfast.supervisor.facts import Facts
from holdfast.supervisor.outlook import Outlook
from holdfast.supervisor.phrases import ago, command, counted, lower, parsed, quoted, reason, remark
from holdfast.supervisor.staff import place


def explain(facts: Facts) -> str:
    """What this run waits for, and what would move it."""
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
    asked = [row for row in facts.signals if row.name == CANCEL]
    waiting = [row for row in asked if row.delivered_seq is None]
    if waiting:
        return f"It was asked {_by(waiting[0], facts.now)} to cancel itself. {facts.staff.next_hand()}"
    return (_heard(asked[-1], facts) if asked else "") + _running(facts)


def _running(facts: Facts) -> str:
    live = [step for step in facts.steps if step.state in STEP_LIVE and step.key != DEADLINE]
    if not live:
        return _undecided(facts)
    first, *others = sorted(live, key=_urgency)
    more = counted(len(others), "other step")
    return _step(first, facts) + (
        f" {more} of it {'is' if len(others) == 1 else 'are'} open, too." if others else ""
    )


def _urgency(step: StepRow) -> tuple[int, int]:
    """What most needs explaining comes first: what waits for a person, what nobody works on, what runs, what sleeps."""
    if step.quarantined:
        return -1, step.n
    order = {StepState.READY: 0, StepState.RUNNING: 1, StepState.WAITING: 2}
    return order.get(StepState(step.state), 3), step.n


def _by(request: SignalRow, now: float) -> str:
    """Who sent it, when and why."""
    told = parsed(request.payload.decode())
    return f"by {told.get('actor', 'somebody')} {ago(now - request.sent_at)} ago{remark(told.get('note'))}"


def _heard(request: SignalRow, facts: Facts) -> str:
    """It was asked to cancel itself, and is still here: its code may do as it likes, as in asyncio."""
    return (
        f"It was asked {_by(request, facts.now)} to cancel itself; its code heard that, and is cleaning up or goes on all "
        f"the same: {command('cancel', facts.run.id, '--force')} asks again. "
    )


# --- runs that have ended ---------------------------------------------------------------------------------------------


def _ended(facts: Facts) -> str:
    run = facts.run
    took = ago((run.finished_at or facts.now) - run.created_at)
    error = parsed(run.error)
    if run.state is RunState.UNDONE and error.get("by"):
        return (
            f"It succeeded, and what it did was undone when run {error['by']}, which had started it, took itself back: "
            f"{command('why', error['by'])} says why."
        )
    if run.state is RunState.SUCCEEDED:
        return f"It succeeded, {took} after it was started; nothing is left to do."
    said = _cancelled(facts) if _was_cancelled(run) else f"It failed{_culprit(facts)}"
    return f"{said}{_undone_words(facts)}. {_again(facts)}."


def _was_cancelled(run: RunRow) -> bool:
    return run.state is RunState.CANCELLED or run.ending == RunState.CANCELLED


def _cancelled(facts: Facts) -> str:
    act = facts.last("cancel")
    if act is not None:
        return f"It was cancelled by {act.actor} {ago(facts.now - act.at)} ago{remark(act.note)}"
    request = next((row for row in facts.signals if row.name == CANCEL), None)
    return f"It was cancelled{f' {_by(request, facts.now)}' if request else remark(facts.run.note)}"


def _culprit(facts: Facts) -> str:
    """The step that ended the run, if one did, and the error."""
    error, where = reason(facts.run.error), ""
    for step in ended_by(facts)[-1:]:
        where = f" after step {step.key} gave up at attempt {step.attempt}"
        if step.kind is StepKind.CHILD:
            child = _child_of(step, facts)
            where = f" after its child run {child.id if child else step.key} did not succeed"
    return where + (f": {error}" if error else "")


def ended_by(facts: Facts) -> list[StepRow]:
    """The steps that ended the run. One whose failure the code handled is none of them, nor is an undo."""
    error = parsed(facts.run.error)
    if "seq" in error:
        return [step for step in facts.steps if step.n in error.get("steps", ())]
    # It ended under a version that did not record it: what failed with just that error.
    mark = error.get("type"), error.get("message")
    failed = [
        step
        for step in facts.steps
        if step.state is StepState.FAILED and step.delivered_seq and not step.key.startswith(UNDO_PREFIX)
    ]
    told = [(step, parsed(step.error)) for step in failed]
    return [step for step, said in told if (said.get("type"), said.get("message")) == mark][-1:]


def _undone_words(facts: Facts) -> str:
    """What became of what it had done, and who decided so."""
    run = facts.run
    if run.ending is None:
        return ""
    done, total = undo_count(facts.steps, facts.lanes, run.kept_n)
    stopped = facts.last("abandon")
    if stopped is not None:
        return f"; {stopped.actor} stopped its undoing{remark(stopped.note)}: {done} of {total} undone, the rest stays"
    if not total:
        return ""
    keys = {step.n: undone_key(step.key)[0] for step in facts.steps if step.key.startswith(UNDO_PREFIX)}
    skipped = [
        f"{entry.actor} skipped "
        f"{f'the undo of {keys[entry.n]}' if entry.n in keys else 'what gave up'}{remark(entry.note)}"
        for entry in reversed(facts.journal)
        if entry.verb == "skip" and (entry.n is None or entry.n in keys)
    ]
    return "; what it had done is undone" + (f", but {' and '.join(skipped)}" if skipped else "")


def _again(facts: Facts) -> str:
    """What would move it now."""
    run = facts.run
    if facts.retried is not None:
        newest = facts.retried.id
        return f"It was tried again as {newest}: {command('why', newest)} says how that is"
    if run.parent_id is not None:
        return f"What follows is up to its parent: {command('why', run.parent_id)}"
    return _retry_words(run, ended_by(facts), parsed(run.error))


def _retry_words(run: RunRow, ended: Sequence[StepRow], error: Mapping[str, Any]) -> str:
    """What `retry` does to a run that has ended."""
    again = " and ".join(step.key for step in ended[:3]) + (" …" if len(ended) > 3 else "")
    undone = len(error.get("undone", ()))
    redone = [f"executes {again} again"] if ended else []
    if undone:
        redone.append(f"does the {undone} undone step{'s' if undone > 1 else ''} anew")
    keeps = f"{command('retry', run.id)} keeps what was recorded"
    if redone:
        return f"{keeps}, {' and '.join(redone)}, and goes on"
    if run.state is RunState.CANCELLED or str(error.get("type", "")).endswith(".RunTimeout"):
        return f"{keeps} and goes on where it was"
    return f"{keeps}, runs its code on that again, and fails in the same way unless the code was changed"


# --- runs that take themselves back -----------------------------------------------------------------------------------


def undo_count(steps: Sequence[StepRow], lanes: Sequence[Lane], kept_n: int) -> tuple[int, int]:
    """(undos done, undos to do in all) of a run that takes itself back, as far as its own rows tell."""
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
    done = sum(step.state is StepState.SUCCEEDED for step in tried.values())
    return done, len(effects | tried.keys())


def _undoing(facts: Facts) -> str:
    done, total = undo_count(facts.steps, facts.lanes, facts.run.kept_n)
    live = [step for step in facts.steps if step.state in STEP_LIVE and step.key.startswith(UNDO_PREFIX)]
    if not live:
        waits = [step for step in facts.steps if step.kind is StepKind.CHILD and step.state in STEP_LIVE]
        rest = _step(waits[0], facts) if waits else _undecided(facts)
        return f"It is undoing, {done} of {total} done: {lower(rest)}"
    first = min(live, key=_urgency)
    short = first.name.rsplit(".", 1)[-1]
    what = f"It is undoing {done + 1} of {total}: {short}, which undoes {undone_key(first.key)[0]}"
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
        others = f" {left} more of it wait{'s' if left == 1 else ''} for a person, too." if left else ""
        return f"It is stuck: {lower(_in_quarantine(poison[0], facts))}{others}"
    retry = f"{command('retry', run.id)} tries again"
    if not failed:
        told = reason(run.note)
        return (
            f"It is stuck{f': {told}' if told else ''}; {retry}, {command('show', run.id)} shows all of it."
        )
    key, step = failed[0]
    said = parsed(step.error).get("message")
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    return (
        f"It is stuck: {step.name.rsplit('.', 1)[-1]}, the undo of {key}, gave up at attempt {step.attempt}"
        f"{f': {said}' if said else ''}{more}; {retry}, {command('skip', run.id, key, '--note', 'done by hand')} counts it "
        f"as done, {command('cancel', run.id, '--force')} leaves it is."
    )


def _held(facts: Facts) -> str:
    run = facts.run
    told, release = parsed(run.note), command("release", run.id)
    message = told.get("message", "")
    if told.get("why") == "drift":
        return (
            f"It is held because its code changed under it: {message}; "
            f"deploy code that fits what is recorded, then {release} lets it go on; "
            f"{command('cancel', run.id)} ends it, and undoes what it did."
        )
    if told.get("why") == "refused":
        said = told.get("said") or "it gave no reason, which should not happen"
        return (
            f"It is held because the store refused what it had to write, {told.get('times', 'several')} times: {said}; "
            f"once that is mended, {release} lets it try again."
        )
    if told:
        return f"It is held because it cannot be loaded: {message}; once that is mended, {release} lets it try again."
    act = facts.last("hold")
    by = f"has been held by {act.actor} for {ago(facts.now - act.at)}" if act else "is held by an operator"
    return f"It {by}{remark(run.note)}; {release} lets it go on."


def _in_quarantine(step: StepRow, facts: Facts) -> str:
    """Named by its fingerprint, because whoever decides about it decides about all that are alike."""
    one = next((one for one in facts.quarantined if one.n == step.n), None)
    after = f" after {reason(step.error)}" if step.error else ""
    retry = command("retry", facts.run.id)
    if one is None:
        return f"Step {step.key} is in quarantine{after}; {retry} tries it again."
    return (
        f"Step {step.key} has been in quarantine for {ago(facts.now - one.at)}{after} ({one.place}); "
        f"{command('quarantine', 'release', one.fingerprint)} tries it again, as does {retry}; "
        f"`skip` or `fail` instead of `release` goes on without it."
    )


# --- runs that wait for a scheduler -----------------------------------------------------------------------------------


def _pending(facts: Facts) -> str:
    run, staff = facts.run, facts.staff
    waited = ago(facts.now - run.created_at)
    able = staff.schedulers
    if not able:
        return f"It has been waiting for a scheduler for {waited}. {staff.no_scheduler()}."
    who = f"the scheduler on {place(able[0])}" if len(able) == 1 else f"one of {len(able)} schedulers"
    return f"It has been waiting for {waited} for {who}, which is busy or about to take it up."


def _undecided(facts: Facts) -> str:
    owner = facts.staff.node(facts.run.owner)
    if owner is not None and facts.staff.is_live(owner):
        return f"Its scheduler, {place(owner)}, is deciding what comes next."
    return f"What comes next is not decided yet. {facts.staff.next_hand()}"


# --- steps ------------------------------------------------------------------------------------------------------------


def _step(step: StepRow, facts: Facts) -> str:
    now = facts.now
    if step.kind is StepKind.TIMER:
        return _timer(step, facts)
    if step.kind is StepKind.SIGNAL:
        return _signal(step, facts)
    if step.kind is StepKind.CHILD:
        return _child(step, facts)
    if step.state is StepState.RUNNING:
        return _executing(step, facts)
    if step.quarantined:
        return _in_quarantine(step, facts)
    gate = _gate_words(step, facts)
    if gate:
        return f"Step {step.key} has been waiting for {ago(now - step.issued_at)}: {gate}."
    if step.ready_at > now:
        return _backing_off(step, facts)
    return _unclaimed(step, facts)


def _timer(step: StepRow, facts: Facts) -> str:
    left_s, staff = step.ready_at - facts.now, facts.staff
    if left_s <= 0:
        return f"Its timer {step.key} came due {ago(-left_s)} ago. {staff.next_hand()}"
    asleep = f"It sleeps ({step.key}) for another {ago(left_s)}."
    owner = staff.node(facts.run.owner)
    awake = staff.schedulers or (owner is not None and staff.is_live(owner))
    return asleep if awake else f"{asleep} Nobody could wake it now. {staff.no_scheduler()}."


def _signal(step: StepRow, facts: Facts) -> str:
    unheard = [row for row in facts.signals if row.name == step.name and row.delivered_seq is None]
    if unheard:
        sent = ago(facts.now - unheard[0].sent_at)
        return f"It waits for the signal {step.name!r}, which was sent {sent} ago. {facts.staff.next_hand()}"
    declared = facts.signals_declared
    data = " --data JSON" if declared is None else declared.data.get(step.name, "")
    send = f"`holdfast signal {quoted(facts.run.id)} {quoted(step.name)}{data}`"
    waited = ago(facts.now - step.issued_at)
    return f"It has been waiting for {waited} for the signal {step.name!r}{_set_aside(step, facts)}: {send} sends it."


def _set_aside(step: StepRow, facts: Facts) -> str:
    """The newest signal of this name that no wait could take."""
    aside = [row for row in facts.signals if row.name == step.name and row.set_aside is not None]
    if not aside:
        return ""
    last = aside[-1]
    return f"; the one sent {ago(facts.now - last.sent_at)} ago (key {last.key}) did not fit and is set aside ({last.set_aside})"


def _child_of(step: StepRow, facts: Facts) -> RunRow | None:
    return next((child for child in facts.children if child.parent_n == step.n), None)


def _child(step: StepRow, facts: Facts) -> str:
    child, waited = _child_of(step, facts), ago(facts.now - step.issued_at)
    if step.n in facts.joins:
        joined = facts.joins[step.n]
        return (
            f"It has been waiting for {waited} for run {joined} ({step.name}), which it joined: "
            f"{command('why', joined)} says what that one waits for."
        )
    if child is None:
        return f"It has been waiting for {waited} for its child run {step.key} ({step.name})."
    if child.state in RUN_ENDED:
        return f"Its child run {child.id} has {child.state}. {facts.staff.next_hand()}"
    doing = {
        RunState.PENDING: "which waits for a scheduler",
        RunState.RUNNING: "which is running",
        RunState.UNDOING: "which is undoing",
        RunState.HELD: "which is held",
        RunState.STUCK: "which is stuck",
    }[child.state]
    return f"It has been waiting for {waited} for its child run {child.id}, {doing}: {command('why', child.id)} says more."


def _executing(step: StepRow, facts: Facts) -> str:
    staff = facts.staff
    agent = staff.node(step.agent)
    where = f"on {place(agent)}" if agent else "on an agent that nobody knows any more"
    text = f"Step {step.key} has been running {where} for {ago(facts.now - (step.started_at or facts.now))}, attempt {step.attempt}"
    if agent is None or not staff.is_live(agent):
        gone = ""
        if agent is not None:
            gone = f"; that agent has been gone for {ago(facts.now - min(agent.lease_until, agent.retired_at or facts.now))}"
        if staff.has_supervisor:
            return f"{text}{gone}, and a Supervisor is about to take the step back."
        return f"{text}{gone}, and no Supervisor is up to take the step back: start one with {staff.start('supervisor')}."
    if facts.outlook is not None:
        text += _taking_long(step, facts, facts.outlook)
    if step.complete_by is not None:
        left = step.complete_by - facts.now
        text += f"; it is timed out in {ago(left)}" if left > 0 else f"; it is overdue by {ago(-left)}"
    return text + "."


def _taking_long(step: StepRow, facts: Facts, outlook: Outlook) -> str:
    text = ""
    if outlook.straggles(step, facts.now):
        text = f"; that is longer than such steps take, which is at most {ago(outlook.bounds[step.name])}"
    twin = outlook.twin(step)
    if twin is not None and twin.started_at is not None:
        agent = facts.staff.node(twin.agent)
        where = f"on {place(agent)}" if agent else "elsewhere"
        text += f"; its twin has been running {where} for {ago(facts.now - twin.started_at)}"
    return text


def gate_of(
    step: StepRow, run: RunRow, lanes: Sequence[Lane], holds: Sequence[Hold], breakers: Sequence[Breaker]
) -> Hold | Breaker | None:
    """What keeps a step from beginning whose turn it would be: a hold, or the breaker of its dependency. None: nothing."""
    lane = next((lane for lane in lanes if lane.id == step.lane), None)
    depends = lane.depends if lane else step.name
    covered = {
        HoldScope.WORKFLOW: run.workflow,
        HoldScope.STEP: step.name,
        HoldScope.DEPENDENCY: depends,
        HoldScope.NAMESPACE: run.namespace,
        HoldScope.ALL: "",
    }
    shut = [row for row in breakers if row.name == depends and row.state is not BreakerState.CLOSED]
    return next((hold for hold in holds if covered[hold.scope] == hold.value), shut[0] if shut else None)


def gate_in_short(gate: Hold | Breaker) -> str:
    """For a list."""
    if isinstance(gate, Breaker):
        return f"waits for {gate.name}, whose breaker is {gate.state}"
    return f"is held by {gate.actor}{remark(gate.note)}"


def _gate_words(step: StepRow, facts: Facts) -> str | None:
    gate = gate_of(step, facts.run, facts.lanes, facts.holds, facts.breakers)
    if gate is None:
        return None
    if isinstance(gate, Hold):
        return _hold_words(gate, facts.now)
    words = breaker_words(gate, facts.now)
    if not gate.forced and not facts.staff.has_supervisor:
        words += f". But no Supervisor is up to try it: start one with {facts.staff.start('supervisor')}"
    return words


def _hold_words(hold: Hold, now: float) -> str:
    what = "everything" if hold.scope is HoldScope.ALL else f"the {hold.scope} {hold.value}"
    options = ["--all"] if hold.scope is HoldScope.ALL else [f"--{hold.scope}", hold.value]
    return (
        f"{what} has been held by {hold.actor} for {ago(now - hold.at)}{remark(hold.note)}; "
        f"{command('release', *options)} lets it go on"
    )


def breaker_words(row: Breaker, now: float) -> str:
    """What a breaker that is not closed does, in half a sentence."""
    passed, reset = ago(now - (row.opened_at or now)), command("breakers", "reset", row.name)
    if row.forced:
        return f"the breaker of {row.name} was opened by {row.actor} {passed} ago{remark(row.note)}; {reset} has it tried"
    why = ": ".join(part for part in (row.note, row.error) if part)
    trouble = f"{row.name} has been in trouble for {passed}{remark(why)}"
    if row.state is BreakerState.OPEN:
        left = ago((row.open_until or now) - now)
        return (
            f"{trouble}; its breaker is open for another {left}, then it is tried again, and no attempt is spent meanwhile; "
            f"{reset} tries it now"
        )
    return f"{trouble}; it is being tried with {counted(row.wave, 'step')} at a time, and no attempt is spent meanwhile"


def _backing_off(step: StepRow, facts: Facts) -> str:
    after = f" after {reason(step.error)}" if step.error else ""
    text = (
        f"Step {step.key} backs off{after}: attempt {step.spent + 1} of {step.attempts_max} in "
        f"{ago(step.ready_at - facts.now)}; {command('retry', facts.run.id)} tries at once"
    )
    missing = _missing_agent(step, facts)
    return f"{text}, but {missing}." if missing else f"{text}."


def _unclaimed(step: StepRow, facts: Facts) -> str:
    text = f"Step {step.key} has been ready for {ago(facts.now - step.ready_at)}"
    missing = _missing_agent(step, facts)
    if missing:
        return f"{text}, but {missing}."
    able = facts.staff.able(step.name, _needs(step, facts))
    if step.losses >= DEFAULT.suspect_losses:
        return (
            f"{text}; its agents were lost {step.losses} times while it ran, so that it may be what kills them: each of "
            f"{counted(len(able), 'agent')} begins one such step at a time, and this one waits for its turn."
        )
    who = f"the agent on {place(able[0])}" if len(able) == 1 else f"any of {len(able)} agents"
    return f"{text}; {who} can take it, and is busy or about to."


def _missing_agent(step: StepRow, facts: Facts) -> str:
    """That nobody could execute it, and what to start; empty if somebody can."""
    needs, staff = _needs(step, facts), facts.staff
    if staff.able(step.name, needs):
        return ""
    start = staff.start("agent", step.name, needs)
    if staff.agents(step.name) and needs:
        return f"no live agent with {step.name} has {', '.join(needs)}: start one with {start}"
    return f"{staff.no_agent(step.name)}: start one with {start}"


def _needs(step: StepRow, facts: Facts) -> Sequence[str]:
    return next((lane.needs for lane in facts.lanes if lane.id == step.lane), ())
