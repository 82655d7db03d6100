"""Turns a batch of operations into rows and statements: the part of the dialect where every microsecond counts.

Rows are gathered per verb. What every batch has goes over as arrays of rows, the rest as arrays of columns. When a batch needs only one statement it runs by itself (one
round trip, one commit); otherwise all of them run in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import asyncpg

from holdfast.model import NewRun, RunState, StepState
from holdfast.store.answers import Answer, PreconditionFailed
from holdfast.store.children import CANCEL_KEY, Met, cancel_payload, is_own, refused
from holdfast.store.operations import HandBack, Hop, Op, Quarantine, Report, RetryStep, Save, Start
from holdfast.store.postgres.retries import go_on
from holdfast.store.postgres.rows import columns
from holdfast.store.postgres.verbs import VERBS
from holdfast.store.remedies import counts_of

FAILED_PRECONDITION = "HF001"
_RUNNING = StepState.RUNNING
_FAILED = StepState.FAILED
_FAILED_RUN = frozenset({RunState.FAILED, RunState.UNDONE})


HOP_PARTS = (
    ("begun", "begun_run", VERBS.hop_begun),
    ("owned", "owned_run", VERBS.hop_owned),
    ("ended", "ended_step", VERBS.hop_ended),
    ("delivered", "delivered_step", VERBS.hop_delivered),
    ("issued", "issued_step", VERBS.hop_issued),
    ("closed", "closed_run", VERBS.hop_closed),
)
"""What a hop is made of, in the order of its arrays, which are $2 to $7: name, type of a row, statement."""


@cache
def hop_of(*has_rows: bool) -> str:
    """The statement of a batch that has rows for these parts of a hop. It raises when a part changed another number of rows
    than were sent. The others are left out, because the server opens all tables and indexes a statement names, which
    takes longer than the work of a run that is alone."""
    parts, demands = [], ["$1::text IS NOT NULL"]  # an argument that nothing names has no type
    for number, ((name, row, statement), has) in enumerate(zip(HOP_PARTS, has_rows, strict=True), start=2):
        if has:
            parts.append(f"{name} AS (\n{statement})")
        count = f"(SELECT count(*) FROM {name})" if has else "0"  # noqa: S608  a name from above
        demands.append(f"{count} = cardinality(${number}::holdfast.{row}[])")
    return f"WITH {', '.join(parts)}\nSELECT holdfast.demand({' AND '.join(demands)})"


def _asked_to_cancel(hop: Hop) -> list[tuple[Any, ...]]:
    payload = cancel_payload(hop.run_id)
    return [(hop.run_id, n, CANCEL_KEY, payload) for n in hop.cancelled]


class Batch:
    """One commit's worth of operations of one node."""

    def __init__(self, node: str, ops: Sequence[Op]) -> None:
        self.node = node
        self.ops = ops
        self.statements: list[tuple[str, tuple[Any, ...]]] = []
        self._children: list[NewRun] = []
        hops: list[Hop] = []
        rows: dict[type, list[Any]] = {}
        for op in ops:
            if type(op) is Hop:
                hops.append(op)
            else:
                rows.setdefault(type(op), []).append(op)
        # One order of locks for every batch of every node, so that two batches cannot wait for one another.
        hops.sort(key=attrgetter("run_id"))
        if hops:
            self._add_hops(hops)
        self._starts: list[Start] = rows.get(Start, [])
        reports: list[Report] = rows.get(Report, [])
        if reports:
            reports.sort(key=lambda op: (op.run_id, op.n))
            told = [(op.run_id, op.n, op.fence, op.state, op.output, op.error, op.at, None) for op in reports]
            self.statements.append((VERBS.report, (told,)))
            if failures := [(op.run_id, op.n) for op in reports if op.state is _FAILED]:
                self._add(VERBS.note_failures, failures)
        again: list[RetryStep] = rows.get(RetryStep, [])
        if again:
            again.sort(key=lambda op: (op.run_id, op.n))
            self._add(
                VERBS.try_again,
                [
                    (op.run_id, op.n, op.fence, op.delay_s, op.ending, op.error, *counts_of(op))
                    for op in again
                ],
                self.node,
            )
        if quarantined := rows.get(Quarantine, []):
            self._add_quarantined(quarantined)
        back: list[HandBack] = rows.get(HandBack, [])
        if back:
            back.sort(key=lambda op: (op.run_id, op.n))
            if held := {op.run_id: op.hold for op in back if op.hold is not None}:
                self._add(VERBS.hold_runs, list(held.items()))
            self._add(VERBS.hand_back, [(op.run_id, op.n, op.fence) for op in back])
        saves: list[Save] = rows.get(Save, [])
        if saves:
            newest = {(op.run_id, op.n): op for op in saves}
            if len(newest) == len(saves):
                self._add(
                    VERBS.save,
                    [
                        (op.run_id, op.n, op.fence, op.checkpoint, op.progress)
                        for _, op in sorted(newest.items())
                    ],
                )
            else:  # one row twice in one statement would take only one of them
                for op in saves:
                    self._add(VERBS.save, [(op.run_id, op.n, op.fence, op.checkpoint, op.progress)])

    def _add(self, statement: str, rows: list[tuple[Any, ...]], *more: Any) -> None:
        self.statements.append((statement, (*zip(*rows, strict=True), *more)))

    def _add_quarantined(self, ops: list[Quarantine]) -> None:
        ops.sort(key=lambda op: (op.run_id, op.n))
        self._add(
            VERBS.quarantine_steps,
            [(op.run_id, op.n, op.fence, op.ending, op.error, *counts_of(op)[1:]) for op in ops],
            self.node,
        )
        self._add(
            VERBS.list_quarantined,
            [(op.run_id, op.n, op.fingerprint, op.step, op.kind, op.place) for op in ops],
        )
        self._add(VERBS.note_failures, [(op.run_id, op.n) for op in ops])

    def _add_hops(self, hops: list[Hop]) -> None:
        begun, owned, outcomes, delivered, issued, closed = [], [], [], [], [], []
        signals, ended, dropped, sends, cancelled, notes, parents, parked = [], [], [], [], [], [], [], []
        continued, undoing, alerts, failures, revoked, effects, aside = [], [], [], [], [], [], []
        for hop in hops:
            run_id = hop.run_id
            if hop.begin is None:
                owned.append((run_id, hop.fence))
            else:
                begun.append(
                    (
                        run_id,
                        hop.begin.namespace,
                        hop.begin.workflow,
                        hop.begin.version,
                        hop.begin.priority,
                        hop.fence,
                        hop.begin.input,
                        hop.begin.digest,
                        json.dumps(hop.begin.tags) if hop.begin.tags else None,
                        hop.begin.parent_id,
                        hop.begin.parent_n,
                        hop.deadline,
                        hop.begun_at,
                        *(
                            (RunState.RUNNING, None, None, None)
                            if hop.close is None
                            else (hop.close.state, hop.close.output, hop.close.error, hop.close.at)
                        ),
                    )
                )
            for out in hop.outcomes:
                outcomes.append((run_id, out.n, out.fence, out.state, out.output, out.error, out.at, out.seq))
                if out.state is _FAILED:
                    failures.append((run_id, out.n))
            issued += [
                (
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
                for step in hop.issued
            ]
            close = hop.close
            if close is not None:
                if hop.begin is None:  # a statement does not see the row it has just inserted
                    closed.append((run_id, hop.fence, close.state, close.output, close.error, close.at))
                if close.state is RunState.STUCK:
                    alerts.append(("run stuck", run_id, close.error or ""))
                elif close.parent_id is not None:
                    good = close.state is RunState.SUCCEEDED
                    state = StepState.SUCCEEDED if good else StepState.FAILED
                    parents.append(
                        (close.parent_id, close.parent_n, state, close.output, close.error, close.at)
                    )
                elif close.state in _FAILED_RUN:
                    failures.append((run_id, 0))
                revoked += [(one.run_id, one.parent_id, one.error, close.at) for one in hop.revoked]
            if hop.children or hop.cancelled or hop.effects:
                self._children += hop.children
                effects += [(run_id, n, effect) for n, effect in hop.effects]
                cancelled += _asked_to_cancel(hop)
            if hop.delivered or hop.signals or hop.set_aside or hop.ended or hop.dropped or hop.sends:
                delivered += [(run_id, n, seq) for n, seq in hop.delivered]
                signals += [(number, seq) for number, seq in hop.signals]
                aside += [(run_id, seq, why) for seq, why in hop.set_aside]
                failures += [(run_id, -seq) for seq, _ in hop.set_aside]
                ended += [(run_id, n, seq, payload, at) for n, seq, payload, at in hop.ended]
                dropped += [(run_id, n) for n in hop.dropped]
                sends += [(send.run_id, send.name, send.key, send.payload) for send in hop.sends]
            if hop.progress is not None or hop.published is not None or hop.kept_n is not None:
                notes.append((run_id, hop.progress, hop.published, hop.kept_n or 0))
            if hop.undo is not None:
                undoing.append((run_id, hop.fence, hop.undo.ending, hop.undo.error))
            if hop.next_input is not None:
                continued.append(hop)
            if hop.park:
                parked.append((run_id, hop.fence, self.node))
        rows = (begun, owned, outcomes, delivered, issued, closed)
        self.statements.append((hop_of(*map(bool, rows)), (self.node, *rows)))
        for statement, more in (
            (VERBS.deliver_signals, signals),
            (VERBS.set_aside_signals, aside),
            (VERBS.end_waits, ended),
            (VERBS.drop_steps, dropped),
            (VERBS.cancel_children, cancelled),
            (VERBS.name_effects, effects),
            (VERBS.send_signals, sends),
            (VERBS.note_runs, notes),
            (VERBS.tell_parents, parents),
            (VERBS.revoke_runs, revoked),
            (VERBS.undo_runs, undoing),
            (VERBS.alert, alerts),
            (VERBS.note_failures, failures),
            (VERBS.park_runs, parked),
        ):
            if more:
                self._add(statement, more)
        self._add_continued(continued)

    def _add_continued(self, hops: list[Hop]) -> None:
        for hop in hops:
            arguments = (hop.run_id, hop.next_input, hop.begun_at, list(hop.unread))
            self.statements.append((VERBS.continue_run, arguments))
            told = ("scheduler", "continue", hop.run_id, None, "the next generation began")
            self.statements.append((VERBS.journal_add, told))

    @staticmethod
    def start_row(run: NewRun) -> tuple[Any, ...]:
        return (
            run.id,
            run.namespace,
            run.workflow,
            run.version,
            run.priority,
            run.input,
            run.digest,
            json.dumps(run.tags) if run.tags else None,
            run.parent_id,
            run.parent_n,
            run.timeout_s,
        )

    async def run(self, connection: asyncpg.Connection[Any]) -> list[Any]:
        """Commit all, or raise PreconditionFailed with nothing written."""
        try:
            if len(self.statements) == 1 and not self._starts and not self._children:
                statement, arguments = self.statements[0]
                await connection.fetch(statement, *arguments)
                return [Answer.ACCEPTED] * len(self.ops)
            async with connection.transaction():
                for statement, arguments in self.statements:
                    await connection.fetch(statement, *arguments)
                if self._children:
                    await self._start_children(connection)
                if not self._starts:
                    return [Answer.ACCEPTED] * len(self.ops)
                started = await self._start_all(connection)
        except asyncpg.PostgresError as error:
            if error.sqlstate == FAILED_PRECONDITION:
                raise PreconditionFailed from error
            raise
        return [started[id(op)] if type(op) is Start else Answer.ACCEPTED for op in self.ops]

    async def _start_children(self, connection: asyncpg.Connection[Any]) -> None:
        """Where an id is taken, the step joins that run or fails. By their ids, in one order for every batch of every node."""
        left = [
            child
            for child in sorted(self._children, key=lambda child: (child.id, child.parent_id, child.parent_n))
            if child.retry_of is None or not await go_on(connection, child)
        ]
        while left:
            rows = zip(*(self.start_row(child) for child in left), strict=True)
            if len(await connection.fetch(VERBS.start, *rows)) == len(left):
                return
            met = {
                row[0]: Met(*row)
                for row in await connection.fetch(VERBS.met_runs, [child.id for child in left])
            }
            for child in left:
                if child.id in met and not is_own(child, met[child.id]):
                    await self._meet(connection, child, met[child.id])
            left = [child for child in left if child.id not in met]  # pruned in this very moment

    async def _meet(self, connection: asyncpg.Connection[Any], child: NewRun, met: Met) -> None:
        awaits = child.joins and await connection.fetchval(VERBS.awaits, child.parent_id, child.id)
        told = refused(child, met, awaits=bool(awaits))
        if told is None:
            await connection.execute(VERBS.join_runs, [child.id], [child.parent_id], [child.parent_n])
        else:
            await connection.execute(VERBS.tell_parents, *columns([(*told, None)], 6))

    async def _start_all(self, connection: asyncpg.Connection[Any]) -> dict[int, Answer]:
        """A start never fails its batch: the same id again is an answer."""
        first: dict[str, Start] = {}
        for op in self._starts:
            first.setdefault(op.run.id, op)
        columns = zip(*(self.start_row(op.run) for _, op in sorted(first.items())), strict=True)
        made = {row[0] for row in await connection.fetch(VERBS.start, *columns)}
        answers = {id(first[run_id]): Answer.ACCEPTED for run_id in made}
        rest = [op for op in self._starts if id(op) not in answers]
        if rest:
            rows = await connection.fetch(VERBS.started_as, list({op.run.id for op in rest}))
            seen = {row["id"]: (row["workflow"], row["digest"]) for row in rows}
            for op in rest:
                same = seen.get(op.run.id) == (op.run.workflow, op.run.digest)
                answers[id(op)] = Answer.DUPLICATE if same else Answer.FENCED
        return answers

    async def answer_alone(self, connection: asyncpg.Connection[Any]) -> Answer:
        """Why a single operation was not accepted."""
        op = self.ops[0]
        if isinstance(op, Report):
            if await connection.fetchval(
                VERBS.reported_before, op.run_id, op.n, op.fence, self.node, op.state
            ):
                return Answer.DUPLICATE
            await connection.execute(VERBS.refuse_report, op.run_id, op.n, self.node, op.error)
        if isinstance(op, Hop) and op.begin is not None:
            return Answer.DUPLICATE
        return Answer.FENCED
