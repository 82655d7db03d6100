"""The hot path: a batch of operations as one transaction. The part of the dialect where every microsecond counts.

Rows are gathered per verb over the whole batch, and each verb runs once with all its rows. The number of changed rows
tells whether every precondition held; if not, nothing is kept.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.errors import Conflict, StoreUnreachable, StoreUnsupported
from holdfast.lifecycle import RUN_ENDED
from holdfast.model import NewRun, RunState, StepState
from holdfast.store.answers import Answer, PreconditionFailed
from holdfast.store.children import CANCEL_KEY, Met, cancel_payload, is_own, refused
from holdfast.store.operations import (
    Close,
    HandBack,
    Hop,
    NewStep,
    Op,
    Quarantine,
    Report,
    RetryStep,
    Save,
    Start,
)
from holdfast.store.remedies import counts_of
from holdfast.store.sqlite.database import BUSY_S, RETRY_S
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.faults import explain
from holdfast.store.sqlite.retries import go_on
from holdfast.store.sqlite.rows import fetch, start_row, tags_text, told_row
from holdfast.store.sqlite.verbs import VERBS
from holdfast.store.transaction import Transaction, no_transaction

Rows = list[tuple[Any, ...]]

_RUNNING = StepState.RUNNING
_FAILED = StepState.FAILED
_FAILED_RUN = frozenset({RunState.FAILED, RunState.UNDONE})


class Batch:
    """One commit's worth of operations of one node, as rows of parameters."""

    def __init__(self, node: str, ops: Sequence[Op], now: float) -> None:
        self.node, self.now = node, now
        self.starts: list[Start] = []
        self.begun: Rows = []
        self.owned: Rows = []
        self.outcomes: Rows = []
        self.delivered: Rows = []
        self.heard: Rows = []
        self.aside: Rows = []
        self.ended: Rows = []
        self.continued: list[Hop] = []
        self.issued: Rows = []
        self.dropped: Rows = []
        self.children: list[NewRun] = []
        self.cancelled: Rows = []
        self.effects: Rows = []
        self.sends: Rows = []
        self.notes: Rows = []
        self.closed: Rows = []
        self.revoked: Rows = []
        self.swept: Rows = []
        self.parents: Rows = []
        self.undoing: Rows = []
        self.alerts: Rows = []
        self.failures: Rows = []
        self.parked: Rows = []
        self.reports: Rows = []
        self.kept: Rows = []
        self.again: Rows = []
        self.quarantined: Rows = []
        self.listed: Rows = []
        self.held: Rows = []
        self.back: Rows = []
        self.saves: Rows = []
        for op in ops:
            if type(op) is Hop:
                self._add_hop(op)
            elif type(op) is Report:
                self.reports.append((op.state, op.output, op.error, op.at, op.run_id, op.n, op.fence))
                if op.state is _FAILED:
                    self.failures.append((op.run_id, op.n))
            elif type(op) is RetryStep:
                self.kept.append((op.run_id, op.n, op.fence, op.ending, op.error, now))
                again = (*counts_of(op), op.error, now + op.delay_s, op.run_id, op.n, op.fence)
                self.again.append(again)
            else:
                self._add_other(op)

    def _add_other(self, op: Op) -> None:
        if type(op) is HandBack:
            if op.hold is not None:
                self.held.append((op.hold, op.run_id))
            self.back.append((op.run_id, op.n, op.fence))
        elif type(op) is Save:
            self.saves.append((op.checkpoint, op.progress, op.run_id, op.n, op.fence))
        elif type(op) is Start:
            self.starts.append(op)
        elif type(op) is Quarantine:
            self.kept.append((op.run_id, op.n, op.fence, op.ending, op.error, self.now))
            self.quarantined.append((*counts_of(op)[1:], op.error, op.run_id, op.n, op.fence))
            self.listed.append((op.run_id, op.n, op.fingerprint, op.step, op.kind, op.place, self.now))
            self.failures.append((op.run_id, op.n))
        else:
            raise TypeError(f"not an operation: {op!r}")

    def _add_hop(self, hop: Hop) -> None:
        run_id = hop.run_id
        if hop.begin is None:
            self.owned.append((run_id, hop.fence))
        else:
            self.begun.append(self._begin_row(hop, hop.begin))
        for end in hop.outcomes:
            self.outcomes.append(
                (end.state, end.output, end.error, end.at, end.seq, run_id, end.n, end.fence)
            )
            if end.state is _FAILED:
                self.failures.append((run_id, end.n))
        for step in hop.issued:
            self.issued.append(self._issue_row(run_id, step))
        for n, seq in hop.delivered:
            self.delivered.append((seq, run_id, n))
        for signal_id, seq in hop.signals:
            self.heard.append((seq, signal_id, run_id))
        self.aside += [(why, run_id, seq) for seq, why in hop.set_aside]
        self.failures += [(run_id, -seq) for seq, _ in hop.set_aside]
        for n, seq, payload, at in hop.ended:
            self.ended.append((payload, seq, at, run_id, n))
        for n in hop.dropped:
            self.dropped.append((self.now, run_id, n))
        if hop.children or hop.cancelled or hop.effects:
            self.children += hop.children
            self.effects += [(effect, run_id, n) for n, effect in hop.effects]
            payload = cancel_payload(run_id)
            self.cancelled += [(run_id, n, CANCEL_KEY, payload, self.now) for n in hop.cancelled]
        for send in hop.sends:
            self.sends.append((send.run_id, send.name, send.key, send.payload, self.now))
        if hop.next_input is not None:
            if hop.published is not None:  # the rest was said of the generation that ends here
                self.notes.append((None, hop.published, 0, run_id))
        elif hop.progress is not None or hop.published is not None or hop.kept_n is not None:
            self.notes.append((hop.progress, hop.published, hop.kept_n or 0, run_id))
        if hop.undo is not None:
            self.undoing.append((hop.undo.ending, hop.undo.error, run_id, hop.fence))
        if hop.next_input is not None:
            self.continued.append(hop)
        if hop.close is not None:
            self._add_close(run_id, hop.fence, hop.close)
            self.revoked += [(one.error, hop.close.at, one.run_id, one.parent_id) for one in hop.revoked]
        if hop.park:
            self.parked.append((run_id, hop.fence, self.node))

    def _begin_row(self, hop: Hop, run: NewRun) -> tuple[Any, ...]:
        return (
            run.id,
            run.namespace,
            run.workflow,
            run.version,
            run.priority,
            self.node,
            hop.fence,
            run.input,
            run.digest,
            tags_text(run),
            run.parent_id,
            run.parent_n,
            hop.deadline,
            hop.begun_at,
            hop.begun_at,
        )

    def _issue_row(self, run_id: str, step: NewStep) -> tuple[Any, ...]:
        now = self.now
        leased = step.state is _RUNNING
        return (
            run_id,
            step.n,
            step.key,
            step.kind,
            step.name,
            step.lane,
            step.state,
            step.priority,
            now if step.ready_at is None else step.ready_at,
            1 if leased else 0,
            1 if leased else 0,
            self.node if leased else None,
            step.attempts_max,
            step.timeout_s,
            now + step.timeout_s if leased and step.timeout_s is not None else None,
            step.input,
            step.digest,
            step.retry,
            now,
            now if leased else None,
            step.after_seq,
        )

    def _add_close(self, run_id: str, fence: int, close: Close) -> None:
        ended = close.state in RUN_ENDED
        self.closed.append(
            (close.state, close.output, close.error, close.at if ended else None, run_id, fence)
        )
        if not ended:  # stuck: a person will move it on, with what it had
            self.alerts.append((close.at, "run stuck", run_id, close.error or ""))
            return
        if close.state in _FAILED_RUN and close.parent_id is None:
            self.failures.append((run_id, 0))
        self.swept.append((close.at, run_id))
        if close.parent_id is not None:
            good = close.state is RunState.SUCCEEDED
            state = StepState.SUCCEEDED if good else StepState.FAILED
            self.parents.append((state, close.output, close.error, close.at, close.parent_id, close.parent_n))

    def write(self, connection: apsw.Connection) -> bool:
        """Run everything but the starts. False when a precondition failed: then the transaction must be undone."""
        many = connection.executemany
        if self.begun:
            # A node that was buried begins nothing more.
            if not connection.execute(VERBS.is_live, (self.node,)).get:
                return False
            if not all_changed(connection, VERBS.begin_runs, self.begun):
                return False
        if self.owned and len(many(VERBS.owned_runs, self.owned).fetchall()) != len(self.owned):
            return False
        for verb, rows in (
            (VERBS.record_outcomes, self.outcomes),
            (VERBS.deliver_steps, self.delivered),
            (VERBS.deliver_signals, self.heard),
            (VERBS.set_aside_signals, self.aside),
        ):
            if rows and not all_changed(connection, verb, rows):
                return False
        for hop in self.continued:
            self._continue(connection, hop)
        if self.issued and not all_changed(connection, VERBS.issue_steps, self.issued):
            return False
        # After the issues: a signal that came before its wait ends the wait in the hop that issues it.
        if self.ended and not all_changed(connection, VERBS.end_waits, self.ended):
            return False
        if self.dropped:
            many(VERBS.drop_steps, self.dropped)
        if self.children or self.cancelled or self.effects:
            self._write_family(connection)
        if self.sends:
            many(VERBS.send_signals, self.sends)
        if self.notes:
            many(VERBS.note_runs, self.notes)
        if self.closed:
            if not all_changed(connection, VERBS.close_runs, self.closed):
                return False
            many(VERBS.sweep_closed_steps, self.swept)
            many(VERBS.sweep_closed_signals, [(run_id,) for _, run_id in self.swept])
            many(VERBS.tell_parents, self.parents)
            many(VERBS.revoke_runs, self.revoked)
        if self.undoing and not all_changed(connection, VERBS.undo_runs, self.undoing):
            return False
        if self.alerts:
            many(VERBS.alert, self.alerts)
        if self.parked and not all_changed(connection, VERBS.park_runs, self.parked):
            return False
        return self._write_agents(connection)

    def _hold(self, connection: apsw.Connection, note: str, run_id: str) -> None:
        """An agent's code cannot read what was recorded for a step: its run waits for a person."""
        if all_changed(connection, VERBS.hold, [(note, run_id)]):
            row = (self.now, "agent", "hold", run_id, None, note)
            connection.execute(VERBS.journal_add, row)
            connection.execute(VERBS.note_failures, (run_id, 0))

    def _write_family(self, connection: apsw.Connection) -> None:
        children = [
            child
            for child in self.children
            if child.retry_of is None or not go_on(connection, child, self.now)
        ]
        rows = [start_row(child, self.now) for child in children]
        if len(connection.executemany(VERBS.start, rows).fetchall()) < len(rows):
            self._meet(connection, children)
        connection.executemany(VERBS.cancel_children, self.cancelled)
        connection.executemany(VERBS.name_effects, self.effects)

    def _meet(self, connection: apsw.Connection, children: list[NewRun]) -> None:
        """Some ids were taken: join those runs, or fail the steps that asked for them."""
        for child in children:
            met = Met(*connection.execute(VERBS.met_run, (child.id,)).get)
            if is_own(child, met):
                continue
            awaits = child.joins and connection.execute(VERBS.awaits, (child.parent_id, child.id)).get
            told = refused(child, met, awaits=bool(awaits))
            if told is None:
                connection.execute(VERBS.join_runs, (child.id, child.parent_id, child.parent_n))
            else:
                connection.execute(VERBS.tell_parents, told_row(told, self.now))

    def _write_agents(self, connection: apsw.Connection) -> bool:
        for note, run_id in self.held:
            self._hold(connection, note, run_id)
        for verb, rows in (
            (VERBS.report, self.reports),
            (VERBS.keep_attempt, self.kept),
            (VERBS.try_again, self.again),
            (VERBS.quarantine_step, self.quarantined),
            (VERBS.list_quarantined, self.listed),
            (VERBS.hand_back, self.back),
            (VERBS.save, self.saves),
            (VERBS.note_failures, self.failures),
        ):
            if rows and not all_changed(connection, verb, rows):
                return False
        return True

    def _continue(self, connection: apsw.Connection, hop: Hop) -> None:
        run_id, raw = hop.run_id, hop.next_input or b""
        connection.execute(VERBS.continue_run, (run_id, raw, hop.begun_at or self.now))
        connection.execute(VERBS.forget_steps, (run_id,))
        connection.execute(VERBS.forget_attempts, (run_id,))
        # Deleted before the unread ones lose their number, or they would go too.
        connection.execute(VERBS.forget_signals, (run_id, json.dumps(list(hop.unread))))
        connection.execute(VERBS.unread_signals, (run_id,))
        row = (self.now, "scheduler", "continue", run_id, None, "the next generation began")
        connection.execute(VERBS.journal_add, row)

    def start_all(self, connection: apsw.Connection) -> list[Answer]:
        """A start never fails its batch: the same id again is an answer."""
        answers = []
        for op in self.starts:
            run = op.run
            if fetch(connection, VERBS.start, start_row(run, self.now)):
                answers.append(Answer.ACCEPTED)
            else:
                same = connection.execute(VERBS.started_as, (run.id,)).get == (run.workflow, run.digest)
                answers.append(Answer.DUPLICATE if same else Answer.FENCED)
        return answers


def refuse(connection: apsw.Connection, node: str, op: Op, now: float) -> Answer:
    """Why a single operation was not accepted."""
    if isinstance(op, Report):
        asked = (op.run_id, op.n, op.fence, node, op.state)
        if connection.execute(VERBS.reported_before, asked).get:
            return Answer.DUPLICATE
        connection.execute(VERBS.refuse_report, (op.run_id, op.n, node, op.error, now))
    if isinstance(op, Hop) and op.begin is not None:
        return Answer.DUPLICATE
    return Answer.FENCED


def all_changed(connection: apsw.Connection, verb: str, rows: Rows) -> bool:
    """Run the verb for all rows; whether each changed its one row."""
    before = connection.total_changes()
    connection.executemany(verb, rows)
    return connection.total_changes() - before == len(rows)


class Writes(Dialect):
    async def commit(self, node: str, ops: Sequence[Op]) -> list[Any]:
        try:
            async with self._database.transaction() as connection:
                try:
                    return self._commit(connection, Batch(node, ops, self._clock.now()), ops)
                except apsw.ConstraintError as error:
                    if len(ops) > 1:  # each gets its own answer, so that one bad row does not fail the others
                        raise PreconditionFailed from error
                    raise
        except PreconditionFailed:
            if len(ops) > 1:
                raise
        return [await self._refuse(node, ops[0])]

    @staticmethod
    def _commit(connection: apsw.Connection, batch: Batch, ops: Sequence[Op]) -> list[Any]:
        if not batch.write(connection):
            raise PreconditionFailed
        if not batch.starts:
            return [Answer.ACCEPTED] * len(ops)
        started = iter(batch.start_all(connection))
        return [next(started) if type(op) is Start else Answer.ACCEPTED for op in ops]

    async def _refuse(self, node: str, op: Op) -> Answer:
        """Why a single operation was not accepted; nothing of it is written."""
        async with self._database.transaction() as connection:
            return refuse(connection, node, op, self._clock.now())

    async def start_within(self, transaction: Transaction, run: NewRun) -> None:
        """In a transaction on the caller's own apsw connection to the same file."""
        connection = await transaction.connection()
        if not isinstance(connection, apsw.Connection):
            raise StoreUnsupported(
                f"hf.within() got a {transaction.what}: on SQLite only an apsw.Connection to {self._database.what} can carry the start. "
                "Two SQLite libraries in one process do not see each other's locks, and overwrite each other's commits (the "
                "sqlite3 module, SQLAlchemy and Django use another one than Holdfast): keep your tables in another file and start "
                "the run after your commit, under an id made from your row, or use PostgreSQL"
            )
        if not self._database.is_at(connection.filename):
            raise StoreUnsupported(
                f"hf.within() got a connection to another database than {self._database.what}"
            )
        if not connection.in_transaction:
            raise no_transaction(transaction.what, "`with connection:`, or BEGIN IMMEDIATE")
        made = await self._write_within(connection, start_row(run, self._clock.now()))
        if not made and connection.execute(VERBS.started_as, (run.id,)).get != (run.workflow, run.digest):
            raise Conflict(
                f"run {run.id!r} exists and was started with another workflow or input: "
                f"`holdfast show {run.id}` shows it; choose another id"
            )

    async def _write_within(self, transaction: apsw.Connection, row: tuple[Any, ...]) -> bool:
        """Insert, waiting for other writers. Not under our own lock: our writer may be waiting for this caller."""
        waited_s = 0.0
        while True:
            try:
                return bool(fetch(transaction, VERBS.start, row))
            except apsw.BusyError as error:
                if getattr(error, "extendedresult", 0) == apsw.SQLITE_BUSY_SNAPSHOT:
                    raise StoreUnreachable(
                        "the caller's transaction read before others wrote: begin it with BEGIN IMMEDIATE"
                    ) from error
                if waited_s >= BUSY_S:
                    raise explain(self._database.what, error) from error
            except apsw.Error as error:
                raise explain(self._database.what, error) from error
            await self._environment.sleep(RETRY_S * 4)
            waited_s += RETRY_S * 4
