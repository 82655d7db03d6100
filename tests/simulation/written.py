"""What the operations of one commit write, said a second time: from the operations and from the rows as they were.

Each operation says what must be in which columns after it. Every column that no operation names stays as it was, and a
row that no operation is about does not change. So a write that gets lost is seen, and so is one that goes to another row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.lifecycle import RUN_ENDED, STEP_ENDED
from holdfast.model import CANCEL, NEVER, Failure, NewRun, Outcome, RunState, StepKind, StepState
from holdfast.store.operations import HandBack, Hop, NewStep, QuarantineStep, RetryStep, Save, Start

if TYPE_CHECKING:
    from tests.simulation.invariants import Checker, Commit, Run, Signal, Step

Place = tuple[str, int]
Want = dict[str, Any]
"""By column, what must be in it."""
Rule = Callable[[Any, Any], Want]
"""What must be in a row after this commit that changed it, as it was before."""
ANYTHING = object()
"""Whatever is in a column: another check knows it."""
GONE = "gone"
"""In place of columns: the row is removed."""
ENDS = ("state", "output", "error", "finished_at", "fence")
QUEUED = ("queue", "limit_a", "limit_b", "limit_c", "weight_a", "weight_b", "weight_c")
WAITS_FOR = """
SELECT EXISTS (SELECT 1 FROM steps WHERE run_id = ? AND delivered_seq IS NULL)
    OR EXISTS (SELECT 1 FROM signals WHERE run_id = ? AND delivered_seq IS NULL)"""
BY_OTHERS = (StepKind.CHILD, StepKind.START)
"""Kinds of steps that the runs which they started end, maybe in the same commit."""


class Written:
    """What a commit must have written."""

    def __init__(self, checker: Checker, commit: Commit) -> None:
        self._checker, self._commit, self._now, self._node = checker, commit, commit.now, commit.node
        self.steps: dict[Place, Want] = {}
        self.runs: dict[str, Want] = {}
        self.signals: dict[int, Want] = {}
        self.sent: dict[tuple[str, str, str], bytes] = {}
        self.kept: list[tuple[str, int, int, str, str | None]] = []
        """Attempts that are kept: their step, number, ending and error."""
        self.loose_runs: set[str] = set()
        """Runs that this commit may start, undo or take over, by rules that other checks know."""
        self.loose_steps: set[Place] = set()
        self.renewed: set[str] = set()
        """Runs that continue as new."""
        ops = commit.asked["ops"]
        self._hops: list[Hop] = [op for op in ops if type(op) is Hop]
        for op in ops:
            if type(op) is Outcome:
                self._add_step(op)
        for hop in self._hops:
            self._add_hop(hop)
        for hop in self._hops:
            self._add_sends(hop)
        for op in ops:
            if type(op) is Start:
                self._start(op.run)
            elif type(op) is not Hop and type(op) is not Outcome:
                self._add_step(op)

    def _step(self, run_id: str, n: int) -> tuple[Any, Want]:
        return self._checker.steps.get((run_id, n)), self.steps.setdefault((run_id, n), {})

    # --- what agents write --------------------------------------------------------------------------------------------

    def _add_step(self, op: Any) -> None:
        before, want = self._step(op.run_id, op.n)
        if before is None:
            return  # I2 says that nobody writes about a step that is not there
        if type(op) is Outcome:
            self._end(want, before.fence, op)
            return
        if type(op) is Save:
            if op.checkpoint is not None:
                want["checkpoint"] = op.checkpoint
            if op.progress is not None:
                want["progress"] = op.progress
            return
        want |= {"state": "ready", "fence": before.fence + 1, "agent": None, "complete_by": None}
        if type(op) is HandBack:
            want["excused"] = before.excused + 1
            if op.hold is not None:
                self.loose_runs.add(op.run_id)
            return
        assert isinstance(op, RetryStep | QuarantineStep)
        self.kept.append((op.run_id, op.n, before.attempt, op.ending, op.error))
        want["ready_at"] = self._now + op.delay_s if isinstance(op, RetryStep) else NEVER
        want["error"] = op.error
        if isinstance(op, RetryStep) and op.excused:
            want["excused"] = before.excused + 1
        elif op.failure in (Failure.LOST, Failure.POISON):
            want["losses"] = before.losses + 1
        elif op.failure is Failure.TIMEOUT:
            want["timeouts"] = before.timeouts + 1
        elif op.failure is Failure.THROTTLED:
            want["throttled"] = before.throttled + 1

    def _end(self, want: Want, fence: int, op: Outcome) -> None:
        want |= {"state": op.state, "output": op.output, "error": op.error, "finished_at": op.at}
        want |= {"delivered_seq": op.seq, "fence": fence + 1}

    # --- what schedulers write ----------------------------------------------------------------------------------------

    def _add_hop(self, hop: Hop) -> None:
        run_id, checker = hop.run_id, self._checker
        run = None if hop.begin is not None else checker.runs.get(run_id)
        want = self.runs.setdefault(run_id, {})
        if hop.begin is not None:
            self._begin(hop, hop.begin, want)
        for outcome in hop.outcomes:
            before, ended = self._step(run_id, outcome.n)
            if before is None:
                continue
            if outcome.fence is None:
                ended["delivered_seq"] = outcome.seq
            else:
                self._end(ended, before.fence, outcome)
        for step in hop.issued:
            self._issue(run_id, step)
        for n, seq, payload, at in hop.ended:
            before, ended = self._step(run_id, n)
            fence = 0 if before is None else before.fence
            ended |= {"state": StepState.SUCCEEDED, "output": payload, "delivered_seq": seq}
            ended |= {"finished_at": at, "fence": fence + 1}
        for number, seq in hop.signals:
            self.signals.setdefault(number, {})["delivered_seq"] = seq
        self._add_answers(hop)
        for n in hop.dropped:
            self._drop(run_id, n)
        for n in hop.begun_waits:
            before, waits = self._step(run_id, n)
            is_open = before is not None and before.state == "waiting" and n not in hop.dropped
            if before is not None and is_open and before.complete_by is None:
                waits["complete_by"] = self._now + before.timeout_s
        for n, key in hop.effects:
            self._step(run_id, n)[1]["effect"] = key
        for n, seq in hop.placed:
            self._step(run_id, n)[1]["after_seq"] = seq
        for n, due_s in hop.promised:
            self._step(run_id, n)[1]["due_at"] = self._now + due_s
        for child in hop.children:
            self._child(hop, child)
        for one in hop.child_undos:
            self.loose_steps.add((run_id, one.n))
            self.loose_runs.update(
                child.id
                for child in checker.runs.values()
                if (child.parent_id, child.parent_n) == (run_id, one.child_n)
            )
        if run is None and hop.begin is None:
            self.loose_runs.add(run_id)  # it began in this same commit
            return
        if hop.progress is not None:
            want["progress"] = hop.progress
        if hop.published is not None:
            want["published"] = hop.published
        if hop.kept_n is not None:
            want["kept_n"] = hop.kept_n if run is None else max(run.kept_n, hop.kept_n)
        if hop.next_input is not None:
            generation, base_n = (1, 0) if run is None else (run.generation, run.base_n)
            want |= {"input": hop.next_input, "generation": generation + 1, "fence": hop.fence + 1}
            want |= {"progress": None, "started_at": hop.begun_at, "kept_n": 0}
            want["base_n"] = max(base_n, checker.last_n[run_id])
        else:
            self._move(hop, run, want)

    def _begin(self, hop: Hop, begin: NewRun, want: Want) -> None:
        self._start(begin)
        close = hop.close
        want |= {"state": "running", "owner": self._node, "fence": hop.fence, "created_at": hop.begun_at}
        want |= {"started_at": hop.begun_at, "deadline": hop.deadline, "generation": 1, "queue": 0}
        if close is not None:
            want |= {"state": close.state, "owner": None, "fence": hop.fence + 1, "output": close.output}
            want |= {"error": close.error, "finished_at": close.at}

    def _start(self, run: NewRun) -> None:
        """A run is started. If another one has its id, nothing is written."""
        if self._is_known(run.id):
            return
        now, want = self._now, self.runs.setdefault(run.id, {})
        want |= {"id": run.id, "namespace": run.namespace, "workflow": run.workflow, "version": run.version}
        want |= {"input": run.input, "digest": run.digest, "priority": run.priority, "state": "pending"}
        want |= {"tags": json.dumps(run.tags) if run.tags else None, "fence": 0, "owner": None}
        above = (run.parent_id, run.parent_n)
        own, by = ((None, None), above) if run.detached else (above, (None, None))
        want |= {"parent_id": own[0], "parent_n": own[1], "started_by": by[0], "started_n": by[1]}
        want |= {"created_at": now, "fair": run.fair, "retry_of": None}
        later = run.begin_at
        if later is None and run.begin_in_s is not None:
            later = now + run.begin_in_s
        begins_at = max(now, later or 0.0)
        want["deadline"] = None if run.timeout_s is None else begins_at + run.timeout_s
        want["begin_at"] = later if later is not None and later > now else None
        due_at = run.due_at
        if due_at is None and run.due_in_s is not None:
            due_at = begins_at + run.due_in_s
        want["due_at"] = due_at

    def _is_known(self, run_id: str) -> bool:
        """True if there is a run with this id already, or this commit has begun one."""
        is_there = run_id in self._checker.runs and run_id not in self._checker.world.pruned
        return is_there or bool(self.runs.get(run_id))

    def _child(self, hop: Hop, child: NewRun) -> None:
        self.loose_steps.add((hop.run_id, child.parent_n or 0))
        if child.retry_of is not None or child.gather is not None or self._is_known(child.id):
            self.loose_runs.add(child.id)
            return
        self._start(child)

    def _issue(self, run_id: str, step: NewStep) -> None:
        want, now = self.steps.setdefault((run_id, step.n), {}), self._now
        is_seated = step.state is StepState.RUNNING
        want |= {
            "key": step.key,
            "kind": step.kind,
            "name": step.name,
            "lane": step.lane,
            "state": step.state,
        }
        want |= {"priority": step.priority, "attempts_max": step.attempts_max, "timeout_s": step.timeout_s}
        want |= {"input": step.input, "digest": step.digest, "retry": step.retry, "after_seq": step.after_seq}
        want |= {"ready_at": now if step.ready_at is None else step.ready_at, "issued_at": now}
        want |= {
            "attempt": int(is_seated),
            "fence": int(is_seated),
            "agent": self._node if is_seated else None,
        }
        want["started_at"] = now if is_seated else None
        by = now + step.timeout_s if is_seated and step.timeout_s is not None else None
        want |= {"complete_by": by, "delivered_seq": None, "finished_at": None, "checkpoint": None}
        queue = (0, *[None] * 6) if step.queue is None else step.queue.columns
        want |= dict(zip(QUEUED, queue, strict=True))

    def _drop(self, run_id: str, n: int) -> None:
        before, want = self._step(run_id, n)
        seq = want.get("delivered_seq", None if before is None else before.delivered_seq)
        if seq is not None:
            return
        state = want.get("state", None if before is None else before.state)
        want["delivered_seq"] = 0
        if state not in STEP_ENDED:
            fence = want.get("fence", 0 if before is None else before.fence)
            want |= {"state": "cancelled", "finished_at": self._now, "fence": fence + 1}

    def _add_answers(self, hop: Hop) -> None:
        if not hop.set_aside and not hop.replies and hop.next_input is None:
            return
        changed = {before.id: before for _, before, _ in self._commit.signals if before is not None}
        known = self._checker.rows["signals"] | changed
        places = {
            one.delivered_seq: one.id
            for one in known.values()
            if one.run_id == hop.run_id and one.delivered_seq
        } | {seq: number for number, seq in hop.signals}
        for seq, why in hop.set_aside:
            if seq in places:
                self.signals.setdefault(places[seq], {})["set_aside"] = why
        for seq, how, reply, at in hop.replies:
            if seq in places:
                self.signals.setdefault(places[seq], {}).update(answer=how, reply=reply, replied_at=at)
        if hop.next_input is None:
            return
        self.renewed.add(hop.run_id)
        for seq, number in places.items():
            want = self.signals.setdefault(number, {})
            row = known.get(number)
            answer = want.get("answer", None if row is None else row.answer)
            if seq in hop.unread:
                want["delivered_seq"] = None
            elif answer is not None and hop.had_updates:
                want["delivered_seq"] = 0
            else:
                want[GONE] = True

    def _add_sends(self, hop: Hop) -> None:
        for send in hop.sends:
            if self._is_open(send.run_id):
                self.sent.setdefault((send.run_id, send.name, send.key), send.payload)
        for n in hop.cancelled:
            for child in self._checker.runs.values():
                if (child.parent_id, child.parent_n) == (hop.run_id, n) and self._is_open(child.id):
                    self.sent.setdefault((child.id, CANCEL, "cancel"), b"")

    def _is_open(self, run_id: str) -> bool:
        """True if a run is there when signals are sent, and has not ended: after what the hops begin and end."""
        run = self._checker.runs.get(run_id)
        is_there = run is not None and run.state not in RUN_ENDED and run_id not in self._checker.world.pruned
        for hop in self._hops:
            if hop.run_id == run_id:
                is_there = is_there or hop.begin is not None
                if hop.close is not None and hop.close.state in RUN_ENDED:
                    return False
        return is_there

    def _move(self, hop: Hop, run: Run | None, want: Want) -> None:
        """What becomes of a run's row when the run leaves memory, or ends. That of a new run is inserted as it ends."""
        fence = hop.fence + 1
        close = hop.close
        if close is not None:
            if run is not None:
                want |= {"state": close.state, "owner": None, "fence": fence, "output": close.output}
                if close.state is RunState.STUCK:
                    want |= {"note": close.error, "finished_at": None}
                else:
                    want |= {"error": close.error, "finished_at": close.at}
            if close.parent_id is not None:
                self._end_parents_step(hop, close)
        elif hop.undo is not None:
            want |= {"state": "undoing", "ending": hop.undo.ending, "error": hop.undo.error}
            want |= {"owner": None, "fence": fence}
        elif hop.park:
            want |= {"owner": None, "fence": fence}
            want["state"] = self._freed(want.get("state", "" if run is None else run.state), hop.run_id)

    def _freed(self, state: str, run_id: str) -> str:
        if state != "running":
            return state
        left = self._checker.connection.execute(WAITS_FOR, (run_id, run_id)).get
        return "running" if left else "pending"

    def _end_parents_step(self, hop: Hop, close: Any) -> None:
        """The step that waits for a run ends with it."""
        place = (close.parent_id, close.parent_n)
        step = self._checker.steps.get(place)
        dropped = any(
            type(op) is Hop and op.run_id == close.parent_id and close.parent_n in op.dropped
            for op in self._commit.asked["ops"]
        )
        if step is None or step.state != "waiting" or dropped or close.state not in RUN_ENDED:
            return
        want = self.steps.setdefault(place, {})
        want |= {"fence": step.fence + 1, "finished_at": close.at}
        is_well = close.state is RunState.SUCCEEDED
        if not close.ends_undo:
            want["state"] = "succeeded" if is_well else "failed"
            want |= {"output": close.output, "error": close.error}
        elif close.state in (RunState.UNDONE, RunState.SUCCEEDED):
            want |= {"state": "succeeded", "output": b"false" if is_well else b"true"}
        else:
            want["state"] = "failed"
            self.loose_steps.add(place)

    # --- comparing ----------------------------------------------------------------------------------------------------

    def differences(self) -> Iterator[str]:
        checker, commit = self._checker, self._commit
        rows: dict[Any, Any] = {}
        for _, before, after in commit.steps:
            place = before[:2] if after is None else after[:2]
            rows[place] = after
            if place[0] in self._commit.retried:
                continue  # a child goes on from what the run before has recorded
            if place[0] in self.renewed:
                if after is not None:
                    yield f"step {place} is there, and its run has continued as new"
            else:
                want = self.steps.get(place)
                if place in self.loose_steps and after is not None and after.kind in BY_OTHERS:
                    want = (want or {}) | dict.fromkeys(ENDS, ANYTHING)
                yield from _compared("step", before, after, want)
        for place, want in self.steps.items():
            if place not in rows and place[0] not in self.renewed:
                yield from _unchanged("step", place, checker.steps.get(place), want)
        seen = set()
        for _, before, run in commit.runs:
            name = before.id if run is None else run.id
            seen.add(name)
            if name not in self.loose_runs:
                if name not in commit.retried and not _is_of_retry(before, run):
                    yield from _compared("run", before, run, self.runs.get(name))
        for name, want in self.runs.items():
            if name not in seen and name not in self.loose_runs:
                yield from _unchanged("run", name, checker.runs.get(name), want)
        yield from self._compared_signals()
        yield from self._compared_attempts()

    def _compared_signals(self) -> Iterator[str]:
        rows = self._checker.rows["signals"]
        changed: dict[int, Signal | None] = {}
        sent: set[tuple[str, str, str]] = set()
        for _, before, after in self._commit.signals:
            number = before.id if after is None else after.id
            changed[number] = after
            if before is None:
                assert after is not None
                place = (after.run_id, after.name, after.key)
                sent.add(place)
                if after.run_id in self._commit.retried or after.run_id in self.loose_runs:
                    continue
                payload = self.sent.get(place)
                if payload is None or (payload and payload != after.payload):
                    yield f"the signal {after} was sent, and nobody sent it"
                continue
            want = self.signals.get(number, {})
            if GONE in want:
                if after is not None:
                    yield f"the signal {after} is still there, and its generation is over"
                continue
            yield from _compared("signal", before, after, want)
        for number, want in self.signals.items():
            if number in changed or not want:
                continue
            if GONE in want:
                yield f"the signal {rows.get(number)} is still there, and its generation is over"
            else:
                yield from _unchanged("signal", number, rows.get(number), want)
        left = self.sent.keys() - sent
        if left:
            known = {(one.run_id, one.name, one.key) for one in rows.values()}
            for place in left - known:
                yield f"the signal {place} is not there"

    def _compared_attempts(self) -> Iterator[str]:
        kept = sorted((*one[:4], one.error) for one in self._commit.attempts if one.ending != "refused")
        wanted = sorted(self.kept)
        if kept != wanted:
            yield f"the attempts {kept} are kept, not {wanted}"


def _is_of_retry(before: Any, after: Any) -> bool:
    """True if a child that has succeeded goes over to the retry of its parent: I9 says when."""
    return before is not None and after is not None and before.parent_id != after.parent_id


def _compared(what: str, before: Any, after: Any, want: Want | None) -> Iterable[str]:
    """Compare a row that has changed with what must be in it."""
    if after is None:
        yield f"{what} {before[:2]} is gone"
        return
    if want is None:
        yield f"{what} {after[:2]} changed by itself: {before} became {after}"
        return
    for name, expected in want.items():
        value = getattr(after, name)
        if value != expected and expected is not ANYTHING:
            yield f"{what} {after[:2]}: {name} is {value!r}, not {expected!r}"
    if before is None:
        return
    for name, old, value in zip(after._fields, before, after, strict=True):
        if old is not value and old != value and name not in want and name != "spent":
            yield f"{what} {after[:2]}: {name} was {old!r}, and is {value!r} by itself"


def _unchanged(what: str, place: Any, row: Any, want: Want) -> Iterable[str]:
    """Compare a row that has not changed with what must be in it."""
    for name, value in want.items():
        if row is None:
            yield f"{what} {place} is not there"
            return
        if name in row._fields and getattr(row, name) != value and value is not ANYTHING:
            yield f"{what} {place}: {name} is {getattr(row, name)!r}, not {value!r}"


def I72_written_as_asked(checker: Checker, commit: Commit) -> Iterator[str]:
    """A commit writes what its operations say, to the rows that they name, and nothing else."""
    if commit.verb == "commit":
        yield from Written(checker, commit).differences()


# --- what the other writes do to a row --------------------------------------------------------------------------------


def _claimed_step(commit: Commit, step: Step) -> Want:
    by = None if step.timeout_s is None else commit.now + step.timeout_s
    want = {"state": "running", "agent": commit.node, "attempt": step.attempt + 1, "fence": step.fence + 1}
    return want | {"started_at": commit.now, "complete_by": by}


def _claimed_run(commit: Commit, run: Run) -> Want:
    state = "running" if run.state == "pending" else run.state
    began = commit.now if run.started_at is None else run.started_at
    return {"state": state, "owner": commit.node, "fence": run.fence + 1, "started_at": began}


def _handed_back(commit: Commit, step: Step) -> Want:
    want = {"state": "ready", "fence": step.fence + 1, "agent": None, "complete_by": None}
    return want | {"excused": step.excused + 1}


def _given_up(commit: Commit, run: Run) -> Want:
    """What becomes of a run that its owner does not know of, or whose owner is gone."""
    return {"state": ANYTHING, "owner": None, "fence": run.fence + 1}


def _reclaimed_step(commit: Commit, step: Step) -> Want:
    """I68 says what follows, and when. A step that goes on keeps its error, which says whether it may have had its effect."""
    lost = commit.verb == "reclaim"
    after = commit.process.world.checker.now_step(commit, step.run_id, step.n)
    goes_on = after.state == "ready" and after.ready_at < NEVER / 2
    want = {"state": ANYTHING, "ready_at": ANYTHING, "finished_at": ANYTHING}
    want["error"] = step.error if goes_on else ANYTHING
    want |= {"fence": step.fence + 1, "agent": None, "complete_by": None}
    return want | {"losses": step.losses + lost, "timeouts": step.timeouts + (not lost)}


def _fired(commit: Commit, step: Step) -> Want:
    return {"state": "succeeded", "fence": step.fence + 1, "finished_at": commit.now}


def _held(commit: Commit, run: Run) -> Want:
    want = {"resume": run.state, "state": "held", "owner": None, "fence": run.fence + 1}
    return want | {"note": commit.asked["note"]}


def _released(commit: Commit, run: Run) -> Want:
    state = "undoing" if run.resume == "undoing" else "pending"
    return {"state": state, "resume": None, "note": None, "fence": run.fence + 1}


def _cancelled(commit: Commit, run: Run) -> Want:
    """A run that asked for nothing yet is cancelled at once. The code of any other one hears of it."""
    if run.state == "held":
        return _released(commit, run)
    if run.state == "stuck" and run.resume is not None:
        return _unstuck(commit, run)  # it waited for a person, and hears of the cancel now
    if run.state != "pending" or commit.process.world.checker.last_n.get(run.id):
        return {}
    return {"state": "cancelled", "finished_at": commit.now, "fence": run.fence + 1, "note": ANYTHING}


def _steered(commit: Commit, run: Run) -> Want:
    return {"state": "undoing", "resume": None, "note": None, "fence": run.fence + 1}


def _stuck(commit: Commit, run: Run) -> Want:
    want = {"state": "stuck", "resume": run.state, "owner": None, "fence": run.fence + 1}
    return want | {"note": ANYTHING}


def _unstuck(commit: Commit, run: Run) -> Want:
    return {"state": run.resume, "resume": None, "note": None, "fence": run.fence + 1}


def _retried_now(commit: Commit, step: Step) -> Want:
    return {"ready_at": commit.now, "fence": step.fence + 1}


def _resolved(commit: Commit, step: Step) -> Want:
    act = commit.asked["act"]
    if act == "release":
        want: Want = {"fence": step.fence + 1, "ready_at": commit.now, "excused": step.attempt}
        return want | {"losses": 0, "timeouts": 0, "throttled": 0}
    if act == "skip":
        want = {"state": "succeeded", "output": commit.asked["result"], "error": None}
    else:
        want = {"state": "failed"}
    return want | {"fence": step.fence + 1, "finished_at": commit.now}


def _outran(commit: Commit, step: Step) -> Want:
    want = {"state": "succeeded", "output": commit.asked["output"], "error": None, "finished_at": commit.now}
    want |= {"fence": step.fence + 1, "agent": commit.node, "complete_by": None}
    return want | {"started_at": ANYTHING}


def _extended(commit: Commit, step: Step) -> Want:
    return {"complete_by": None if step.timeout_s is None else commit.now + step.timeout_s}


def _answered(commit: Commit, step: Step) -> Want:
    return {"state": ANYTHING, "output": ANYTHING, "error": ANYTHING, "fence": step.fence + 1} | {
        "finished_at": commit.now
    }


def _joined(commit: Commit, step: Step) -> Want:
    return _answered(commit, step)


def _admitted(commit: Commit, run: Run) -> Want:
    return {"queue": -1 - run.queue, "input": ANYTHING, "digest": ANYTHING}


STEP_RULES: dict[str, Rule] = {
    "claim_steps": _claimed_step, "claim_probes": _claimed_step, "reconcile": _handed_back, "retire": _handed_back,
    "reclaim": _reclaimed_step, "end_overdue": _reclaimed_step, "fire_timers": _fired, "retry_now": _retried_now,
    "resolve_quarantine": _resolved, "end_twin": _outran, "answer_joins": _joined, "answer": _answered,
    "expire_callbacks": _answered, "extend": _extended,
}  # fmt: skip
RUN_RULES: dict[str, Rule] = {
    "claim_runs": _claimed_run, "claim_run": _claimed_run, "reconcile": _given_up, "retire": _given_up,
    "reclaim": _given_up, "hold": _held, "hold_run": _held, "release": _released, "cancel_run": _cancelled,
    "steer_undo": _steered, "stick_quarantined": _stuck, "resolve_quarantine": _unstuck, "admit_runs": _admitted,
}  # fmt: skip
"""By verb, what becomes of a row that it changes. Columns that are not named stay as they were."""


def I73_changed_as_its_verb_says(checker: Checker, commit: Commit) -> Iterator[str]:
    """A write that is no commit of a node changes rows as its verb says, and nothing else in them."""
    for what, changes, rules in (("step", commit.steps, STEP_RULES), ("run", commit.runs, RUN_RULES)):
        rule = rules.get(commit.verb)
        if rule is None:
            continue
        for _, before, after in changes:
            if before is None or after is None:
                continue
            yield from _compared(what, before, after, rule(commit, before))
