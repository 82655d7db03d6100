"""Breakers and holds."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.breaker import BreakerChange
from holdfast.model import BreakerState, HoldScope
from holdfast.store.answers import Observation
from tests.differential.questions import ALL, LANES, NAMESPACES, WORKFLOWS, Asking, Grant, nodes
from tests.differential.subjects import HOUR, Subject

WINDOW_H = 1.5
breakers = st.sampled_from(("bank", "post"))
holds = st.sampled_from(
    (
        (HoldScope.ALL, ""),
        (HoldScope.DEPENDENCY, "bank"),
        (HoldScope.STEP, "ship"),
        (HoldScope.WORKFLOW, WORKFLOWS[0][0]),
        (HoldScope.NAMESPACE, NAMESPACES[1]),
    )
)


class Gates(Asking):
    def _round(self, name: str, draw: st.DataObject) -> int:
        """Draw the breaker's current round, or an earlier one."""
        seen = self.spec.breakers.get(name)
        return (0 if seen is None else seen.round) - draw.draw(st.sampled_from((0, 0, 0, 1)))

    @rule(data=st.data(), name=breakers, ok=st.integers(0, 2), failed=st.integers(0, 2), probes=st.booleans())
    def observe(self, data: st.DataObject, name: str, ok: int, failed: int, probes: bool) -> None:
        observation = Observation(
            name, ok, failed, "boom" if failed else None, self._round(name, data) if probes else None
        )
        tallies = [observation, Observation("post", 1, 0, None)]
        self._tick()
        self.spec.observe(tallies, WINDOW_H)
        self._same(None, lambda s: s.store.gates.observe(tallies, WINDOW_H * HOUR))

    @precondition(lambda self: self.spec.breakers)
    @rule(
        data=st.data(),
        name=breakers,
        state=st.sampled_from((BreakerState.PROBING, *BreakerState)),
        wave=st.integers(1, 3),
    )
    def change_breaker(self, data: st.DataObject, name: str, state: BreakerState, wave: int) -> None:
        epoch, round_ = data.draw(st.sampled_from(self.epochs)), self._round(name, data)
        change = BreakerChange(
            state,
            wave if state is BreakerState.PROBING else 0,
            2.5 * HOUR if state is BreakerState.OPEN else 0.0,
            "a reason",
        )
        self._tick()
        wanted = self.spec.change_breaker(epoch, name, round_, change)
        self._same(wanted, lambda s: s.store.gates.change_breaker(epoch, name, round_, change))

    @precondition(lambda self: self.spec.breakers)
    @rule(
        data=st.data(),
        node=nodes,
        name=breakers,
        limit=st.sampled_from((1, ALL)),
        lanes=st.sampled_from(((1,), (2,), LANES)),
    )
    def claim_probes(
        self, data: st.DataObject, node: str, name: str, limit: int, lanes: tuple[int, ...]
    ) -> None:
        runs = self._some_runs(data)
        self._tick()
        wanted = self.spec.claim_probes(node, name, lanes, limit, runs)
        wanted = wanted[0], sorted(wanted[1])
        self._grant(*(Grant(node, run_id, n, fence) for run_id, n, fence, _ in wanted[1]))

        async def ask(subject: Subject) -> tuple[int, list[tuple[str, int, int, int]]]:
            found = await subject.store.gates.claim_probes(node, name, lanes, limit, runs)
            claimed = sorted((one.run_id, one.n, one.fence, one.attempt) for one in found.steps)
            return (found.round if claimed else 0), claimed

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.breakers)
    @rule(data=st.data(), name=breakers, probes=st.integers(1, 2))
    def give_back_probes(self, data: st.DataObject, name: str, probes: int) -> None:
        epoch, round_ = data.draw(st.sampled_from(self.epochs)), self._round(name, data)
        self._tick()
        wanted = self.spec.give_back_probes(epoch, name, round_, probes)
        self._same(wanted, lambda s: s.store.gates.give_back_probes(epoch, name, round_, probes))

    @rule(name=breakers, state=st.sampled_from((BreakerState.OPEN, BreakerState.CLOSED)))
    def force_breaker(self, name: str, state: BreakerState) -> None:
        self._tick()
        wanted = self.spec.force_breaker(name, state)

        async def ask(subject: Subject) -> BreakerState:
            return (await subject.store.gates.force_breaker(name, state, "me", "why")).state

        self._same(wanted, ask)

    @rule(name=breakers)
    def reset_breaker(self, name: str) -> None:
        self._tick()
        wanted = self.spec.reset_breaker(name)

        async def ask(subject: Subject) -> BreakerState | None:
            found = await subject.store.gates.reset_breaker(name, "me", "why")
            return None if found is None else found.state

        self._same(wanted, ask)

    @rule(hold=holds)
    def add_hold(self, hold: tuple[HoldScope, str]) -> None:
        self._tick()
        wanted = self.spec.add_hold(*hold)
        self._same(wanted, lambda s: s.store.gates.add_hold(*hold, "me", "why"))

    @precondition(lambda self: self.spec.holds)
    @rule(hold=holds)
    def remove_hold(self, hold: tuple[HoldScope, str]) -> None:
        self._tick()
        wanted = self.spec.remove_hold(*hold)
        self._same(wanted, lambda s: s.store.gates.remove_hold(*hold, "me", "why"))
