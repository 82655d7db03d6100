"""Steps in quarantine, which wait for a person."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.model import Failure, StepState
from holdfast.store.operations import QuarantineStep
from tests.differential.questions import ALL
from tests.differential.rules.runs import FINGERPRINTS, Runs
from tests.differential.subjects import Subject


class Quarantines(Runs):
    @precondition(lambda self: any(step.state is StepState.RUNNING for step in self.spec.steps.values()))
    @rule(data=st.data(), alike=st.sampled_from(FINGERPRINTS))
    def poison(self, data: st.DataObject, alike: str) -> None:
        """An agent that has a step puts it into quarantine."""
        running = [step for step in self.spec.steps.values() if step.state is StepState.RUNNING]
        step = data.draw(st.sampled_from(running))
        about = (f"boom {alike}", Failure.POISON, alike, step.name, "Boom", "shop.py:1")
        op = QuarantineStep(step.run_id, step.n, step.fence, "lost", *about)
        self._commit(step.agent or "", [lambda _: op])

    @precondition(lambda self: self.spec.quarantine)
    @rule(
        data=st.data(),
        act=st.sampled_from(("release", "skip", "fail")),
        limit=st.sampled_from((1, ALL)),
        ago_h=st.sampled_from((-1.0, 0.5)),
    )
    def resolve_quarantine(self, data: st.DataObject, act: str, limit: int, ago_h: float) -> None:
        """Decide about steps with the same fingerprint, of one run, or both. The run may have none."""
        alike = data.draw(
            st.sampled_from([None, *(one.fingerprint for one in self.spec.quarantine.values())])
        )
        run_id = data.draw(st.sampled_from([None, *(key[0] for key in self.spec.quarantine), *self._runs()]))
        before = self.spec.now - ago_h
        self._tick()
        wanted = self.spec.resolve_quarantine(act, alike, run_id, before, b"3", limit)

        async def ask(subject: Subject) -> int:
            return await subject.store.quarantine.resolve_quarantine(
                act,
                fingerprint=alike,
                run_id=run_id,
                before=subject.at(self.spec, before),
                result=b"3",
                actor="me",
                note="why",
                limit=limit,
            )

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.quarantine)
    @rule(data=st.data(), limit=st.sampled_from((1, ALL)))
    def stick_quarantined(self, data: st.DataObject, limit: int) -> None:
        epoch = data.draw(st.sampled_from(self.epochs))
        self._tick()
        wanted = self.spec.stick_quarantined(epoch, limit)
        self._same(wanted, lambda s: s.store.quarantine.stick_quarantined(epoch, limit))
