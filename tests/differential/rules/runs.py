"""Runs, steps, nodes and the leader: the core of every store."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from holdfast import errors
from holdfast.lifecycle import RUN_ENDED, STEP_ENDED
from holdfast.model import (
    UNDO,
    UPDATE_PREFIX,
    ChildUndo,
    Failure,
    NewRun,
    NewSignal,
    Outcome,
    RunState,
    StepKind,
    StepState,
    UpdateAnswer,
)
from holdfast.store.answers import PreconditionFailed
from holdfast.store.claims import LOSSES_NEVER
from holdfast.store.operations import (
    BeginUndo,
    Close,
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
from tests.differential import spec as model
from tests.differential.questions import (
    ALL,
    LANES,
    LOSSES_MAX,
    NAMESPACES,
    STEPS,
    WORKFLOWS,
    Asking,
    Draw,
    Grant,
    Make,
    logged_parts,
    nodes,
    parts,
    small,
)
from tests.differential.spec.rows import Run
from tests.differential.subjects import HOUR, Subject, half_hours
from tests.store.made import deaths, end_overdue, reclaim

FINGERPRINTS = ("alike", "apart")


class Runs(Asking):
    # --- making operations ------------------------------------------------------------------------------------------

    def _at(self, subject: Subject | None, hours: float) -> float:
        return hours if subject is None else subject.at(self.spec, hours)

    def _new_run(
        self, draw: Draw, parent: tuple[str, int] | None = None, *, detached: bool = False
    ) -> NewRun:
        self.made += 1
        known = self._runs()
        run_id = f"r{self.made}"
        if known and draw(small) == 0:
            run_id = draw(st.sampled_from(known))
        digest = b"d" if draw(small) else b"other"
        timeout_s = HOUR * 5 if draw(small) == 0 else None
        workflow, version = draw(st.sampled_from(WORKFLOWS))
        return NewRun(
            run_id,
            workflow,
            version,
            b"{}",
            digest,
            namespace=draw(st.sampled_from(NAMESPACES)),
            priority=draw(st.integers(0, 1)),
            timeout_s=timeout_s,
            parent_id=parent[0] if parent else None,
            parent_n=parent[1] if parent else None,
            joins=parent is not None and draw(st.booleans()),
            retry_of=self._begun_before(draw, parent[0]) if parent and not detached else None,
            detached=detached,
        )

    def _begun_before(self, draw: Draw, parent_id: str) -> str | None:
        """Draw a run that a child may go on from. It does not wait for the child's parent and has no children."""
        above = self.spec._waiting_for(parent_id)
        parents = {run.parent_id for run in self.spec.runs.values()}
        known = [one for one in self._runs() if one not in above and one not in parents]
        return draw(st.sampled_from(known)) if known and draw(small) == 0 else None

    @staticmethod
    def _error(draw: Draw, steps: list[int], seq: int) -> str:
        """Draw the error of a run: as it is recorded now, as older versions recorded it, or as a parent records it for
        a child that it undid."""
        if draw(small) == 0:
            return "boom"
        some = [n for n in steps if draw(small) == 0]
        failure = {"type": "boom", "message": "", "steps": some[:1], "undone": some[1:]}
        more: dict[str, Any] = {"by": "a parent"} if draw(small) == 0 else {"seq": draw(st.integers(0, seq))}
        return json.dumps(failure | more)

    def _new_step(self, draw: Draw, n: int) -> Callable[[Subject | None], NewStep]:
        kind = draw(st.sampled_from(("ready", "ready", "leased", "timer", "signal", "child", "start")))
        lane, priority = draw(st.sampled_from(LANES)), draw(st.integers(0, 1))
        attempts_max = draw(st.integers(1, 2))
        timeout_s = 1.5 * HOUR if draw(st.booleans()) else None
        due = self.spec.now + draw(st.sampled_from((-1.5, 2.5)))
        if kind in {"ready", "leased"}:
            state = StepState.RUNNING if kind == "leased" else StepState.READY
            return lambda subject: NewStep(
                n,
                f"k{n}",
                StepKind.CALL,
                STEPS[lane][0],
                lane,
                state,
                priority,
                attempts_max=attempts_max,
                timeout_s=timeout_s,
                input=b"[]",
                digest=b"d",
            )
        step_kind = StepKind(kind)
        return lambda subject: NewStep(
            n,
            f"k{n}",
            step_kind,
            kind,
            0,
            StepState.WAITING,
            ready_at=self._at(subject, due) if kind == "timer" else None,
        )

    @staticmethod
    def _child_undo(draw: Draw, run_id: str, n: int, children: list[int]) -> ChildUndo:
        """Draw which of these children the step `n` undoes, and take it from the list."""
        child = draw(st.sampled_from(children))
        children.remove(child)
        error = json.dumps({"type": "undone", "message": "", "by": run_id, "by_n": n})
        return ChildUndo(n, child, error, draw(st.booleans()))

    @staticmethod
    def _ways(run: Run, by_n: int | None) -> list[str]:
        """Return the ways in which a hop of this run may go."""
        ways = ["go on", "go on", "go on", "park", "continue"]
        if run.state is RunState.RUNNING:
            return [*ways, "succeeded", "failed", "cancelled", "undo"]
        ways += ["undone", "stuck", "failed", "cancelled"]
        return ways if by_n is None else [*ways, "undone", "succeeded"]

    def _hop(self, draw: Draw, grant: Grant) -> Make:
        """Draw a hop of a node that believes that it owns the run with this fence."""
        run_id, spec = grant.run_id, self.spec
        run = spec.runs.get(run_id)
        if run is None or run.fence != grant.fence:
            return lambda _: Hop(run_id, grant.fence, park=True)
        steps, now = spec.steps_of(run_id), spec.now
        seq = max(
            [
                *(step.delivered_seq or 0 for step in steps),
                *(signal.delivered_seq or 0 for signal in spec.signals_of(run_id)),
            ],
            default=0,
        )
        mine = [one for one in self.grants if (one.node, one.run_id) == (grant.node, run_id) and one.n]
        ends: list[tuple[int, int, StepState, int]] = []
        if mine and draw(st.booleans()):
            chosen = draw(st.sampled_from(mine))
            seq += 1
            state = draw(st.sampled_from((StepState.SUCCEEDED, StepState.FAILED)))
            ends.append((chosen.n, chosen.fence, state, seq))
        ended_here = {n for n, *_ in ends}
        delivered = []
        for step in steps:
            fresh = step.delivered_seq is None and step.state in STEP_ENDED and step.n not in ended_here
            if fresh and draw(st.booleans()):
                seq += 1
                delivered.append((step.n, seq))
        received, waits, aside = [], [], []
        waiting = [s.n for s in steps if s.kind is StepKind.SIGNAL and s.state is StepState.WAITING]
        for place, signal in enumerate(spec.signals_of(run_id)):
            if signal.delivered_seq is None and draw(st.booleans()):
                seq += 1
                received.append((place, seq))
                if waiting:
                    waits.append((waiting.pop(0), seq))
                elif draw(st.booleans()):
                    aside.append((seq, "does not fit"))
        heard = {place: number for place, number in received if number not in {row[0] for row in aside}}
        replies = [
            (number, draw(st.sampled_from(UpdateAnswer)), b"3")
            for place, signal in enumerate(spec.signals_of(run_id))
            if signal.name.startswith(UPDATE_PREFIX) and signal.answer is None and signal.set_aside is None
            if (number := heard.get(place, signal.delivered_seq or 0)) and draw(st.booleans())
        ]
        done = ended_here | {n for n, _ in delivered} | {n for n, _ in waits}
        left = [step.n for step in steps if step.delivered_seq is None and step.n not in done]
        by_n = spec.undone_by_n(run) if run.state is RunState.UNDOING else None
        waiter = run.parent_n if by_n is None else by_n
        way = draw(st.sampled_from(self._ways(run, by_n)))
        closing = way in set(RunState)
        unread: tuple[int, ...] = ()
        if way == "continue":
            answered = {number for number, *_ in replies}
            before = [
                s.delivered_seq
                for s in spec.signals_of(run_id)
                if s.delivered_seq and not s.set_aside and not s.answer and s.delivered_seq not in answered
            ]
            aside = []
            unread = tuple(number for number in before if draw(st.booleans()))
            self._grant(Grant(grant.node, run_id, 0, grant.fence + 1))
        dropped = [n for n in left if (closing and way != "stuck") or (way == "go on" and draw(small) == 0)]
        makers: list[Callable[[Subject | None], NewStep]] = []
        children: list[NewRun] = []
        child_undos: list[ChildUndo] = []
        children_of = [step.n for step in steps if step.kind is StepKind.CHILD]
        cancelled = [n for n in children_of if draw(st.booleans())]
        if not closing and way not in {"undo", "continue"}:
            first = max([run.base_n, *(step.n for step in steps)], default=0) + 1
            for n in range(first, first + draw(st.integers(0, 2))):
                makers.append(self._new_step(draw, n))
                kind = makers[-1](None).kind
                if kind is StepKind.CHILD and children_of and draw(st.booleans()):
                    child_undos.append(self._child_undo(draw, run_id, n, children_of))
                elif kind in (StepKind.CHILD, StepKind.START):
                    detached = kind is StepKind.START
                    children.append(self._new_run(draw, (run_id, n), detached=detached))
                elif makers[-1](None).state is StepState.RUNNING:
                    self._grant(Grant(grant.node, run_id, n, 1))
        progress, kept_n = draw(st.sampled_from(((None, None), ("half", 1)))) if not closing else (None, None)
        closed = None
        if closing:
            error = None if way == "succeeded" else self._error(draw, [step.n for step in steps], seq)
            closed = (RunState(way), b"1" if way == "succeeded" else None, error)
        effects = [
            (one.n, f"before::{one.key}") for one in (make(None) for make in makers) if draw(small) == 0
        ]
        sends = []
        if way == "undo":
            self.made += 1
            sends.append(NewSignal(run_id, UNDO, f"begin-{self.made}", b"{}"))

        logged, logged_too = draw(logged_parts), draw(logged_parts)

        def make(subject: Subject | None) -> Hop:
            numbers = {place: place for place, _ in received}
            if subject is not None and received:
                signals = self._do(subject.store.reads.signals(run_id))
                numbers = {place: signals[place].id for place, _ in received}
            at = self._at(subject, now)
            return Hop(
                run_id,
                grant.fence,
                begun_at=at,
                outcomes=[
                    *(
                        Outcome(run_id, n, state, b"1", None, at, f, number, parts(logged, at))
                        for n, f, state, number in ends
                    ),
                    *(
                        Outcome(run_id, n, StepState.SUCCEEDED, None, None, at, None, number)
                        for n, number in delivered
                    ),
                ],
                signals=[(numbers[place], number) for place, number in received],
                set_aside=aside,
                replies=[(*reply, at) for reply in replies],
                had_updates=way == "continue",
                ended=[(n, number, b"2", at) for n, number in waits],
                issued=[one(subject) for one in makers],
                effects=effects,
                dropped=dropped,
                sends=sends,
                children=children,
                cancelled=cancelled,
                progress=progress,
                kept_n=kept_n,
                close=Close(*closed, at, run.parent_id, waiter, by_n is not None) if closed else None,
                next_input=b"next" if way == "continue" else None,
                unread=unread,
                undo=BeginUndo("failed", "boom") if way == "undo" else None,
                child_undos=child_undos,
                park=way == "park",
                logs=parts(logged_too, at),
            )

        return make

    def _step_write(self, draw: Draw, grant: Grant) -> Make:
        """Draw a write of an agent that believes that it has the step with this fence."""
        run_id, n, fence, now = grant.run_id, grant.n, grant.fence, self.spec.now
        way = draw(st.sampled_from(("report", "report", "failed", "again", "back", "save", "quarantine")))
        delay_s = draw(st.sampled_from((0.0, 1.5 * HOUR)))
        excused = draw(st.booleans())
        failure = draw(st.sampled_from((Failure.APPLICATION, Failure.TIMEOUT, Failure.THROTTLED)))
        alike = draw(st.sampled_from(FINGERPRINTS))
        logged = draw(logged_parts)

        def make(subject: Subject | None) -> StepOp:
            at = self._at(subject, now)
            logs = parts(logged, at)
            if way == "report":
                return Outcome(run_id, n, StepState.SUCCEEDED, b"1", None, at, fence, logs=logs)
            if way == "failed":
                return Outcome(run_id, n, StepState.FAILED, None, "boom", at, fence, logs=logs)
            if way == "again":
                return RetryStep(run_id, n, fence, delay_s, "failed", "boom", excused, failure, logs)
            if way == "back":
                return HandBack(run_id, n, fence, "it cannot be read" if excused else None, logs)
            if way == "quarantine":
                boom = f"boom {alike}"
                return QuarantineStep(
                    run_id, n, fence, "failed", boom, failure, alike, "charge", "Boom", "shop.py:1", logs
                )
            return Save(run_id, n, fence, b"checkpoint" if excused else None, "half", logs)

        return make

    def _commit(self, node: str, makers: list[Make]) -> None:
        """Commit as the writer does: all operations in one commit, or one at a time if a precondition fails."""
        self._tick()
        self.last = node, makers
        answers = [self.spec.commit(node, make(None)) for make in makers]
        for subject in self.subjects:

            async def commit(subject: Subject, ops: list[Op]) -> list[Any]:
                try:
                    return await subject.store.batches.commit(node, ops)
                except PreconditionFailed:
                    return [(await subject.store.batches.commit(node, [op]))[0] for op in ops]

            wanted = self._do(commit(subject, [make(subject) for make in makers]))
            assert wanted == answers, f"{type(subject).__name__} answers {wanted}, the model {answers}"

    # --- rules ------------------------------------------------------------------------------------------------------

    @rule(data=st.data(), node=nodes)
    def start(self, data: st.DataObject, node: str) -> None:
        run = self._new_run(data.draw)
        self._commit(node, [lambda _: Start(run)])

    @rule(data=st.data(), node=nodes, ends=st.booleans())
    def begin(self, data: st.DataObject, node: str, ends: bool) -> None:
        """A run starts with its first hop, and may end with it, too."""
        run = self._new_run(data.draw)
        now = self.spec.now + 1e-6
        makers = (
            [] if ends else [self._new_step(data.draw, n) for n in range(1, 1 + data.draw(st.integers(0, 2)))]
        )
        makers = [make for make in makers if make(None).kind not in (StepKind.CHILD, StepKind.START)]
        deadline = None if run.timeout_s is None else now + 5

        def make_hop(subject: Subject | None) -> Hop:
            at = self._at(subject, now)
            return Hop(
                run.id,
                1,
                begin=run,
                begun_at=at,
                deadline=None if deadline is None else self._at(subject, deadline),
                issued=[make(subject) for make in makers],
                close=Close(RunState.SUCCEEDED, b"1", None, at) if ends else None,
            )

        if run.id not in self.spec.runs and not ends:
            self._grant(Grant(node, run.id, 0, 1))
            self._grant(*(Grant(node, run.id, n, 1) for n in self._leased(makers)))
        self._commit(node, [make_hop])

    @staticmethod
    def _leased(makers: list[Callable[[Subject | None], NewStep]]) -> list[int]:
        return [step.n for step in (make(None) for make in makers) if step.state is StepState.RUNNING]

    @precondition(lambda self: self.grants)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        """One to three writes of one node, about different runs, in one commit."""
        first = data.draw(st.sampled_from(self.grants))
        makers: list[Make] = []
        seen: set[str] = set()
        others = [grant for grant in self.grants if grant.node == first.node]
        for grant in [first, *others][: data.draw(st.integers(1, 3))]:
            if grant.run_id not in seen:
                seen.add(grant.run_id)
                draw = self._step_write if grant.n else self._hop
                makers.append(draw(data.draw, grant))
        self._commit(first.node, makers)

    @precondition(lambda self: self.last)
    @rule()
    def write_again(self) -> None:
        """The answer to the last commit was lost, and it is written once more."""
        if self.last is not None:
            self._commit(*self.last)

    @precondition(lambda self: self.spec.claimable())
    @rule(data=st.data(), node=nodes)
    def claim_runs(self, data: st.DataObject, node: str) -> None:
        runs = self._some_runs(data)
        self._tick()
        wanted = sorted(self.spec.claim_runs(node, runs))
        self._grant(*(Grant(node, run_id, 0, fence) for run_id, fence in wanted))

        async def ask(subject: Subject) -> list[tuple[str, int]]:
            claimed = await subject.store.schedulers.claim_runs(node, WORKFLOWS, ALL, runs)
            for one in claimed:
                assert one.steps == await subject.store.reads.steps(one.run.id)
                assert one.signals == await subject.store.reads.signals(one.run.id)
            return sorted((one.run.id, one.run.fence) for one in claimed)

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.runs)
    @rule(data=st.data(), node=nodes)
    def claim_run(self, data: st.DataObject, node: str) -> None:
        run_id = data.draw(st.sampled_from(self._runs()))
        self._tick()
        wanted = self.spec.claim_run(node, run_id)
        if wanted is not None:
            self._grant(Grant(node, run_id, 0, wanted[1]))

        async def ask(subject: Subject) -> tuple[str, int] | None:
            claimed = await subject.store.schedulers.claim_run(node, run_id)
            return None if claimed is None else (claimed.run.id, claimed.run.fence)

        self._same(wanted, ask)

    @precondition(lambda self: any(step.state is StepState.READY for step in self.spec.steps.values()))
    @rule(
        data=st.data(),
        node=nodes,
        limit=st.sampled_from((1, 2, ALL)),
        lanes=st.sampled_from(((1,), (2,), LANES)),
        suspect_losses=st.sampled_from((1, 2, LOSSES_NEVER)),
        suspects=st.sampled_from((0, 1)),
    )
    def claim_steps(
        self,
        data: st.DataObject,
        node: str,
        limit: int,
        lanes: tuple[int, ...],
        suspect_losses: int,
        suspects: int,
    ) -> None:
        runs = self._some_runs(data)
        self._tick()
        self._alike("next_ready", lambda s: half_hours(s.store.agents.next_ready(lanes, runs)))
        wanted = sorted(self.spec.claim_steps(node, lanes, limit, suspect_losses, suspects, runs))
        self._grant(*(Grant(node, run_id, n, fence) for run_id, n, fence, _ in wanted))

        async def ask(subject: Subject) -> list[tuple[str, int, int, int]]:
            claimed = await subject.store.agents.claim_steps(
                node, lanes, limit, suspect_losses=suspect_losses, suspects=suspects, runs=runs
            )
            return sorted((one.run_id, one.n, one.fence, one.attempt) for one in claimed)

        self._same(wanted, ask)

    @precondition(lambda self: self.grants)
    @rule(node=nodes)
    def read_what_is_lost(self, node: str) -> None:
        runs = [(one.run_id, one.fence) for one in self.grants if one.node == node and not one.n]
        steps = [(one.run_id, one.n, one.fence) for one in self.grants if one.node == node and one.n]
        rows = self.spec.runs
        lost_runs = [
            run_id
            for run_id, fence in runs
            if run_id not in rows or (rows[run_id].owner, rows[run_id].fence) != (node, fence)
        ]
        lost_steps = []
        for run_id, n, fence in steps:
            step = self.spec.steps.get((run_id, n))
            if step is None or step.fence != fence:
                lost_steps.append((run_id, n))

        async def ask(subject: Subject) -> tuple[list[str], list[tuple[str, int]]]:
            return (
                sorted(await subject.store.schedulers.lost_runs(node, runs)),
                sorted(await subject.store.agents.lost_steps(steps)),
            )

        self._same((sorted(lost_runs), sorted(lost_steps)), ask)

    @rule()
    def fire_timers(self) -> None:
        self._tick()
        self._same(self.spec.fire_timers(), lambda subject: subject.store.schedulers.fire_timers(ALL))

    @rule()
    def answer_joins(self) -> None:
        self._tick()
        self._same(self.spec.answer_joins(), lambda subject: subject.store.schedulers.answer_joins(ALL))

    @precondition(lambda self: self.grants)
    @rule(data=st.data())
    def hold_run(self, data: st.DataObject) -> None:
        grant = data.draw(st.sampled_from(self.grants))
        if not grant.n:
            self._tick()
            wanted = self.spec.hold_run(grant.run_id, grant.fence, "drift")
            self._same(
                wanted, lambda subject: subject.store.schedulers.hold_run(grant.run_id, grant.fence, "drift")
            )

    # --- nodes and the leader ---------------------------------------------------------------------------------------

    @rule(node=nodes, lease_h=st.sampled_from((1.5, 3.5)))
    def join_or_renew(self, node: str, lease_h: float) -> None:
        self._tick()
        if node not in self.spec.nodes:
            self._register(node, lease_h)
            return
        wanted = self.spec.renew(node, lease_h)

        async def ask(subject: Subject) -> bool:
            return await subject.store.nodes.renew(node, lease_h * HOUR) is not None

        self._same(wanted, ask)

    @rule(hours=st.sampled_from((1, 2, 5)))
    def time_passes(self, hours: int) -> None:
        self.spec.now += hours
        for subject in self.subjects:
            subject.advance(hours)

    @precondition(lambda self: any(not node.retired for node in self.spec.nodes.values()))
    @rule(data=st.data(), every=small)
    def retire(self, data: st.DataObject, every: int) -> None:
        live = [name for name, node in self.spec.nodes.items() if not node.retired]
        if every == 0:
            node = data.draw(st.sampled_from(live))
            self._tick()
            self.spec.retire(node)
            self._same(None, lambda subject: subject.store.nodes.retire(node))

    @rule(data=st.data(), node=nodes)
    def reconcile(self, data: st.DataObject, node: str) -> None:
        keep = data.draw(st.booleans())
        mine = [one for one in self.grants if one.node == node and keep]
        runs = [(one.run_id, one.fence) for one in mine if not one.n]
        steps = [(one.run_id, one.n, one.fence) for one in mine if one.n]
        self._tick()
        wanted = self.spec.reconcile(node, runs, steps)
        self._same(wanted, lambda subject: subject.store.nodes.reconcile(node, runs, steps))

    @rule(node=nodes, lease_h=st.sampled_from((1.5, 4.5)))
    def lead(self, node: str, lease_h: float) -> None:
        self._tick()
        wanted = self.spec.lead(node, lease_h)
        if wanted is not None:
            self.epochs.append(wanted)
        self._same(wanted, lambda subject: subject.store.leader.lead(node, lease_h * HOUR))

    @rule(node=nodes)
    def resign(self, node: str) -> None:
        self._tick()
        self.spec.resign(node)
        self._same(None, lambda subject: subject.store.leader.resign(node))

    @rule(data=st.data())
    def reclaim(self, data: st.DataObject) -> None:
        """Reclaim nodes, as the current leader or a former one."""
        dead = self.spec.dead_nodes()

        async def look(subject: Subject) -> set[str]:
            return set(await deaths(subject.store))

        self._same(dead, look)
        if dead:
            node, epoch = data.draw(st.sampled_from(sorted(dead))), data.draw(st.sampled_from(self.epochs))
            self._tick()
            wanted = self.spec.reclaim(node, epoch, LOSSES_MAX)

            async def ask(subject: Subject) -> tuple[int, int, int] | None:
                done = await reclaim(subject.store, node, epoch, "gone", LOSSES_MAX, ALL)
                return None if done is None else (done.runs, done.steps, done.failed)

            self._same(wanted, ask)
            if wanted is not None and wanted[1]:
                # A reclaimed step may back off for seconds, which may pass in a slow test.
                self.time_passes(1)

    @rule(data=st.data())
    def end_overdue(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(self.epochs))
        self._tick()
        wanted = self.spec.end_overdue(epoch, 0.0)
        self._same(wanted, lambda subject: end_overdue(subject.store, epoch, 0.0, ALL))
        if wanted:
            # A step that timed out backs off for a second, which may pass in a slow test.
            self.time_passes(1)

    @rule(
        data=st.data(),
        state=st.sampled_from(sorted(RUN_ENDED)),
        kept=st.sets(st.sampled_from(sorted(RUN_ENDED))),
    )
    def prune(self, data: st.DataObject, state: RunState, kept: set[RunState]) -> None:
        epoch = data.draw(st.sampled_from([*self.epochs, None]))
        before = self.spec.now - 0.5
        self._tick()
        wanted = self.spec.prune(epoch, state, before, kept)

        async def ask(subject: Subject) -> int:
            done = await subject.store.retention.prune(
                epoch,
                actor="me",
                state=state,
                before=subject.at(self.spec, before),
                after=(0.0, ""),
                runs_max=ALL,
                rows_max=100 * ALL,
                kept=sorted(kept),
            )
            return done.runs

        self._same(wanted, ask)

    # --- callers and operators --------------------------------------------------------------------------------------

    @precondition(lambda self: self.spec.runs)
    @rule(data=st.data(), key=st.sampled_from(("1", "2")))
    def send_signal(self, data: st.DataObject, key: str) -> None:
        name = data.draw(st.sampled_from(("paid", "paid", f"{UPDATE_PREFIX}change")))
        signal = NewSignal(data.draw(st.sampled_from(self._runs())), name, key, b"2")
        self._tick()
        wanted = self.spec.send_signal(signal)
        self._same(wanted, lambda subject: subject.store.operators.send_signal(signal))

    @precondition(lambda self: self.spec.runs)
    @rule(
        data=st.data(),
        verb=st.sampled_from(
            ("cancel_run", "hold", "release", "release", "steer_undo", "retry_now", "retry_run", "retry_run")
        ),
    )
    def operate(self, data: st.DataObject, verb: str) -> None:
        run_id = data.draw(st.sampled_from(self._runs()))
        self._tick()
        self.made += 1
        again = verb == "cancel_run" and data.draw(st.booleans())
        spec = self.spec
        verbs: dict[str, tuple[Callable[[], Any], Callable[[Subject], Coroutine[Any, Any, Any]]]] = {
            "cancel_run": (
                lambda: spec.cancel_run(run_id, again=again),
                lambda s: s.store.operators.cancel_run(run_id, "me", "why", again=again),
            ),
            "hold": (
                lambda: spec.hold(run_id),
                lambda s: s.store.operators.hold(run_id, "me", "why"),
            ),
            "release": (
                lambda: spec.release(run_id),
                lambda s: s.store.operators.release(run_id, "me", "why"),
            ),
            "steer_undo": (
                lambda: spec.steer_undo(run_id, "retry"),
                lambda s: s.store.operators.steer_undo(run_id, "retry", None, "me", "why"),
            ),
            "retry_now": (
                lambda: spec.retry_now(run_id),
                lambda s: s.store.operators.retry_now(run_id, "me"),
            ),
            "retry_run": (
                lambda: spec.retry_run(run_id),
                lambda s: s.store.operators.retry_run(run_id, "me"),
            ),
        }
        act, ask = verbs[verb]
        try:
            wanted = act()
        except model.WrongState:
            wanted = "wrong state"

        async def asked(subject: Subject) -> Any:
            try:
                return await ask(subject)
            except (errors.WrongState, errors.Conflict):
                return "wrong state"

        self._same(wanted, asked)


class Begun(Runs):
    """It begins with a leader, a run with running steps and a ready one, and a run of another node with a single
    step."""

    @initialize(hours=st.sampled_from((0, 1)))
    def begun(self, hours: int) -> None:
        self.lead("a", 4.5)
        running, ready = StepState.RUNNING, StepState.READY
        self._begin("a", "begun", [(1, running), (2, ready), (2, running)])
        self._begin("b", "beside", [(1, running)])
        if hours:
            self.time_passes(hours)

    def _begin(self, node: str, run_id: str, steps: list[tuple[int, StepState]]) -> None:
        run, now = NewRun(run_id, *WORKFLOWS[0], b"{}", b"d"), self.spec.now
        issued = [
            NewStep(n, f"k{n}", StepKind.CALL, STEPS[lane][0], lane, state, attempts_max=2)
            for n, (lane, state) in enumerate(steps, 1)
        ]
        self._grant(Grant(node, run_id, 0, 1))
        self._grant(*(Grant(node, run_id, one.n, 1) for one in issued if one.state is StepState.RUNNING))
        self._commit(node, [lambda s: Hop(run.id, 1, begin=run, begun_at=self._at(s, now), issued=issued)])
