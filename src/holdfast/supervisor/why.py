"""`why`: for any run one true sentence, what it waits for and what would move it. Pure: facts in, sentence out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.config import DEFAULT
from holdfast.lifecycle import RUN_ENDED, STEP_LIVE
from holdfast.model import (
    CANCEL,
    UNDO_PREFIX,
    Attempt,
    Breaker,
    BreakerState,
    Hold,
    HoldScope,
    Lane,
    Node,
    Quarantined,
    Run,
    RunState,
    Signal,
    Step,
    StepKind,
    StepState,
    undone_key,
)
from holdfast.supervisor.outlook import Outlook


class SignalsDeclared(NamedTuple):
    """What the code of a run's workflow says of its signals."""

    data: Mapping[str, str]
    """By name, what `holdfast signal RUN NAME` needs besides: ` --data '{"cents": 0}'`, or nothing."""
    named: frozenset[str]
    """Those that the workflow's own code names, as far as can be seen. The others are of the same application."""
    open: bool
    """There may be more: code makes them up."""


class Facts(NamedTuple):
    run: Run
    steps: Sequence[Step]
    attempts: Sequence[Attempt]
    signals: Sequence[Signal]
    nodes: Sequence[Node]
    lanes: Sequence[Lane]
    now: float
    breakers: Sequence[Breaker] = ()
    holds: Sequence[Hold] = ()
    quarantined: Sequence[Quarantined] = ()
    """Of the run's steps, those that wait for a person."""
    stuck_children: Sequence[Run] = ()
    """Children that wait for a person."""
    outlook: Outlook | None = None
    signals_declared: SignalsDeclared | None = None
    """None: nobody has declared the workflow."""
    joins: Mapping[int, str] = {}
    """Runs of others that steps wait for, by the step's n."""


def explain(facts: Facts) -> str:
    """What this run waits for, and what would move it."""
    run = facts.run
    if run.state in RUN_ENDED:
        return _ended(facts)
    if run.state is RunState.HELD:
        return _held(run)
    if run.state is RunState.STUCK:
        return _stuck(facts)
    if run.state is RunState.PENDING:
        return _pending(facts)
    if run.state is RunState.UNDOING:
        return _undoing(facts)
    if any(row.name == CANCEL and row.delivered_seq is None for row in facts.signals):
        return "It is being cancelled: the request waits for the run's scheduler."
    live = [step for step in facts.steps if step.state in STEP_LIVE and step.key != "$deadline"]
    if not live:
        return _undecided(facts)
    sentences = [_step(step, facts) for step in sorted(live, key=_urgency)]
    more = len(sentences) - 1
    others = (
        f" {more} other step{'s' if more > 1 else ''} of it {'are' if more > 1 else 'is'} open too."
        if more
        else ""
    )
    return sentences[0] + others


def _urgency(step: Step) -> tuple[int, int]:
    """What most needs explaining comes first: what waits for a person, what nobody works on, what runs, what sleeps."""
    if step.quarantined:
        return -1, step.n
    order = {StepState.READY: 0, StepState.RUNNING: 1, StepState.WAITING: 2}
    return order.get(StepState(step.state), 3), step.n


def _ended(facts: Facts) -> str:
    run = facts.run
    took = ago(run.finished_at - run.created_at) if run.finished_at else "?"
    if run.state is RunState.UNDONE and run.error and (parent := json.loads(run.error).get("by")):
        return (
            f"It succeeded, and what it did was undone when run {parent}, which had started it, took itself back: "
            f"`holdfast why {parent}` says why."
        )
    if run.state is RunState.SUCCEEDED:
        return f"It succeeded, {took} after it was started; nothing is left to do."
    error = json.loads(run.error) if run.error else {}
    reason = f": {str(error.get('type', '')).rsplit('.', 1)[-1]}: {error.get('message', '')}" if error else ""
    ended = _ended_by(facts, error)
    where = _gave_up(ended[-1]) if ended else ""
    word = {RunState.CANCELLED: "was cancelled", RunState.UNDONE: "failed"}.get(run.state, str(run.state))
    undone = "; what it had done is undone" if run.state is RunState.UNDONE else ""
    return f"It {word}{where}{reason}{undone}. {_retry_words(run, ended, error)}"


def _ended_by(facts: Facts, error: Mapping[str, Any]) -> list[Step]:
    """The steps that ended the run. One that failed and was handled is none of them."""
    if "seq" in error:
        return [step for step in facts.steps if step.n in error.get("steps", ())]
    # It ended under a version that did not record it.
    failed = [
        step
        for step in facts.steps
        if step.state is StepState.FAILED and step.delivered_seq and not step.key.startswith(UNDO_PREFIX)
    ]
    failed.sort(key=lambda step: step.delivered_seq or 0)
    return failed[-1:] if facts.run.state is not RunState.CANCELLED else []


def _retry_words(run: Run, ended: Sequence[Step], error: Mapping[str, Any]) -> str:
    """What `retry` does to a run that has ended."""
    again = " and ".join(step.key for step in ended[:3]) + (" …" if len(ended) > 3 else "")
    undone = len(error.get("undone", ()))
    redone = [f"executes {again} again"] if ended else []
    if undone:
        redone.append(f"does the {undone} undone step{'s' if undone > 1 else ''} anew")
    command = f"`holdfast retry {run.id}` keeps what was recorded"
    if redone:
        return f"{command}, {' and '.join(redone)}, and goes on."
    if run.state is RunState.CANCELLED or str(error.get("type", "")).endswith(".RunTimeout"):
        return f"{command} and goes on where it was."
    return f"{command}, runs its code on that again, and fails in the same way unless the code was changed."


def undo_count(steps: Sequence[Step], lanes: Sequence[Lane], kept_n: int) -> tuple[int, int]:
    """(undos done, undos to do in all) of a run that takes itself back, as far as its own rows tell."""
    undoable = {lane.id for lane in lanes if lane.undo}
    tried: dict[str, Step] = {}
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
        if waits:
            return f"It is undoing, {done} of {total} done: it waits for its child run {waits[0].key} to end."
        return f"It is undoing, {done} of {total} done: {_lower(_undecided(facts))}"
    first = min(live, key=_urgency)
    short = first.name.rsplit(".", 1)[-1]
    what = f"It is undoing {done + 1} of {total}: {short}, which undoes {undone_key(first.key)[0]}"
    more = f" ({len(live)} in parallel)" if len(live) > 1 else ""
    return f"{what}{more}. {_step(first, facts)}"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _stuck(facts: Facts) -> str:
    run = facts.run
    last: dict[str, Step] = {}
    for step in facts.steps:
        if step.key.startswith(UNDO_PREFIX):
            last[undone_key(step.key)[0]] = step
    failed = [(key, step) for key, step in last.items() if step.state is StepState.FAILED]
    poison = [step for step in facts.steps if step.quarantined]
    if poison:
        left = len(poison) + len(failed) - 1
        others = f" {left} more of it wait{'s' if left == 1 else ''} for a person, too." if left else ""
        return f"It is stuck: {_lower(_in_quarantine(poison[0], facts))}{others}"
    if not failed:
        return f"It is stuck and a person must look: `holdfast show {run.id}` shows it."
    key, step = failed[0]
    reason = ""
    if step.error:
        reason = f": {json.loads(step.error).get('message', '')}"
    more = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    return (
        f"It is stuck: {step.name.rsplit('.', 1)[-1]}, the undo of {key}, gave up at attempt {step.attempt}{reason}{more}; "
        f"`holdfast retry {run.id}` tries again, `holdfast skip {run.id} {key} --note …` counts it as done by hand."
    )


def _gave_up(step: Step) -> str:
    if step.kind is StepKind.CHILD:
        return f" after its child run {step.key} did not succeed"
    return f" after step {step.key} gave up at attempt {step.attempt}"


def _held(run: Run) -> str:
    note = run.note or ""
    move = f"`holdfast release {run.id}` lets it go on"
    try:
        told = json.loads(note)
    except ValueError:
        told = None
    if isinstance(told, dict) and told.get("why") == "drift":
        return (
            f"It is held because its code changed under it: {told.get('message', '')}; "
            f"deploy code that fits what is recorded, then {move}."
        )
    if isinstance(told, dict):
        return f"It is held: {told.get('message', '')}; {move}."
    return f"It is held by an operator{f' ({note})' if note else ''}; {move}."


def _offering(facts: Facts, kind: str, value: str) -> tuple[list[Node], Node | None]:
    """Live nodes that offer this, and the last one that ever did."""
    live, last = [], None
    for node in facts.nodes:
        offers = json.loads(node.offers)
        if value in offers.get(kind, ()):
            if node.retired_at is None and node.lease_until > facts.now:
                live.append(node)
            elif last is None or node.lease_until > last.lease_until:
                last = node
    return live, last


def _schedulers(facts: Facts) -> tuple[list[Node], Node | None]:
    live, last = _offering(facts, "workflows", f"{facts.run.workflow}@{facts.run.version}")
    return [node for node in live if "scheduler" in node.roles], last


def _pending(facts: Facts) -> str:
    run = facts.run
    live, last = _schedulers(facts)
    since = ago(facts.now - run.created_at)
    if not live:
        return (
            f"It waits for a scheduler since {since}: no live node has {run.workflow} version {run.version} loaded"
            f"{_had(last, facts.now)}; start one with `holdfast up` or `holdfast scheduler`."
        )
    return f"It waits to be claimed by one of {len(live)} schedulers since {since}: they are busy or about to take it."


def _had(last: Node | None, now: float) -> str:
    if last is None:
        return ""
    left_at = min(last.lease_until, last.retired_at or last.lease_until)
    return f" ({last.host} pid {last.pid} had it until {ago(now - left_at)} ago)"


def _undecided(facts: Facts) -> str:
    run = facts.run
    live, last = _schedulers(facts)
    if not live:
        return (
            f"Its next decision waits for a scheduler: no live node has {run.workflow} version {run.version} loaded"
            f"{_had(last, facts.now)}; start one with `holdfast up` or `holdfast scheduler`."
        )
    return "Its scheduler is deciding what comes next."


def _step(step: Step, facts: Facts) -> str:
    now, name = facts.now, step.key
    if step.kind is StepKind.TIMER:
        return (
            f"It sleeps ({name}) for another {ago(step.ready_at - now)}."
            if step.ready_at > now
            else (f"Its timer {name} came due {ago(now - step.ready_at)} ago and waits for a scheduler.")
        )
    if step.kind is StepKind.SIGNAL:
        declared = facts.signals_declared
        data = declared.data.get(step.name, "") if declared is not None else ""
        return (
            f"It waits for the signal {step.name!r} since {ago(now - step.issued_at)}{_set_aside(step, facts)}: "
            f"`holdfast signal {shlex.quote(facts.run.id)} {shlex.quote(step.name)}{data}` sends it."
        )
    if step.kind is StepKind.CHILD and step.n in facts.joins:
        joined = facts.joins[step.n]
        return (
            f"It has been waiting for run {joined} ({step.name}), which it joined, for {ago(now - step.issued_at)}: "
            f"`holdfast why {joined}` says what that one waits for."
        )
    if step.kind is StepKind.CHILD:
        return f"It waits for its child run {name} ({step.name}) since {ago(now - step.issued_at)}{_child_stuck(step, facts)}."
    if step.state is StepState.RUNNING:
        return _running(step, facts)
    if step.quarantined:
        return _in_quarantine(step, facts)
    gate = gate_words(step, facts)
    if gate:
        return f"Step {name} waits since {ago(now - step.issued_at)}: {gate}."
    if step.ready_at > now:
        return _backing_off(step, facts)
    return _unclaimed(step, facts)


def _set_aside(step: Step, facts: Facts) -> str:
    """The newest signal of this name that no wait could take."""
    aside = [row for row in facts.signals if row.name == step.name and row.set_aside is not None]
    if not aside:
        return ""
    last = aside[-1]
    return f"; the one sent {ago(facts.now - last.sent_at)} ago (key {last.key}) did not fit and is set aside ({last.set_aside})"


def _child_stuck(step: Step, facts: Facts) -> str:
    child = next((child for child in facts.stuck_children if child.parent_n == step.n), None)
    return "" if child is None else f", which is stuck: `holdfast why {child.id}` says why"


def _running(step: Step, facts: Facts) -> str:
    agent = next((node for node in facts.nodes if node.id == step.agent), None)
    where = f"on {agent.host} pid {agent.pid}" if agent else "on an agent nobody knows"
    since = ago(facts.now - (step.started_at or facts.now))
    text = f"Step {step.key} runs {where} since {since}, attempt {step.attempt}"
    if agent is not None and agent.lease_until < facts.now:
        return f"{text}; that agent's lease ran out {ago(facts.now - agent.lease_until)} ago: a Supervisor will take the step back."
    if facts.outlook is not None:
        text += _taking_long(step, facts, facts.outlook)
    if step.complete_by is not None:
        left = step.complete_by - facts.now
        text += f"; it is timed out in {ago(left)}" if left > 0 else f"; it is overdue by {ago(-left)}"
    return text + "."


def gate_words(step: Step, facts: Facts) -> str | None:
    """What keeps a step from beginning whose turn it would be: a hold, or the breaker of its dependency. None: nothing."""
    lane = next((lane for lane in facts.lanes if lane.id == step.lane), None)
    depends = lane.depends if lane else step.name
    covered = {
        HoldScope.WORKFLOW: facts.run.workflow,
        HoldScope.STEP: step.name,
        HoldScope.DEPENDENCY: depends,
        HoldScope.TENANT: facts.run.namespace,
        HoldScope.ALL: "",
    }
    for hold in facts.holds:
        if covered[hold.scope] == hold.value:
            return _hold_words(hold, facts.now)
    row = next((row for row in facts.breakers if row.name == depends), None)
    return None if row is None or row.state is BreakerState.CLOSED else breaker_words(row, facts.now)


def _hold_words(hold: Hold, now: float) -> str:
    what = "everything" if hold.scope is HoldScope.ALL else f"the {hold.scope} {hold.value}"
    option = "--all" if hold.scope is HoldScope.ALL else f"--{hold.scope} {hold.value}"
    note = f" ({hold.note})" if hold.note else ""
    return f"{what} is held by {hold.actor} since {ago(now - hold.at)}{note}; `holdfast release {option}` lets it go on"


def breaker_words(row: Breaker, now: float) -> str:
    """What a breaker that is not closed does, in half a sentence."""
    since = ago(now - (row.opened_at or now))
    if row.forced:
        note = f" ({row.note})" if row.note else ""
        return (
            f"the breaker of {row.name} was opened by {row.actor} {since} ago{note}; "
            f"`holdfast breakers reset {row.name}` has it tried"
        )
    why = ": ".join(part for part in (row.note, row.error) if part)
    trouble = f"{row.name} is in trouble since {since}{f' ({why})' if why else ''}"
    if row.state is BreakerState.OPEN:
        left = ago((row.open_until or now) - now)
        return f"{trouble}; its breaker is open for another {left}, then it is tried again, and no attempt is spent meanwhile"
    return f"{trouble}; it is being tried with {row.wave} step{'s' if row.wave > 1 else ''} at a time, and no attempt is spent meanwhile"


def _in_quarantine(step: Step, facts: Facts) -> str:
    """Named by its fingerprint, because whoever decides about it decides about all that are alike."""
    one = next((one for one in facts.quarantined if one.n == step.n), None)
    reason = ""
    if step.error:
        error = json.loads(step.error)
        reason = f" after {str(error.get('type', '')).rsplit('.', 1)[-1]}: {error.get('message', '')}"
    if one is None:
        return f"Step {step.key} is in quarantine{reason}; `holdfast retry {facts.run.id}` tries it again."
    return (
        f"Step {step.key} is in quarantine since {ago(facts.now - one.at)}{reason} ({one.place}); "
        f"`holdfast quarantine release {one.fingerprint}` tries it again, as does `holdfast retry {facts.run.id}`; "
        f"`skip` or `fail` instead of `release` goes on without it."
    )


def _taking_long(step: Step, facts: Facts, outlook: Outlook) -> str:
    text = ""
    if outlook.straggles(step, facts.now):
        text = f"; that is longer than such steps take, which is at most {ago(outlook.bounds[step.name])}"
    twin = outlook.twin(step)
    if twin is not None and twin.started_at is not None:
        agent = next((node for node in facts.nodes if node.id == twin.agent), None)
        where = f"on {agent.host} pid {agent.pid}" if agent else "elsewhere"
        text += f"; its twin runs {where} since {ago(facts.now - twin.started_at)}"
    return text


def _backing_off(step: Step, facts: Facts) -> str:
    reason = ""
    if step.error:
        error = json.loads(step.error)
        reason = f" after {str(error.get('type', '')).rsplit('.', 1)[-1]}: {error.get('message', '')}"
    return (
        f"Step {step.key} backs off{reason}: {_which_attempt(step)} in {ago(step.ready_at - facts.now)}; "
        f"`holdfast retry {facts.run.id}` tries at once."
    )


def _which_attempt(step: Step) -> str:
    """The next attempt, in the budget of the application."""
    return f"attempt {step.spent + 1} of {step.attempts_max}"


def _unclaimed(step: Step, facts: Facts) -> str:
    lane = next((lane for lane in facts.lanes if lane.id == step.lane), None)
    needs = lane.needs if lane else ()
    having, last = _offering(facts, "steps", step.name)
    able = [
        node
        for node in having
        if "agent" in node.roles and set(needs) <= set(json.loads(node.offers).get("labels", ()))
    ]
    since = ago(facts.now - step.ready_at)
    if able and step.losses >= DEFAULT.suspect_losses:
        return (
            f"Step {step.key} is ready since {since}; its agents were lost {step.losses} times while it ran, so that it may be what "
            f"kills them: each of {len(able)} agents begins one such step at a time, and this one waits for its turn."
        )
    if able:
        return f"Step {step.key} is ready since {since}; {len(able)} agents can take it and are busy or about to."
    if having and needs:
        return (
            f"Step {step.key} is ready since {since}, but no live agent with {step.name} has "
            f"{', '.join(needs)}: start one with `holdfast agent --label {needs[0]}`."
        )
    return (
        f"Step {step.key} is ready since {since}, but no live agent has {step.name}{_had(last, facts.now)}: "
        "start one with `holdfast agent`."
    )


def ago(seconds: float) -> str:
    """A duration for people."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size * 2:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
