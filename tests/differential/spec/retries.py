"""Retries: runs that go on from where another run ended."""

from __future__ import annotations

import json
import math
from typing import NamedTuple

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import (
    DEADLINE,
    UNDO,
    UNDO_PREFIX,
    UPDATE_PREFIX,
    NewRun,
    RunState,
    StepKind,
    StepState,
    UpdateAnswer,
    undone_key,
)
from tests.differential.spec.base import Base
from tests.differential.spec.rows import CONFLICT, Run, Step

SUCCEEDED = StepState.SUCCEEDED


class End(NamedTuple):
    """How a run ended: the place in its history, the steps that ended it, and the steps that were undone."""

    seq: float
    steps: list[int]
    undone: list[int]


class Retries(Base):
    def retried_as(self, run_id: str) -> Run | None:
        found = [run for run in self.runs.values() if run.retry_of == run_id]
        return max(found, key=lambda run: (run.created_at, run.id), default=None)

    def newest(self, run_id: str | None) -> Run | None:
        run = None if run_id is None else self.runs.get(run_id)
        while run is not None and (later := self.retried_as(run.id)) is not None:
            run = later
        return run

    def lives_below(self, run_id: str) -> bool:
        return any(
            run.finished_at is None or self.lives_below(run.id)
            for run in self.runs.values()
            if run.parent_id == run_id
        )

    def end_of(self, run: Run) -> End:
        text = run.error or ""
        failure = json.loads(text) if text.startswith("{") else {}
        if failure.get("by"):
            woken = [
                row.delivered_seq for row in self.signals_of(run.id) if row.name == UNDO and row.delivered_seq
            ]
            return End(min(woken, default=math.inf) - 1, [], failure.get("undone", []))
        if "seq" in failure:
            return End(failure["seq"], failure.get("steps", []), failure.get("undone", []))
        own = [s for s in self.steps_of(run.id) if s.delivered_seq and not s.key.startswith(UNDO_PREFIX)]
        own.sort(key=lambda step: step.delivered_seq or 0)
        failed = [s.n for s in own if s.state is StepState.FAILED and run.state is not RunState.CANCELLED]
        seq = max((s.delivered_seq or 0 for s in own), default=0) if run.ending else math.inf
        tried = {undone_key(s.key)[0] for s in self.steps_of(run.id) if s.key.startswith(UNDO_PREFIX)}
        return End(seq, failed[-1:], [step.n for step in own if step.key in tried])

    def _child(self, step: Step) -> Run | None:
        for run in self.runs.values():
            if (run.parent_id, run.parent_n) == (step.run_id, step.n):
                return run
        return None

    def _kept(self, step: Step, end: End) -> int | None:
        """Return the place of the step in the history that is kept. 0: it is still to be delivered. None: it is not
        kept."""
        child, heard = self._child(step), step.delivered_seq or 0
        if step.n in [*end.steps, *end.undone] or step.kind is StepKind.UNDO:
            return None
        if step.kind is StepKind.TIMER and (step.name, step.key) == ("deadline", DEADLINE):
            return None
        if child is not None and step.state is SUCCEEDED and child.state is not RunState.SUCCEEDED:
            return None
        if 0 < heard <= end.seq and step.state is not StepState.CANCELLED:
            return heard
        return 0 if step.kind in (StepKind.CALL, StepKind.START) and step.state is SUCCEEDED else None

    def go_on_from(self, run: Run, wanted: str | None, parent: tuple[str, int] | None) -> str:
        """Make a run that keeps everything that was recorded, except for what ended the run and what was undone. Return
        its id."""
        stem, number = run.id, 2
        if run.retry_of is not None and "~" in run.id:
            stem, last = run.id.rsplit("~", 1)
            number = int(last) + 1
        new_id = wanted if wanted is not None and wanted not in self.runs else f"{stem}~{number}"
        while new_id in self.runs:
            number += 1
            new_id = f"{stem}~{number}"
        end = self.end_of(run)
        heritage = {key: one for (owner, key), one in self.inherited.items() if owner == run.id}
        heritage.setdefault("", (run.id, None))
        kept: list[int] = []
        for step in self.steps_of(run.id):
            heritage.pop(step.key, None)
            child, place = self._child(step), self._kept(step, end)
            if place is None:
                if child is not None:
                    heritage[step.key] = (None, child.id)
                elif (
                    step.kind is StepKind.CALL and step.n not in end.undone and (step.attempt or step.effect)
                ):
                    heritage[step.key] = (step.effect or f"{run.id}::{step.key}", None)
                continue
            kept.append(step.n)
            effect = (step.effect or f"{run.id}::{step.key}") if step.kind is StepKind.CALL else None
            copied = step._replace(run_id=new_id, retry=None, complete_by=None, checkpoint=None)
            self._put(copied._replace(progress=None, delivered_seq=place or None, effect=effect))
            if child is not None and child.state is RunState.SUCCEEDED:
                self._put(child._replace(parent_id=new_id))
        for signal in self.signals_of(run.id):
            if signal.name.startswith(UPDATE_PREFIX):
                place = signal.delivered_seq or 0
                if signal.answer not in (None, UpdateAnswer.UNSERVED) and place <= end.seq:
                    self.signals[new_id, signal.name, signal.key] = signal._replace(run_id=new_id)
            elif not signal.name.startswith("$"):
                heard = signal.delivered_seq or 0
                seq = heard if 0 < heard <= end.seq else None
                copied_signal = signal._replace(run_id=new_id, delivered_seq=seq)
                self.signals[new_id, signal.name, signal.key] = copied_signal
        for key, one in heritage.items():
            self.inherited[new_id, key] = one
        self._put(
            Run(
                new_id,
                run.workflow,
                run.version,
                RunState.PENDING,
                run.input,
                run.digest,
                run.priority,
                run.namespace,
                parent_id=parent[0] if parent else None,
                parent_n=parent[1] if parent else None,
                retry_of=run.id,
                generation=run.generation,
                base_n=run.base_n,
                kept_n=max((n for n in kept if n <= run.kept_n), default=0),
                progress=run.progress if run.ending is None else None,
                deadline=None if run.deadline is None else self.now + run.deadline - run.created_at,
                created_at=self.now,
                started_at=run.started_at,
            )
        )
        return new_id

    def child_goes_on(self, child: NewRun) -> tuple[StepState, bytes | None, str | None] | bool:
        """Return True if the child went on from an earlier one, False if it is to be started like any other, and
        otherwise the outcome of its step."""
        known = self.newest(child.retry_of)
        if known is None or (known.workflow, known.digest) != (child.workflow, child.digest):
            return False
        assert child.parent_id is not None
        assert child.parent_n is not None
        if known.state is RunState.SUCCEEDED:
            self._put(known._replace(parent_id=child.parent_id, parent_n=child.parent_n))
            return SUCCEEDED, known.output, None
        if known.state not in RUN_ENDED:
            return StepState.FAILED, None, CONFLICT
        self.go_on_from(known, child.id, (child.parent_id, child.parent_n))
        return True
