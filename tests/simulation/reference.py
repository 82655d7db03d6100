"""The rules said a second time. What an attempt's failure leads to, what is kept of it, and how a step's row looks are worked
out here from what is declared and from the rows as they were. The product's own functions are not asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.codec import is_unsure
from holdfast.lifecycle import RUN_ENDED, STEP_ENDED
from holdfast.model import NEVER, Failure, Outcome
from holdfast.namespaces import bare
from holdfast.policy import Retry
from holdfast.store.operations import HandBack, Hop, QuarantineStep, RetryStep
from holdfast.workflow import registry

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit, Run, Step

FINAL = ("holdfast.errors.Stop", "holdfast.errors.InvalidInput", "holdfast.errors.DefinitionError")
PRECISION_S = 0.02
AGAIN, GIVEN_UP, FOR_A_PERSON = "is tried again", "fails", "waits for a person"


STEP_ONCE = ("kind", "lane", "attempts_max", "key", "priority", "timeout_s", "queue", "retry", "issued_at")
RUN_ONCE = (
    "workflow",
    "namespace",
    "retry_of",
    "forked_from",
    "created_at",
    "priority",
    "started_by",
    "started_n",
)
ENDED_WITHIN_S = 8.0
"""A run's end is dated by the node that decided it: its write may be late, and its clock a little wrong."""


class Verdict(NamedTuple):
    """What must follow a failed attempt."""

    what: str
    least_s: float = 0.0
    most_s: float = 0.0


def declared(checker: Checker, step: Step) -> Any:
    """Return the step as its author declared it. None if it is none of the simulation's."""
    lane = checker.lanes.get(step.lane)
    return None if lane is None else registry.steps.get(bare(lane.name))


def verdict(policy: Retry, step: Step, failure: Failure, config: Any, asked_s: float = 0.0) -> Verdict:
    """Return what follows when an attempt of a step with this row fails so."""
    over = Verdict(FOR_A_PERSON if policy.quarantine else GIVEN_UP)
    if failure in (Failure.LOST, Failure.POISON):
        most = config.losses_max if policy.losses is None else policy.losses
        if step.losses >= most:
            return Verdict(GIVEN_UP if policy.quarantine is False else FOR_A_PERSON)
        wait_s = config.loss_back_off_s * 2 ** (step.losses - 1) if step.losses else 0.0
        wait_s = min(wait_s, config.loss_back_off_max_s)
        return Verdict(AGAIN, wait_s, wait_s)
    if failure is Failure.THROTTLED:
        most = 20 * policy.attempts if policy.throttles is None else policy.throttles
        wait_s = max(0.1, asked_s)
        return over if step.throttled >= most else Verdict(AGAIN, wait_s, wait_s)
    if failure is Failure.TIMEOUT:
        times, most = step.timeouts + 1, policy.attempts if policy.timeouts is None else policy.timeouts
    else:
        times, most = (
            step.attempt - step.losses - step.excused - step.timeouts - step.throttled,
            policy.attempts,
        )
    if times >= most:
        return over
    bound_s = min(policy.delay * policy.factor ** (times - 1), policy.max_delay)
    return Verdict(AGAIN, {"full": 0.0, "equal": bound_s / 2, "none": bound_s}[policy.jitter], bound_s)


def I68_failures_have_their_consequence(checker: Checker, commit: Commit) -> Iterator[str]:
    """After a failed attempt, the step's policy, its counts and the error say whether it is tried again, and when. That
    one of its attempts may have had its effect is never forgotten while it goes on."""
    by_leader = commit.verb in ("reclaim", "end_overdue")
    if not commit.steps or not (by_leader or commit.verb == "commit"):
        return
    ops: dict[tuple[str, int], Any] = {}
    if not by_leader:
        for op in commit.asked["ops"]:
            for one in (op, *getattr(op, "outcomes", ())):
                is_failed = isinstance(one, Outcome) and one.fence and one.error is not None
                if is_failed or isinstance(one, RetryStep | QuarantineStep):
                    ops[one.run_id, one.n] = one
        if not ops:
            return
    for _, before, after in commit.steps:
        if before is None or after is None or before.state != "running" or after.fence != before.fence + 1:
            continue
        op = ops.get((after.run_id, after.n))
        if op is not None and op.fence != before.fence:
            continue
        if op is None and (not by_leader or after.state in ("cancelled", "succeeded")):
            continue
        what = f"step {after.n} of {after.run_id} ({after.key}, attempt {before.attempt})"
        if is_unsure(before.losses, before.error) and not is_unsure(after.losses, after.error):
            yield f"{what} may have had its effect before, and nobody knows it any more"
        if op is not None and after.error != op.error:
            yield f"{what} failed with {op.error}, and its row says {after.error}"
        step = declared(checker, before)
        if step is None:
            continue
        # Agents know what is declared. A leader knows what is recorded, which has no back-off of its own.
        own = step.retry if op is not None else Retry(attempts=before.attempts_max)
        policy = Retry.decode(before.retry) if before.retry else own
        failure, error = _failure_of(commit.verb, op), json.loads(after.error or "{}")
        if policy.on or policy.never or policy.total is not None:
            continue
        if error.get("type") in FINAL and failure is Failure.APPLICATION:
            must = Verdict(GIVEN_UP)
        else:
            asked_s = float((error.get("attributes") or {}).get("seconds", 0.0) or 0.0)
            if failure is Failure.THROTTLED and isinstance(op, RetryStep) and not asked_s:
                asked_s = op.delay_s
            must = verdict(policy, before, failure, checker.config, asked_s)
        waits_s = after.ready_at - commit.now
        if isinstance(op, RetryStep) and op.excused:
            continue  # it left, or its dependency was down: I33 says that this spends nothing
        did = AGAIN if after.state == "ready" else GIVEN_UP
        did = FOR_A_PERSON if did == AGAIN and after.ready_at > NEVER / 2 else did
        if did != must.what:
            yield f"{what} {did} after {failure}, and by its policy and counts it {must.what}: {before}"
        elif did == AGAIN and not must.least_s - PRECISION_S <= waits_s <= must.most_s + PRECISION_S:
            yield f"{what} waits for {waits_s:.3f} s after {failure}, not for {must.least_s:.3f} to {must.most_s:.3f} s"


def _failure_of(verb: str, op: Any) -> Failure:
    if op is None:
        return Failure.LOST if verb == "reclaim" else Failure.TIMEOUT
    if isinstance(op, RetryStep | QuarantineStep):
        return op.failure
    ending = json.loads(op.error).get("ending", "failed")
    is_asked = json.loads(op.error)["type"] == "holdfast.errors.RetryIn"
    by_ending = {"lost": Failure.LOST, "timed out": Failure.TIMEOUT}
    return by_ending.get(ending, Failure.THROTTLED if is_asked else Failure.APPLICATION)


def I69_an_attempt_is_kept_as_it_was(checker: Checker, commit: Commit) -> Iterator[str]:
    """What is kept of an attempt says who made it, when it began and ended, and with which error."""
    if not commit.attempts:
        return
    rows = {
        (after.run_id, after.n): (before, after) for _, before, after in commit.steps if after is not None
    }
    for kept in commit.attempts:
        before, after = rows.get((kept.run_id, kept.n), (None, None))
        if kept.ending == "refused" or before is None or before.state != "running" or after is None:
            continue
        was = (before.attempt, before.agent, before.started_at)
        if (kept.attempt, kept.agent, kept.started_at) != was:
            yield f"attempt {was} of step {kept.n} of {kept.run_id} is kept as {kept}"
        known = after.error if commit.verb == "commit" else kept.error
        if (
            kept.error != known
            or kept.error is None
            or abs((kept.finished_at or 0.0) - commit.now) > PRECISION_S
        ):
            yield f"the end of attempt {was} of step {kept.n} of {kept.run_id} is kept as {kept}: {after}"


def I70_issued_as_declared(checker: Checker, commit: Commit) -> Iterator[str]:
    """A new step has what its author declared, the priority of its run and its own together, and counts nothing yet."""
    if commit.verb != "commit":
        return
    runs: dict[str, Run] | None = None
    for _, before, after in commit.steps:
        if before is not None or after is None or after.run_id in commit.retried:
            continue
        what = f"the new step {after.n} of {after.run_id} ({after.key})"
        if abs(after.issued_at - commit.now) > PRECISION_S:
            yield f"{what} is from {commit.now - after.issued_at:.3f} s ago"
        if after.losses or after.excused or after.timeouts or after.throttled or after.attempt > 1:
            yield f"{what} counts something already: {after}"
        if after.kind != "call":
            continue
        step = declared(checker, after)
        if step is None:
            continue
        lane = checker.lanes[after.lane]
        if (bare(lane.depends), json.loads(lane.needs)) != (step.depends, list(step.needs)):
            yield f"{what} is in the lane {lane}"
        if (after.attempts_max, after.timeout_s) != (step.retry.attempts, step.timeout_s):
            yield f"{what} has {after.attempts_max} attempts of {after.timeout_s} s"
        if runs is None:
            runs = {run.id: run for _, _, run in commit.runs if run is not None}
        run = checker.runs.get(after.run_id) or runs.get(after.run_id)
        if run is not None and after.priority != min(9, run.priority + step.priority):
            yield f"{what} has the priority {after.priority}: its run has {run.priority}, and it {step.priority}"


def I71_rows_agree_with_their_state(checker: Checker, commit: Commit) -> Iterator[str]:
    """What a row says beside its state fits the state, and what is written once stays."""
    for _, before, after in commit.steps:
        if after is None or after == before:
            continue
        state = after.state
        wrong = ""
        if (state in STEP_ENDED) != (after.finished_at is not None):
            wrong = "has the wrong end"
        elif state == "ready" and (after.agent is not None or after.complete_by is not None):
            wrong = "still has an agent or a limit"
        elif state == "running" and (after.agent is None or after.started_at is None or not after.attempt):
            wrong = "has no agent or beginning"
        elif after.output is not None and state != "succeeded":
            wrong = "has a result"
        elif state == "succeeded" and after.error is not None and after.kind != "undo":
            wrong = "succeeded and has an error"
        elif before is not None and any(getattr(before, name) != getattr(after, name) for name in STEP_ONCE):
            wrong = f"was {before}"
        if wrong:
            yield f"step {after.n} of {after.run_id} is {state} and {wrong}: {after}"
    for _, before, run in commit.runs:
        if run is None:
            continue
        wrong = ""
        if (run.state in RUN_ENDED) != (run.finished_at is not None):
            wrong = "has the wrong end"
        elif run.owner is not None and run.state not in ("running", "undoing"):
            wrong = "has an owner"
        elif run.resume is not None and run.state not in ("held", "stuck"):
            wrong = "goes on as something else"
        elif run.state in ("undoing", "undone") and run.ending is None:
            wrong = "says not how it ended"
        elif run.state == "succeeded" and run.error is not None:
            wrong = "has an error"
        elif before is not None and any(getattr(before, name) != getattr(run, name) for name in RUN_ONCE):
            wrong = f"was {before}"
        elif before is not None and run.finished_at != before.finished_at and run.finished_at is not None:
            if checker.world.clocks_ok and abs(run.finished_at - commit.now) > ENDED_WITHIN_S:
                wrong = f"ended {commit.now - run.finished_at:.3f} s ago"
        if wrong:
            yield f"run {run.id} is {run.state} and {wrong}: {run}"


def I74_signals_in_their_order(checker: Checker, commit: Commit) -> Iterator[str]:
    """A signal is sent to a run that is open. A wait gets the oldest signal of its name that no wait has got and that was not
    set aside, and reads what was sent. Of waits of one name, the one that was asked for first gets it."""
    for _, before, after in commit.signals:
        if before is None and after is not None:
            run = checker.now_run(commit, after.run_id)
            if run is None or run.state in RUN_ENDED:
                yield f"a signal {after.name} was sent to {after.run_id}, which is {run and run.state}"
    if commit.verb != "commit":
        return
    for op in commit.asked["ops"]:
        if not isinstance(op, Hop) or not op.ended or _is_copy(checker, op.run_id):
            continue
        for n, seq, _, _ in op.ended:
            step = checker.now_step(commit, op.run_id, n)
            if step is not None and step.kind == "signal":
                yield from _got_in_order(checker, op, step, seq)


def _is_copy(checker: Checker, run_id: str) -> bool:
    """True if the run began with a history that others made: waits that are not kept may have got signals there."""
    run = checker.runs.get(run_id)
    return run is None or run.retry_of is not None or run.forked_from is not None


def _got_in_order(checker: Checker, hop: Hop, wait: Step, seq: int) -> Iterator[str]:
    what = f"the wait {wait.n} of {hop.run_id} for {wait.name}"
    delivered = dict(hop.signals)
    taken = {one[1] for one in hop.ended}
    aside = {one[0] for one in hop.set_aside}
    found = False
    for row in checker.rows["signals"].values():
        if row.run_id != hop.run_id or row.name != wait.name:
            continue
        at = delivered.get(row.id, row.delivered_seq)
        if at == seq:
            found = True
            if json.loads(row.payload) != json.loads(wait.output or b"null"):
                yield f"{what} got {wait.output!r}, and {row.payload!r} was sent"
        elif at and at < seq and row.set_aside is None and at not in aside and at not in taken:
            if not any(
                other.delivered_seq == at and other.kind == "signal" for other in checker.steps_of(hop.run_id)
            ):
                yield f"{what} got the signal {seq}, and {at} came before and nobody has got it"
    if not found:
        yield f"{what} got the signal {seq}, which there is not"
    dropped = set(hop.dropped)
    for other in checker.steps_of(hop.run_id):
        is_open = other.kind == "signal" and other.name == wait.name and other.state == "waiting"
        if (
            is_open
            and other.n < wait.n
            and other.n not in dropped
            and other.n not in {one[0] for one in hop.ended}
        ):
            yield f"{what} got a signal before the wait {other.n}, which was there before"


def I76_what_began_is_remembered(checker: Checker, commit: Commit) -> Iterator[str]:
    """An attempt whose code began is never given back as if it had not: it may have had its effect."""
    if commit.verb == "commit":
        given_back = {
            (op.run_id, op.n) for op in commit.asked["ops"] if type(op) is HandBack and op.hold is None
        }
    elif commit.verb in ("reconcile", "retire"):
        given_back = {after[:2] for _, _, after in commit.steps if after is not None}
    else:
        return
    for _, before, after in commit.steps if given_back else ():
        if before is None or after is None or after[:2] not in given_back:
            continue
        if before.state != "running" or after.state != "ready" or is_unsure(after.losses, after.error):
            continue
        if (before.run_id, before.n, before.attempt) in checker.world.begun_attempts:
            yield f"attempt {before.attempt} of step {before.n} of {before.run_id} began, and was given back: {after}"


def I77_one_suspect_at_a_time(checker: Checker, commit: Commit) -> Iterator[str]:
    """An agent that has a step which may kill agents claims no other such step."""
    if commit.verb != "claim_steps":
        return
    least = checker.config.suspect_losses
    claimed = [step for _, _, step in commit.steps if step is not None and step.losses >= least]
    if not claimed:
        return
    since = commit.now - checker.config.suspect_s
    others = [
        step
        for step in checker.steps.values()
        if step.state == "running"
        and step.agent == commit.node
        and step.losses >= least
        and (step.started_at or 0.0) > since
    ]
    if len(claimed) + len(others) > 1 and checker.world.clocks_ok:
        yield f"{commit.node} has {[step[:2] for step in others]}, and claimed {[step[:2] for step in claimed]}"


INHERITED = "SELECT key, effect, child FROM inherited WHERE run_id = ?"


def I78_heirs_go_on(checker: Checker, commit: Commit) -> Iterator[str]:
    """What a retry does again, it does with the key under which the run before may have had the effect. Its child goes on from
    the child of that run."""
    if commit.verb != "commit":
        return
    for op in commit.asked["ops"]:
        if not isinstance(op, Hop) or not op.issued or not _is_copy(checker, op.run_id):
            continue
        left = {
            key: more for key, *more in checker.connection.execute(INHERITED, (op.run_id,)).fetchall() if key
        }
        for new in op.issued if left else ():
            effect, child = left.get(new.key, (None, None))
            step = checker.now_step(commit, op.run_id, new.n)
            if effect is not None and new.kind == "call" and step is not None and step.effect != effect:
                yield f"step {new.n} of {op.run_id} has the key {step.effect}, and {effect} may have been used before"
            asked = [one.retry_of for one in op.children if one.parent_n == new.n and not one.detached]
            if child is not None and new.kind == "child" and asked and asked != [child]:
                yield f"step {new.n} of {op.run_id} asks for a child that goes on from {asked[0]}, not from {child}"
