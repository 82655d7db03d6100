"""The hot path: the operations of one commit, as rows of values for the verbs that write them. The rows are the same
for every dialect.

A batch is optimistic. For most verbs each row of values must change one row of a table. If one does not, nothing is
written.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec

from holdfast.actor import entry
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import AskState, ChildUndo, Failure, LogPart, NewAsk, NewRun, Outcome, RunState, StepState
from holdfast.store.answers import Answer, PreconditionFailed
from holdfast.store.children import (
    CANCEL_KEY,
    ChildOutcome,
    cancel_payload,
    start_children,
    undo_children,
    undo_ended,
)
from holdfast.store.database import Noun, Session, StoreCall, transaction
from holdfast.store.operations import (
    HandBack,
    Hop,
    NewStep,
    Op,
    QuarantineStep,
    RetryStep,
    Save,
    Start,
    StepOp,
)
from holdfast.store.rows import start_row, tags_text
from holdfast.store.transaction import Transaction
from holdfast.store.verbs import Verb

Rows = list[tuple[Any, ...]]

_RUNNING, _FAILED = StepState.RUNNING, StepState.FAILED
_FAILED_RUN = frozenset({RunState.FAILED, RunState.UNDONE})
_by_run = attrgetter("run_id")
_by_step = attrgetter("run_id", "n")

ORDER = (
    (Verb.deliver_signals, True),
    (Verb.set_aside_signals, True),
    (Verb.answer_updates, True),
    (Verb.end_waits, True),
    (Verb.drop_steps, False),
    (Verb.begin_callbacks, False),
    (Verb.add_asks, True),
    (Verb.add_ask_people, True),
    (Verb.end_asks, False),
    (Verb.close_ask_people, False),
    (Verb.cancel_children, False),
    (Verb.name_effects, False),
    (Verb.place_steps, False),
    (Verb.promise_steps, False),
    (Verb.send_signals, False),
    (Verb.note_runs, False),
    (Verb.end_child_steps, False),
    (Verb.undo_runs, True),
    (Verb.alert_stuck_runs, False),
    (Verb.park_runs, True),
    (Verb.continue_runs, False),
    (Verb.forget_steps, False),
    (Verb.forget_attempts, False),
    (Verb.forget_logs, False),
    (Verb.unread_signals, False),
    (Verb.keep_answers, False),
    (Verb.forget_signals, False),
    (Verb.keep_attempts, False),
    (Verb.retry_steps, True),
    (Verb.quarantine_steps, True),
    (Verb.list_quarantined, False),
    (Verb.hand_back_steps, True),
    (Verb.save_steps, True),
    (Verb.note_failures, False),
    (Verb.journal_add, False),
)
"""The verbs of a batch beside those of its hops, in the order in which they are written. True: each row of values must
change one row."""
SHARED_STEPS = (
    Verb.drop_steps,
    Verb.begin_callbacks,
    Verb.end_child_steps,
    Verb.retry_steps,
    Verb.quarantine_steps,
    Verb.hand_back_steps,
    Verb.save_steps,
)
"""Verbs that write steps which others may write at the same time. Their rows begin with (run, n)."""


class WriteBatch:
    """The operations of one node that go into one commit."""

    def __init__(self, node: str, ops: Sequence[Op]) -> None:
        self.node, self.ops = node, ops
        # The rows that hops consist of.
        self.begun: Rows = []
        self.owned: Rows = []
        self.recorded: Rows = []
        self.delivered: Rows = []
        self.issued: Rows = []
        self.queued: Rows = []
        self.closed: Rows = []
        self._logged: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._more: dict[Verb, Rows] = {}
        self._held: dict[str, str] = {}
        self._children: list[NewRun] = []
        self._child_undos: list[tuple[str, ChildUndo]] = []
        self._starts: list[Start] = []
        hops: list[Hop] = []
        steps: list[StepOp] = []
        for op in ops:
            if type(op) is Hop:
                hops.append(op)
            elif type(op) is Start:
                self._starts.append(op)
            else:
                assert not isinstance(op, Hop | Start)
                steps.append(op)
        # All batches of all nodes lock rows in the same order, so that two batches cannot wait for each other.
        hops.sort(key=_by_run)
        for hop in hops:
            self._add_hop(hop)
        if steps:
            steps.sort(key=_by_step)
            for step in steps:
                self._add_step(step)
            self.recorded.sort(key=_place)

    # --- gathering ----------------------------------------------------------------------------------------------

    def _add(self, verb: Verb, row: tuple[Any, ...]) -> None:
        self._more.setdefault(verb, []).append(row)

    def _add_hop(self, hop: Hop) -> None:
        run_id, close = hop.run_id, hop.close
        if hop.begin is None:
            self.owned.append((run_id, hop.fence))
        else:
            self.begun.append(_begun_row(hop, hop.begin))
        for outcome in hop.outcomes:
            if outcome.fence is None:
                self.delivered.append((run_id, outcome.n, outcome.seq))
            else:
                self._record(run_id, outcome)
        for step in hop.issued:
            if step.queue is None:
                self.issued.append(_issued_row(run_id, step))
            else:
                self.queued.append((*_issued_row(run_id, step), *step.queue.columns))
        if close is not None:
            if hop.begin is None:  # otherwise the row of the new run is inserted as closed
                self.closed.append((run_id, hop.fence, close.state, close.output, close.error, close.at))
            self._add_close(hop)
        if not hop.is_plain:
            self._add_rest(hop)

    def _add_rest(self, hop: Hop) -> None:
        """Add what few hops have."""
        run_id = hop.run_id
        if (
            hop.signals
            or hop.set_aside
            or hop.ended
            or hop.dropped
            or hop.sends
            or hop.begun_waits
            or hop.promised
        ):
            self._add_waits(hop)
        for seq, answer, reply, at in hop.replies:
            self._add(Verb.answer_updates, (run_id, seq, answer, reply, at))
        if (
            hop.children
            or hop.cancelled
            or hop.effects
            or hop.placed
            or hop.child_undos
            or hop.asks
            or hop.withdrawn
        ):
            self._add_family(hop)
        if hop.progress is not None or hop.published is not None or hop.kept_n is not None:
            self._add(Verb.note_runs, (run_id, hop.progress, hop.published, hop.kept_n or 0))
        if hop.undo is not None:
            self._add(Verb.undo_runs, (run_id, hop.fence, hop.undo.ending, hop.undo.error))
        if hop.park:
            self._add(Verb.park_runs, (run_id, hop.fence, self.node))
        if hop.logs:
            self.add_logs(run_id, 0, hop.logs)
        if hop.next_input is not None:
            self._add_generation(hop)

    def add_logs(self, run_id: str, n: int, parts: Sequence[LogPart]) -> None:
        """Add what was logged. If a part comes twice, the later one counts, because a statement can write a row only
        once."""
        for one in parts:
            row = (run_id, n, *msgspec.structs.astuple(one))
            self._logged[row[:5]] = row

    @property
    def logged(self) -> Rows:
        """What was logged. The rows that guard it are locked first: those of the runs and steps, by the hop or by the
        rest of the batch."""
        return list(self._logged.values())

    @property
    def logged_with_hops(self) -> Rows:
        """What was logged, if the hop can write it, because there is no rest of the batch."""
        return [] if self._more else self.logged

    def _record(self, run_id: str, outcome: Outcome) -> None:
        self.recorded.append(
            (
                run_id,
                outcome.n,
                outcome.fence,
                outcome.state,
                outcome.output,
                outcome.error,
                outcome.at,
                outcome.seq,
            )
        )
        if outcome.state is _FAILED:
            self._add(Verb.note_failures, (run_id, outcome.n))
        if outcome.logs:
            self.add_logs(run_id, outcome.n, outcome.logs)

    def _add_close(self, hop: Hop) -> None:
        close = hop.close
        assert close is not None
        if close.state not in RUN_ENDED:  # the run is stuck, and a person decides how it goes on
            self._add(Verb.alert_stuck_runs, (hop.run_id, close.error or ""))
        elif close.parent_id is not None:
            waiter = (close.parent_id, close.parent_n or 0)
            if close.ends_undo:
                outcome = undo_ended(hop.run_id, waiter, close.state)._replace(at=close.at)
            else:
                state = StepState.SUCCEEDED if close.state is RunState.SUCCEEDED else _FAILED
                outcome = ChildOutcome(*waiter, state, close.output, close.error, close.at)
            self._add(Verb.end_child_steps, outcome)
        elif close.state in _FAILED_RUN:
            self._add(Verb.note_failures, (hop.run_id, 0))

    def _add_waits(self, hop: Hop) -> None:
        run_id = hop.run_id
        for signal in hop.signals:
            self._add(Verb.deliver_signals, signal)
        for seq, why in hop.set_aside:
            self._add(Verb.set_aside_signals, (run_id, seq, why))
            self._add(Verb.note_failures, (run_id, -seq))
        for wait in hop.ended:
            self._add(Verb.end_waits, (run_id, *wait))
        for n in sorted(hop.dropped):
            self._add(Verb.drop_steps, (run_id, n))
        for n in hop.begun_waits:
            self._add(Verb.begin_callbacks, (run_id, n))
        for send in hop.sends:
            self._add(Verb.send_signals, (send.run_id, send.name, send.key, send.payload))
        for n, due_s in hop.promised:
            self._add(Verb.promise_steps, (run_id, n, due_s))

    def _add_family(self, hop: Hop) -> None:
        self._children += hop.children
        self._child_undos += [(hop.run_id, one) for one in hop.child_undos]
        payload = cancel_payload(hop.run_id)
        for n in hop.cancelled:
            self._add(Verb.cancel_children, (hop.run_id, n, CANCEL_KEY, payload))
        for n, effect in hop.effects:
            self._add(Verb.name_effects, (hop.run_id, n, effect))
        for n, seq in hop.placed:
            self._add(Verb.place_steps, (hop.run_id, n, seq))
        if hop.asks or hop.withdrawn:
            self._add_asks(hop)

    def _add_asks(self, hop: Hop) -> None:
        for ask in hop.asks:
            self._add(Verb.add_asks, ask_values(hop.run_id, ask))
            for who in ask.who:
                self._add(Verb.add_ask_people, (ask.id, who, "asked", 0))
        for n in sorted(hop.withdrawn):
            self._add(Verb.end_asks, (hop.run_id, n, AskState.WITHDRAWN))
            self._add(Verb.close_ask_people, (hop.run_id, n))

    def _add_generation(self, hop: Hop) -> None:
        """Add what a run writes that continues as new. What was logged goes with the history."""
        self._logged = {place: row for place, row in self._logged.items() if place[0] != hop.run_id}
        self._add(Verb.continue_runs, (hop.run_id, hop.next_input, hop.begun_at))
        for verb in (Verb.forget_steps, Verb.forget_attempts, Verb.forget_logs, Verb.forget_signals):
            self._add(verb, (hop.run_id,))
        if hop.had_updates:
            self._add(Verb.keep_answers, (hop.run_id,))
        for seq in hop.unread:
            self._add(Verb.unread_signals, (hop.run_id, seq))
        self._add(
            Verb.journal_add, entry("scheduler", "continue", hop.run_id, None, "the next generation began")
        )

    def _add_step(self, op: StepOp) -> None:
        place = (op.run_id, op.n, op.fence)
        if type(op) is Outcome:
            self._record(op.run_id, op)
            return
        if op.logs:
            self.add_logs(op.run_id, op.n, op.logs)
        if type(op) is RetryStep:
            self._add(Verb.keep_attempts, (*place, op.ending, op.error))
            self._add(Verb.retry_steps, (*place, op.delay_s, op.error, *counts_of(op)))
        elif type(op) is QuarantineStep:
            self._add(Verb.keep_attempts, (*place, op.ending, op.error))
            self._add(Verb.quarantine_steps, (*place, op.error, *counts_of(op)[1:]))
            listed = (op.run_id, op.n, op.fingerprint, op.step, op.kind, op.place)
            self._add(Verb.list_quarantined, listed)
            self._add(Verb.note_failures, (op.run_id, op.n))
        elif type(op) is HandBack:
            self._add(Verb.hand_back_steps, place)
            if op.hold is not None:
                self._held[op.run_id] = op.hold
        elif type(op) is Save:
            self._save((*place, op.checkpoint, op.progress))
        else:
            raise TypeError(f"not an operation: {op!r}")

    def _save(self, row: tuple[Any, ...]) -> None:
        """Add a checkpoint or progress. Two saves of one step become one, because a statement can change a row only
        once."""
        rows = self._more.setdefault(Verb.save_steps, [])
        if rows and rows[-1][:3] == row[:3]:
            row = (
                *row[:3],
                *(new if new is not None else old for new, old in zip(row[3:], rows.pop()[3:], strict=True)),
            )
        rows.append(row)

    # --- writing ------------------------------------------------------------------------------------------------

    @property
    def has_hops(self) -> bool:
        return bool(
            self.owned
            or self.begun
            or self.recorded
            or self.delivered
            or self.issued
            or self.queued
            or self.closed
            or (self._logged and not self._more)
        )

    @property
    def is_single(self) -> bool:
        """True if the batch is written by one statement, which is atomic without a transaction."""
        if self._starts or self._children or self._child_undos or self._held or (self._logged and self._more):
            return False
        return len(self._more) + self.has_hops == 1

    @property
    def shared(self) -> tuple[list[str], list[tuple[str, int]]]:
        """The runs and steps (run, n) that others may write at the same time, in the order in which all lock them.
        Nothing, if the batch writes them with one statement: that one locks them in this order itself."""
        parts = [self.recorded, *(self._more.get(verb, []) for verb in SHARED_STEPS)]
        if sum(bool(part) for part in (*parts, self._held)) < 2:
            return [], []
        steps = {(row[0], row[1]) for part in parts for row in part}
        runs = {row[0] for row in self.owned} | self._held.keys()
        return sorted(runs), sorted(steps)

    async def write(self, session: Session) -> list[Answer]:
        """Write the whole batch. Return the answer to each operation. If this raises PreconditionFailed, the caller
        must roll back."""
        if self.has_hops:
            await session.hop(self)
        if self._more:
            for verb, is_demanded in ORDER:
                if rows := self._more.get(verb):
                    if is_demanded:
                        await session.demand(verb, rows)
                    else:
                        await session.each(verb, rows)
            if self._logged:
                await session.keep_logs(self.logged)
        if self._held:
            await self._hold(session)
        if self._child_undos:
            await undo_children(session, self._child_undos)
        if self._children:
            await start_children(session, self._children)
        if not self._starts:
            return [Answer.ACCEPTED] * len(self.ops)
        started = await self._start(session)
        return [started[id(op)] if type(op) is Start else Answer.ACCEPTED for op in self.ops]

    async def _hold(self, session: Session) -> None:
        """Hold the runs of steps whose records the agent's code cannot read. They wait for a person."""
        held = await session.all(Verb.hold_runs, sorted(self._held.items()))
        await session.each(
            Verb.journal_add, [entry("agent", "hold", run_id, None, note) for run_id, note in held]
        )
        await session.each(Verb.note_failures, [(run_id, 0) for run_id, _ in held])

    async def _start(self, session: Session) -> dict[int, Answer]:
        """Start runs. Return the answers by the `id()` of their operations. An id that exists is an answer and does not
        fail the batch."""
        first: dict[str, Start] = {}
        for op in self._starts:
            first.setdefault(op.run.id, op)
        answers: dict[int, Answer] = {}
        while len(answers) < len(self._starts):
            rows = [start_row(op.run) for _, op in sorted(first.items())]
            started = {row[0] for row in await session.all(Verb.start_runs, rows)}
            answers |= {id(first[run_id]): Answer.ACCEPTED for run_id in started}
            rest = [op for op in self._starts if id(op) not in answers]
            if not rest:
                break
            found = await session.rows(Verb.started_as, sorted({op.run.id for op in rest}))
            seen = {run_id: (workflow, digest) for run_id, workflow, digest in found}
            for op in rest:
                if op.run.id in seen:
                    same = seen[op.run.id] == (op.run.workflow, op.run.digest)
                    answers[id(op)] = Answer.DUPLICATE if same else Answer.FENCED
            # What is left had an id that was taken a moment ago, and was pruned since.
            first = {run_id: op for run_id, op in first.items() if id(op) not in answers}
        return answers


class Batches(Noun):
    async def commit(self, node: str, ops: Sequence[Op]) -> list[Answer]:
        """Write all operations in one transaction. Return the answer to each. If one of several cannot be written,
        raise PreconditionFailed and write nothing. Then the caller writes them one at a time."""
        call = StoreCall("commit", ("node", "ops"), (node, ops), {})
        try:
            return await self._database.commit(call, WriteBatch(node, ops))
        except PreconditionFailed:
            if len(ops) > 1:
                raise
        return [await self.refuse(node, ops[0])]

    @transaction
    async def refuse(self, session: Session, node: str, op: Op) -> Answer:
        """Return why a single operation was not accepted."""
        if isinstance(op, Outcome):
            report = (op.run_id, op.n, op.fence, node, op.state)
            if await session.row(Verb.reported_before, *report) is not None:
                return Answer.DUPLICATE
            await session.run(Verb.refuse_report, op.run_id, op.n, node, op.error)
        if isinstance(op, Hop) and op.begin is not None:
            return Answer.DUPLICATE
        return Answer.FENCED

    async def start_within(self, caller: Transaction, run: NewRun) -> str:
        """Start a run inside a transaction that the caller has begun on the same database. Return the id of the run that
        takes the start."""
        return await self._database.start_within(caller, run)


def ask_values(run_id: str, ask: NewAsk) -> tuple[Any, ...]:
    """Return the values of `add_asks`."""
    return (
        ask.id,
        ask.namespace,
        run_id,
        ask.n,
        ask.workflow,
        ask.question,
        ask.form,
        ask.show,
        ask.quorum,
        ask.not_by,
        ask.plan,
        ask.timeout_s,
        ask.next_s,
    )


def _place(row: tuple[Any, ...]) -> tuple[str, int]:
    return row[0], row[1]


def _begun_row(hop: Hop, run: NewRun) -> tuple[Any, ...]:
    close = hop.close
    return (
        run.id,
        run.namespace,
        run.workflow,
        run.version,
        run.priority,
        hop.fence,
        run.input,
        run.digest,
        tags_text(run),
        run.parent_id,
        run.parent_n,
        hop.deadline,
        hop.begun_at,
        *(
            (RunState.RUNNING, None, None, None)
            if close is None
            else (close.state, close.output, close.error, close.at)
        ),
    )


def _issued_row(run_id: str, step: NewStep) -> tuple[Any, ...]:
    return (
        run_id,
        step.n,
        step.key,
        step.kind,
        step.name,
        step.lane,
        step.state,
        step.priority,
        step.ready_at,
        1 if step.state is _RUNNING else 0,
        step.attempts_max,
        step.timeout_s,
        step.input,
        step.digest,
        step.retry,
        step.after_seq,
    )


def counts_of(op: RetryStep | QuarantineStep) -> tuple[int, int, int, int]:
    """Return how much a failed attempt adds to the counts (excused, losses, timeouts, throttled) of its step."""
    if isinstance(op, RetryStep) and op.excused:
        return 1, 0, 0, 0
    failure = op.failure
    is_lost = failure is Failure.LOST or failure is Failure.POISON
    return 0, int(is_lost), int(failure is Failure.TIMEOUT), int(failure is Failure.THROTTLED)
