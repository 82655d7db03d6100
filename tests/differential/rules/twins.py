"""Twins, and the durations from which the leader knows which steps need one."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.model import StepState, TwinState
from holdfast.store.answers import Answer
from tests.differential.questions import ALL, LANES, Asking, Grant, logged_parts, nodes, parts
from tests.differential.subjects import HOUR, Subject


class Twins(Asking):
    @precondition(lambda self: any(step.state is StepState.RUNNING for step in self.spec.steps.values()))
    @rule(data=st.data())
    def make_twins(self, data: st.DataObject) -> None:
        """Make twins of running steps. Some of the steps have changed since the leader looked."""
        epoch = data.draw(st.sampled_from(self.epochs))
        running = [step for step in self.spec.steps.values() if step.state is StepState.RUNNING]
        late = data.draw(st.sampled_from((0, 0, 0, 1)))
        steps = [(step.run_id, step.n, step.fence - late) for step in running]
        self._tick()
        wanted = self.spec.make_twins(epoch, steps)

        async def ask(subject: Subject) -> list[tuple[str, int]]:
            return sorted(await subject.store.twins.make_twins(epoch, steps))

        self._same(sorted(wanted), ask)

    @precondition(lambda self: any(twin.ended_at is None for twin in self.spec.twins.values()))
    @rule(
        node=nodes, limit=st.sampled_from((1, ALL)), lanes=st.sampled_from(((1,), (2,), LANES, LANES[::-1]))
    )
    def claim_twins(self, node: str, limit: int, lanes: tuple[int, ...]) -> None:
        self._tick()
        wanted = sorted(self.spec.claim_twins(node, lanes, limit))
        self.twins += [Grant(node, run_id, n, fence) for run_id, n, fence, _ in wanted]

        async def ask(subject: Subject) -> list[tuple[str, int, int, int]]:
            claimed = await subject.store.twins.claim_twins(node, lanes, limit)
            return sorted((one.run_id, one.n, one.fence, one.attempt) for one in claimed)

        self._same(wanted, ask)

    @precondition(lambda self: any(step.state is StepState.RUNNING for step in self.spec.steps.values()))
    @rule(data=st.data(), node=nodes)
    def hedge(self, data: st.DataObject, node: str) -> None:
        """Make a twin and claim it at once, as it usually happens."""
        self.make_twins(data)
        self.claim_twins(node, ALL, LANES)

    @precondition(lambda self: self.twins)
    @rule(
        data=st.data(),
        state=st.sampled_from((TwinState.WON, TwinState.WON, TwinState.FAILED, TwinState.OUTRUN)),
    )
    def end_twin(self, data: st.DataObject, state: TwinState) -> None:
        grant = data.draw(st.sampled_from(self.twins))
        self._tick()
        logged = data.draw(logged_parts)
        now = self.spec.now
        wanted = self.spec.end_twin(grant.node, grant[1:], state, b"4", parts(logged, now, twin=True))

        async def ask(subject: Subject) -> Answer:
            logs = parts(logged, subject.at(self.spec, now), twin=True)
            return await subject.store.twins.end_twin(grant.node, grant[1:], state, b"4", "outrun", logs=logs)

        self._same(wanted, ask)

    @precondition(lambda self: self.twins)
    @rule(node=nodes)
    def read_lost_twins(self, node: str) -> None:
        claimed = [grant[1:] for grant in self.twins if grant.node == node]

        async def ask(subject: Subject) -> list[tuple[str, int]]:
            return sorted(await subject.store.twins.lost_twins(node, claimed))

        self._same(sorted(self.spec.lost_twins(node, claimed)), ask)

    @precondition(lambda self: self.spec.steps)
    @rule(data=st.data(), bars=st.booleans())
    def bar_or_stop_twin(self, data: st.DataObject, bars: bool) -> None:
        run_id, n = data.draw(st.sampled_from([*self.spec.twins, *self.spec.steps]))
        self._tick()
        if not bars:
            self.spec.stop_twin(run_id, n)
            self._same(None, lambda s: s.store.twins.stop_twin(run_id, n))
            return
        wanted = self.spec.bar_twin(run_id, n)

        async def ask(subject: Subject) -> TwinState:
            return (await subject.store.twins.bar_twin(run_id, n)).state

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.twins)
    @rule(data=st.data())
    def sweep_twins(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(self.epochs))
        self._tick()
        wanted = self.spec.sweep_twins(epoch)
        self._same(wanted, lambda s: s.store.twins.sweep_twins(epoch, ALL))

    @rule(
        name=st.sampled_from(("step:charge", "step:ship", "run:shop.order")),
        bucket=st.integers(0, 2),
        count=st.sampled_from((0.0625, 1.0, 16.0)),
    )
    def add_durations(self, name: str, bucket: int, count: float) -> None:
        counts = [(name, bucket, count)]
        self._tick()
        self.spec.add_durations(counts)
        self._same(None, lambda s: s.store.durations.add_durations(counts))

    @precondition(lambda self: self.spec.durations)
    @rule(data=st.data(), keep_h=st.sampled_from((0.5, 4.5)), rows_max=st.sampled_from((1, 3, ALL)))
    def fade_durations(self, data: st.DataObject, keep_h: float, rows_max: int) -> None:
        epoch = data.draw(st.sampled_from(self.epochs))
        self._tick()
        wanted = self.spec.fade_durations(epoch, 10.0, keep_h, rows_max)
        self._same(
            wanted,
            lambda s: s.store.durations.fade_durations(
                epoch, attempts_max=10.0, keep_s=keep_h * HOUR, rows_max=rows_max
            ),
        )
