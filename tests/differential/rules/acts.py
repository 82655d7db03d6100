"""Acts on many runs."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdfast.model import ActOptions, ActVerb
from holdfast.store.acts import LEFT, NewAct
from holdfast.store.reads import RunFilter
from tests.differential.questions import ALL
from tests.differential.rules.runs import Runs
from tests.differential.subjects import HOUR, Subject

VERBS = ("cancel", "cancel", "hold", "release", "retry", "retry", "skip")
PLAN_H = 3.5


class Acts(Runs):
    def _act(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(list(self.spec.acts)))

    @precondition(lambda self: self.spec.runs)
    @rule(data=st.data(), verb=st.sampled_from(VERBS), is_whole=st.sampled_from((True, True, True, False)))
    def plan_act(self, data: st.DataObject, verb: str, is_whole: bool) -> None:
        """Plan an act on some runs. A few of them have changed already, or are gone."""
        self.made += 1
        act_id = f"act-{self.made}"
        some = data.draw(st.lists(st.sampled_from([*self._runs(), "unknown"]), unique=True, max_size=4))
        runs = []
        for run_id in some:
            run, off = self.spec.runs.get(run_id), data.draw(st.sampled_from((0, 0, 0, 1)))
            runs.append((run_id, "failed", 1) if run is None else (run_id, str(run.state), run.fence + off))
        new = NewAct(act_id, ActVerb(verb), "me", "why", ActOptions())
        self._tick()
        self.spec.plan_act(act_id, verb)
        self._same(None, lambda s: s.store.acts.plan_act(new))
        wanted = self.spec.add_act_runs(act_id, runs)
        self._same(wanted, lambda s: s.store.acts.add_act_runs(act_id, runs))
        if is_whole:
            self.finish_plan_of(act_id)

    def finish_plan_of(self, act_id: str) -> None:
        wanted = self.spec.finish_plan(act_id)

        async def ask(subject: Subject) -> bool:
            return await subject.store.acts.finish_plan(act_id, "{}") is not None

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.acts)
    @rule(data=st.data())
    def finish_plan(self, data: st.DataObject) -> None:
        self._tick()
        self.finish_plan_of(self._act(data))

    @precondition(lambda self: self.spec.acts)
    @rule(data=st.data(), lease_h=st.sampled_from((0.5, 3.5)))
    def begin_act(self, data: st.DataObject, lease_h: float) -> None:
        act_id = self._act(data)
        self._tick()
        wanted = self.spec.begin_act(act_id, "x", lease_h, PLAN_H)
        self._same(wanted, lambda s: s.store.acts.begin_act(act_id, "x", lease_h * HOUR, PLAN_H * HOUR))

    @precondition(lambda self: any(one.state == "running" for one in self.spec.acts.values()))
    @rule(data=st.data(), lease_h=st.sampled_from((0.5, 3.5)))
    def take_act(self, data: st.DataObject, lease_h: float) -> None:
        act_id = self._act(data)
        idle = self.spec.idle_acts()

        async def look(subject: Subject) -> list[str]:
            return sorted(await subject.store.acts.idle_acts(ALL))

        self._same(idle, look)
        self._tick()
        wanted = self.spec.take_act(act_id, "y", lease_h)
        self._same(wanted, lambda s: s.store.acts.take_act(act_id, "y", lease_h * HOUR))

    @precondition(lambda self: any(one.state == "running" for one in self.spec.acts.values()))
    @rule(
        data=st.data(),
        limit=st.sampled_from((1, 2, ALL, ALL)),
        refuses=st.sampled_from((False, False, False, True)),
        off=st.sampled_from((0, 0, 0, -1)),
    )
    def carry_out(self, data: st.DataObject, limit: int, refuses: bool, off: int) -> None:
        """Carry out a batch, with the current fence or an old one."""
        act_id = data.draw(
            st.sampled_from([one.id for one in self.spec.acts.values() if one.state == "running"])
        )
        fence, limit = self.spec.acts[act_id].fence + off, 1 if refuses else limit
        self._tick()
        wanted = self.spec.carry_out(act_id, fence, 3.5, limit, refuses=refuses)

        async def ask(subject: Subject) -> Any:
            if refuses:
                act = await subject.store.acts.refuse_next(act_id, fence, "broken", lease_s=3.5 * HOUR)
            else:
                act = await subject.store.acts.carry_out(
                    act_id, fence, lease_s=3.5 * HOUR, limit=limit, share_s=HOUR
                )
            return None if act is None else (act.state, act.done, act.changed, act.refused)

        self._same(wanted, ask)

    @precondition(lambda self: self.spec.acts)
    @rule(data=st.data(), every=st.integers(0, 2))
    def stop_act(self, data: st.DataObject, every: int) -> None:
        if every == 0:
            act_id = self._act(data)
            self._tick()
            wanted = self.spec.stop_act(act_id)
            self._same(wanted, lambda s: s.store.acts.stop_act(act_id, "me"))

    @precondition(lambda self: self.spec.acts)
    @rule(data=st.data())
    def forget_acts(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(self.epochs))
        before, plans_before = self.spec.now - 2.5, self.spec.now - PLAN_H
        self._tick()
        wanted = self.spec.forget_acts(epoch, before, plans_before)
        self._same(
            wanted,
            lambda s: s.store.retention.forget_acts(
                epoch, s.at(self.spec, before), s.at(self.spec, plans_before), ALL
            ),
        )

    @precondition(lambda self: self.spec.acts)
    @rule(data=st.data(), limit=st.sampled_from((1, ALL)))
    def read_acts(self, data: st.DataObject, limit: int) -> None:
        act_id = self._act(data)
        fates = data.draw(st.sampled_from(((), (LEFT,), ("done", "refused"))))
        self._alike("act", lambda s: s.store.acts.act(act_id))
        self._alike("acts", lambda s: s.store.acts.acts(limit))
        self._alike("act_runs", lambda s: s.store.acts.act_runs(act_id, fates, "", limit))

    @precondition(lambda self: self.spec.runs)
    @rule(data=st.data(), limit=st.sampled_from((1, ALL)))
    def list_meant_runs(self, data: st.DataObject, limit: int) -> None:
        ids = tuple(data.draw(st.lists(st.sampled_from(("none", *self._runs())), max_size=3, unique=True)))
        prefix = data.draw(st.sampled_from((None, "r", *self._runs())))
        where = RunFilter(limit=limit, prefix=None if ids else prefix, ids=ids)
        after = data.draw(st.sampled_from(("", *self._runs())))
        self._alike("meant_runs", lambda s: s.store.acts.meant_runs(where, after))

    @precondition(lambda self: self.spec.runs)
    @rule(data=st.data())
    def list_runs_with_step(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(("none", *self._runs())), max_size=3, unique=True))
        key = data.draw(st.sampled_from(("none", "k1", "k2")))
        self._alike("runs_with_step", lambda s: s.store.acts.runs_with_step(ids, key))
