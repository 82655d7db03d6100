"""Operations, which nodes commit."""

from __future__ import annotations

import json
from typing import Any

from holdfast.lifecycle import RUN_ACTIVE, RUN_ENDED, STEP_ENDED, STEP_LIVE, By
from holdfast.model import CANCEL, UNDO, ChildUndo, NewRun, NewSignal, Outcome, RunState, StepKind, StepState
from holdfast.store.answers import Answer
from holdfast.store.batch import counts_of
from holdfast.store.operations import (
    Close,
    HandBack,
    Hop,
    NewStep,
    Op,
    QuarantineStep,
    RetryStep,
    Save,
    Start,
)
from tests.differential.spec.retries import Retries
from tests.differential.spec.rows import (
    CLOSES,
    CONFLICT,
    NEVER,
    SECOND,
    WRONG_STATE,
    Alert,
    Listed,
    Refused,
    Run,
    Signal,
    Step,
    moved_run,
    moved_step,
)


class Commits(Retries):
    def commit(self, node: str, op: Op) -> Answer:
        """Write one operation completely, or write nothing and return why."""
        before = self.copy()
        try:
            return self._write(node, op)
        except Refused:
            vars(self).update(vars(before))
            return self._refuse(node, op)

    def _write(self, node: str, op: Op) -> Answer:
        if isinstance(op, Start):
            return self._start(op.run)
        if isinstance(op, Hop):
            self._hop(node, op)
        elif isinstance(op, Outcome):
            self._report(op)
        elif isinstance(op, RetryStep):
            self._try_again(node, op)
        elif isinstance(op, HandBack):
            self._hand_back(self._current_step(op.run_id, op.n, op.fence), By.AGENT)
            run = self.runs[op.run_id]
            if op.hold is not None and (run.state is RunState.PENDING or run.state in RUN_ACTIVE):
                self._hold(run, By.AGENT, op.hold)
                self.failures.append((op.run_id, 0))
                self.note("agent", "hold", op.run_id)
        elif isinstance(op, QuarantineStep):
            self._put_in_quarantine(node, op)
        elif isinstance(op, Save):
            self._save(op)
        self._log(op)
        return Answer.ACCEPTED

    def _log(self, op: Op) -> None:
        """Write what was logged, together with the rest of the operation. A run that continues as new forgets it."""
        if isinstance(op, Hop):
            for end in op.outcomes:
                self.keep_logs(op.run_id, end.n, end.logs)
            self.keep_logs(op.run_id, 0, op.logs)
            if op.next_input is not None:
                self.forget_logs(op.run_id)
        elif not isinstance(op, Start):
            self.keep_logs(op.run_id, op.n, op.logs)

    def _refuse(self, node: str, op: Op) -> Answer:
        if isinstance(op, Hop) and op.begin is not None:
            return Answer.DUPLICATE
        if isinstance(op, Outcome) and (step := self.steps.get((op.run_id, op.n))) is not None:
            if (step.fence, step.agent, step.state) == ((op.fence or 0) + 1, node, op.state):
                return Answer.DUPLICATE
            self.attempts.append((step.run_id, step.n, step.attempt, "refused", node))
        return Answer.FENCED

    def _start(self, run: NewRun) -> Answer:
        if (seen := self.runs.get(run.id)) is not None:
            same = (seen.workflow, seen.digest) == (run.workflow, run.digest)
            return Answer.DUPLICATE if same else Answer.FENCED
        self._put(self._new(run))
        return Answer.ACCEPTED

    def _ask_children(self, op: Hop) -> None:
        for n, effect in op.effects:
            self._put(self.steps[op.run_id, n]._replace(effect=effect))
        asked = {(op.run_id, n) for n in op.cancelled}
        for run in list(self.runs.values()):
            if (run.parent_id, run.parent_n) in asked:
                self._send(NewSignal(run.id, CANCEL, "cancel", b""))
        for one in op.child_undos:
            self._undo_child(op.run_id, one)
        for child in op.children:
            self._start_child(child)

    def _start_child(self, child: NewRun) -> None:
        """Start a child. If another run has its id, the step joins that run or fails. It can join only a run with the
        same workflow and input that does not wait for this run."""
        seen = self.runs.get(child.id)
        assert child.parent_id is not None
        assert child.parent_n is not None
        place = child.parent_id, child.parent_n
        outcome = child.retry_of is not None and self.child_goes_on(child)
        if not isinstance(outcome, bool):
            self._end_child_step(place, *outcome)
        if outcome:
            return
        if child.detached:
            self._start_apart(child, seen, place)
        elif seen is None:
            self._put(self._new(child))
        elif (seen.parent_id, seen.parent_n) != place:
            same = (seen.workflow, seen.digest) == (child.workflow, child.digest)
            circular = seen.state not in RUN_ENDED and seen.id in self._waiting_for(child.parent_id)
            if child.joins and same and not circular:
                self.joins[place] = child.id
            else:
                self._end_child_step(place, StepState.FAILED, None, CONFLICT)

    def _start_apart(self, run: NewRun, seen: Run | None, place: tuple[str, int]) -> None:
        """Start a run that is nobody's child. The step ends at once, with the run's id."""
        if seen is None:
            made = self._new(run)._replace(
                parent_id=None, parent_n=None, started_by=place[0], started_n=place[1]
            )
            self._put(made)
        elif (seen.started_by, seen.started_n) != place:
            same = (seen.workflow, seen.digest) == (run.workflow, run.digest)
            if not (run.joins and same):
                self._end_child_step(place, StepState.FAILED, None, CONFLICT)
                return
        self._end_child_step(place, StepState.SUCCEEDED, json.dumps(run.id).encode(), None)

    def _waiting_for(self, run_id: str) -> set[str]:
        """Return the run and all runs that wait for it, as parents or because they joined it."""
        found: set[str] = set()
        left = [run_id]
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                left += [waiter for (waiter, _), joined in self.joins.items() if joined == one]
                if one in self.runs and (parent := self.runs[one].parent_id) is not None:
                    left.append(parent)
        return found

    def _new(self, run: NewRun) -> Run:
        return Run(
            run.id,
            run.workflow,
            run.version,
            RunState.PENDING,
            run.input,
            run.digest,
            run.priority,
            run.namespace,
            parent_id=run.parent_id,
            parent_n=run.parent_n,
            deadline=None if run.timeout_s is None else self.now + run.timeout_s * SECOND,
            created_at=self.now,
        )

    def _current_step(self, run_id: str, n: int, fence: int | None) -> Step:
        """Return the step if its fence is this one. That is the only precondition of an agent's write."""
        step = self.steps.get((run_id, n))
        if step is None or step.fence != fence:
            raise Refused
        return step

    def _end(self, step: Step, by: By, state: StepState, **changes: Any) -> None:
        name = {StepState.SUCCEEDED: "succeed", StepState.FAILED: "fail", StepState.CANCELLED: "cancel"}[
            state
        ]
        self._put(moved_step(step, name, by, finished_at=self.now, **changes))
        if state is StepState.FAILED and (by is not By.SCHEDULER or step.kind is StepKind.CALL):
            self.failures.append((step.run_id, step.n))

    def _report(self, op: Outcome) -> None:
        step = self._current_step(op.run_id, op.n, op.fence)
        self._end(step, By.AGENT, op.state, output=op.output, error=op.error)

    def _try_again(self, node: str, op: RetryStep) -> None:
        step = self._current_step(op.run_id, op.n, op.fence)
        self.attempts.append((step.run_id, step.n, step.attempt, op.ending, node))
        excused, losses, timeouts, throttled = counts_of(op)
        self._put(
            moved_step(
                step,
                "retry",
                By.AGENT,
                agent=None,
                complete_by=None,
                error=op.error,
                excused=step.excused + excused,
                losses=step.losses + losses,
                timeouts=step.timeouts + timeouts,
                throttled=step.throttled + throttled,
                ready_at=self.now + op.delay_s * SECOND,
            )
        )

    def _hand_back(self, step: Step, by: By) -> None:
        self._put(
            moved_step(
                step,
                "hand_back",
                by,
                agent=None,
                complete_by=None,
                excused=step.excused + 1,
            )
        )

    def _put_in_quarantine(self, node: str, op: QuarantineStep) -> None:
        step = self._current_step(op.run_id, op.n, op.fence)
        self.attempts.append((step.run_id, step.n, step.attempt, op.ending, node))
        _, losses, timeouts, throttled = counts_of(op)
        self._put(
            moved_step(
                step,
                "quarantine",
                By.AGENT,
                agent=None,
                complete_by=None,
                error=op.error,
                losses=step.losses + losses,
                timeouts=step.timeouts + timeouts,
                throttled=step.throttled + throttled,
                ready_at=NEVER,
            )
        )
        listed = Listed(op.fingerprint, op.step, op.kind, op.place, self.now)
        self.quarantine[step.run_id, step.n] = listed
        self.failures.append((step.run_id, step.n))

    def _save(self, op: Save) -> None:
        step = self._current_step(op.run_id, op.n, op.fence)
        self._put(
            step._replace(
                checkpoint=op.checkpoint if op.checkpoint is not None else step.checkpoint,
                progress=op.progress if op.progress is not None else step.progress,
            )
        )

    def _hop(self, node: str, op: Hop) -> None:
        """Write a hop. Its preconditions are the fence of the run, and for each outcome the fence of its step."""
        if op.begin is not None:
            if not self.is_live(node) or op.begin.id in self.runs:
                raise Refused
            run = self._new(op.begin)._replace(
                state=RunState.RUNNING,
                owner=node,
                fence=op.fence,
                created_at=op.begun_at,
                started_at=op.begun_at,
            )
            self._put(run._replace(deadline=op.deadline))
        elif op.run_id not in self.runs or self.runs[op.run_id].fence != op.fence:
            raise Refused
        for end in op.outcomes:
            if end.fence is None:
                step = self.steps[op.run_id, end.n]
                if step.delivered_seq is not None or step.state not in STEP_ENDED:
                    raise Refused
                self._put(step._replace(delivered_seq=end.seq))
                continue
            step = self._current_step(op.run_id, end.n, end.fence)
            self._end(
                step, By.SCHEDULER, end.state, output=end.output, error=end.error, delivered_seq=end.seq
            )
        self._deliver_signals(op)
        if op.next_input is not None:
            self._continue(op, op.next_input)
        for new in op.issued:
            self._issue(node, op.run_id, new)
        for n, seq, payload, _ in op.ended:
            self._end(
                self.steps[op.run_id, n],
                By.SCHEDULER,
                StepState.SUCCEEDED,
                output=payload,
                delivered_seq=seq,
            )
        for n in op.dropped:
            self._drop(self.steps[op.run_id, n])
        self._ask_children(op)
        for send in op.sends:
            self._send(send)
        run = self.runs[op.run_id]
        if op.next_input is None:
            self._put(
                run._replace(
                    progress=op.progress if op.progress is not None else run.progress,
                    kept_n=max(run.kept_n, op.kept_n or 0),
                )
            )
        if op.close is not None:
            self._close(self.runs[op.run_id], op.close)
        run = self.runs[op.run_id]
        if op.undo is not None:
            self._put(
                moved_run(
                    run,
                    "undo",
                    By.SCHEDULER,
                    owner=None,
                    ending=op.undo.ending,
                    error=op.undo.error,
                )
            )
        if op.park and run.owner == node:  # two nodes that begin one run have the same fence
            self._free(run)

    def _deliver_signals(self, op: Hop) -> None:
        """Deliver signals. In the model, the id of a signal is its place among the signals of the run."""
        mine = self.signals_of(op.run_id)
        for place, seq in op.signals:
            signal = mine[place]
            if signal.delivered_seq is not None:
                raise Refused
            self.signals[signal[:3]] = signal._replace(delivered_seq=seq)
        for seq, why in op.set_aside:
            fresh = [
                row for row in self.signals_of(op.run_id) if row.delivered_seq == seq and not row.set_aside
            ]
            if not fresh:
                raise Refused
            self.signals[fresh[0][:3]] = fresh[0]._replace(set_aside=why)
            self.failures.append((op.run_id, -seq))
        for seq, answer, reply, _ in op.replies:
            fresh = [
                row for row in self.signals_of(op.run_id) if row.delivered_seq == seq and row.answer is None
            ]
            if not fresh:
                raise Refused
            self.signals[fresh[0][:3]] = fresh[0]._replace(answer=answer, reply=reply)

    def _continue(self, op: Hop, next_input: bytes) -> None:
        run = self.runs[op.run_id]
        last = max((step.n for step in self.steps_of(run.id)), default=0)
        self._put(
            run._replace(
                input=next_input,
                generation=run.generation + 1,
                fence=run.fence + 1,
                base_n=max(run.base_n, last),
                kept_n=0,
                progress=None,
                started_at=self.now,
            )
        )
        self.steps = {key: step for key, step in self.steps.items() if step.run_id != run.id}
        self.attempts = [row for row in self.attempts if row[0] != run.id]
        for signal in self.signals_of(run.id):
            if signal.delivered_seq in op.unread:
                self.signals[signal[:3]] = signal._replace(delivered_seq=None)
            elif signal.answer is not None:  # the same key gets the same answer, however long the run goes on
                self.signals[signal[:3]] = signal._replace(delivered_seq=0)
            elif signal.delivered_seq is not None:
                del self.signals[signal[:3]]
        self.note("scheduler", "continue", run.id)

    def _issue(self, node: str, run_id: str, new: NewStep) -> None:
        if (run_id, new.n) in self.steps:  # the hop was written before, and its answer got lost
            raise Refused
        leased = new.state is StepState.RUNNING
        timeout = None if new.timeout_s is None or not leased else self.now + new.timeout_s * SECOND
        self._put(
            Step(
                run_id,
                new.n,
                new.key,
                new.kind,
                new.lane,
                new.state,
                new.priority,
                self.now if new.ready_at is None else new.ready_at,
                int(leased),
                attempts_max=new.attempts_max,
                timeout_s=new.timeout_s,
                fence=int(leased),
                agent=node if leased else None,
                complete_by=timeout,
                issued_at=self.now,
                started_at=self.now if leased else None,
                name=new.name,
                retry=new.retry,
                after_seq=new.after_seq,
            )
        )

    def _drop(self, step: Step) -> None:
        """Drop a step that the code no longer waits for. It is cancelled if it has not ended, and is never
        delivered."""
        if step.state in STEP_LIVE:
            step = moved_step(step, "cancel", By.SCHEDULER, finished_at=self.now)
        if step.delivered_seq is None:
            self._put(step._replace(delivered_seq=0))

    def _close(self, run: Run, close: Close) -> None:
        ended = close.state in RUN_ENDED
        self._put(
            moved_run(
                run,
                CLOSES[close.state],
                By.SCHEDULER,
                close.state,
                owner=None,
                output=close.output,
                error=close.error if ended else run.error,
                note=run.note if ended else close.error,
                finished_at=close.at if ended else None,
            )
        )
        if not ended:
            self._raise("run stuck", "error", f"run stuck:{run.id}", run.id)
            return
        for step in self.steps_of(run.id):
            self._drop(step)
        if close.parent_id is None:
            if close.state in {RunState.FAILED, RunState.UNDONE}:
                self.failures.append((run.id, 0))
            return
        if close.ends_undo:
            self._end_undo((close.parent_id, close.parent_n or 0), close.state)
            return
        good = close.state is RunState.SUCCEEDED
        self._end_parents_step(
            run, StepState.SUCCEEDED if good else StepState.FAILED, close.output, close.error
        )

    def _undo_child(self, run_id: str, asked: ChildUndo) -> None:
        """Let a child that has succeeded undo itself, and wake it. If there is nothing to undo, the step ends at once."""
        found = [
            run for run in self.runs.values() if (run.parent_id, run.parent_n) == (run_id, asked.child_n)
        ]
        place = run_id, asked.n
        if not found:
            if asked.joins:
                self._end_child_step(place, StepState.SUCCEEDED, b"false", None)
            else:
                self._end_child_step(place, StepState.FAILED, None, CONFLICT)
            return
        (child,) = found
        undoable = any(
            step.lane in self.undoable or step.kind in (StepKind.CHILD, StepKind.UNDO)
            for step in self.steps_of(child.id)
        )
        if child.state is RunState.SUCCEEDED and undoable:
            moved = moved_run(
                child, "revoke", By.SCHEDULER, ending="failed", error=asked.error, finished_at=None
            )
            self._put(moved)
            self._send(NewSignal(child.id, UNDO, f"{run_id}#{asked.n}", b'{"act": "resume"}'))
        elif self.undone_by_n(child) is None:
            self._end_child_step(place, StepState.SUCCEEDED, b"false", None)
        else:
            self._end_undo(place, child.state)

    def _end_undo(self, place: tuple[str, int], state: RunState) -> None:
        """End the step that waited until a child was undone."""
        if state in (RunState.UNDONE, RunState.SUCCEEDED):
            undone = b"true" if state is RunState.UNDONE else b"false"
            self._end_child_step(place, StepState.SUCCEEDED, undone, None)
        else:
            self._end_child_step(place, StepState.FAILED, None, WRONG_STATE)

    @staticmethod
    def undone_by_n(run: Run) -> int | None:
        """Return the step of the parent that waits, or waited, until this run is undone."""
        try:
            found = json.loads(run.error or "{}")
        except ValueError:
            return None
        by_n: int | None = found.get("by_n") if isinstance(found, dict) else None
        return by_n

    def _raise(self, kind: str, level: str, key: str, run_id: str | None = None, times: int = 1) -> None:
        """Raise an alert, or count it if one with its key is open."""
        for number, seen in self.alerts.items():
            if seen.key == key and seen.cleared_at is None:
                self.alerts[number] = seen._replace(times=seen.times + times, last_at=self.now)
                return
        self.raised += 1
        self.alerts[self.raised] = Alert(kind, level, key, run_id, times, self.now, self.now)

    def _end_parents_step(self, run: Run, state: StepState, output: bytes | None, error: str | None) -> None:
        if run.parent_id is not None and run.parent_n is not None:
            self._end_child_step((run.parent_id, run.parent_n), state, output, error)

    def _end_child_step(
        self, place: tuple[str, int], state: StepState, output: bytes | None, error: str | None
    ) -> None:
        step = self.steps.get(place)
        if (
            step is not None
            and step.state is StepState.WAITING
            and step.kind in (StepKind.CHILD, StepKind.START)
        ):
            self._end(step, By.SCHEDULER, state, output=output, error=error)

    def _free(self, run: Run) -> None:
        """Clear the owner of a run. A run that waits for nothing has not asked for anything yet, so it becomes pending
        again."""
        quiet = all(step.delivered_seq is not None for step in self.steps_of(run.id)) and all(
            signal.delivered_seq is not None for signal in self.signals_of(run.id)
        )
        if quiet and run.state is RunState.RUNNING:
            self._put(moved_run(run, "free", By.SUPERVISOR, owner=None))
        else:
            self._put(run._replace(owner=None, fence=run.fence + 1))

    def _send(self, signal: NewSignal) -> bool:
        row = Signal(signal.run_id, signal.name, signal.key, signal.payload)
        run = self.runs.get(signal.run_id)
        if run is None or run.state in RUN_ENDED or row[:3] in self.signals:
            return False
        self.signals[row[:3]] = row
        return True

    def _hold(self, run: Run, by: By, note: str) -> None:
        self._put(moved_run(run, "hold", by, resume=run.state, owner=None, note=note))
