"""Acts on many runs: plans, who carries them out, and what becomes of each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.lifecycle import RUN_ENDED
from holdfast.model import CANCEL, RunState
from tests.differential.spec.operators import Operating
from tests.differential.spec.rows import Run, WrongState

ALL = 10_000


class Act(NamedTuple):
    id: str
    verb: str
    state: str = "planning"
    fence: int = 0
    holder: str | None = None
    lease_until: float | None = None
    runs: int = 0
    done: int = 0
    changed: int = 0
    refused: int = 0
    created_at: float = 0.0
    begun_at: float | None = None
    ended_at: float | None = None


class Planned(NamedTuple):
    state: str
    fence: int
    fate: str | None = None


class Acting(Operating):
    def __init__(self) -> None:
        super().__init__()
        self.acts: dict[str, Act] = {}
        self.act_runs: dict[tuple[str, str], Planned] = {}

    def plan_act(self, act_id: str, verb: str) -> None:
        self.acts[act_id] = Act(act_id, verb, created_at=self.now)

    def add_act_runs(self, act_id: str, runs: Sequence[tuple[str, str, int]]) -> int:
        if self.acts[act_id].state != "planning":
            return 0
        new = {(act_id, run_id): Planned(state, fence) for run_id, state, fence in runs}
        new = {key: one for key, one in new.items() if key not in self.act_runs}
        self.act_runs |= new
        return len(new)

    def finish_plan(self, act_id: str) -> bool:
        act = self.acts[act_id]
        if act.state != "planning":
            return False
        self.acts[act_id] = act._replace(state="planned", runs=sum(key[0] == act_id for key in self.act_runs))
        return True

    def begin_act(self, act_id: str, holder: str, lease_h: float, plan_h: float) -> int | None:
        act = self.acts.get(act_id)
        if act is None or act.state not in {"planned", "stopped"} or act.created_at <= self.now - plan_h:
            return None
        self.acts[act_id] = act._replace(
            state="running",
            fence=act.fence + 1,
            holder=holder,
            lease_until=self.now + lease_h,
            begun_at=self.now if act.begun_at is None else act.begun_at,
            ended_at=None,
        )
        self.note("me", act.verb)
        return act.fence + 1

    def idle_acts(self) -> list[str]:
        return sorted(
            one.id
            for one in self.acts.values()
            if one.lease_until is not None and one.lease_until <= self.now
        )

    def take_act(self, act_id: str, holder: str, lease_h: float) -> int | None:
        if act_id not in self.idle_acts():
            return None
        act = self.acts[act_id]
        self.acts[act_id] = act._replace(fence=act.fence + 1, holder=holder, lease_until=self.now + lease_h)
        return act.fence + 1

    def stop_act(self, act_id: str) -> bool:
        act = self.acts.get(act_id)
        if act is None or act.state in {"done", "stopped"}:
            return False
        self.acts[act_id] = act._replace(
            state="stopped", fence=act.fence + 1, holder=None, lease_until=None, ended_at=self.now
        )
        self.note("me", act.verb)
        return True

    def carry_out(
        self, act_id: str, fence: int, lease_h: float, limit: int, *, refuses: bool = False
    ) -> tuple[str, int, int, int] | None:
        """Act on some runs. With `refuses`, the next run is left alone whatever it is."""
        act = self.acts.get(act_id)
        if act is None or act.state != "running" or act.fence != fence:
            return None
        left = sorted(key[1] for key, one in self.act_runs.items() if key[0] == act_id and one.fate is None)
        counts = {"done": 0, "changed": 0, "refused": 0}
        for run_id in left[:limit]:
            planned = self.act_runs[act_id, run_id]
            fate = "refused" if refuses else self._fate(act.verb, run_id, planned)
            self.act_runs[act_id, run_id] = planned._replace(fate=fate)
            counts[fate] += 1
        over = len(left) <= limit
        self.acts[act_id] = act = act._replace(
            state="done" if over else "running",
            holder=None if over else act.holder,
            lease_until=None if over else self.now + lease_h,
            ended_at=self.now if over else None,
            done=act.done + counts["done"],
            changed=act.changed + counts["changed"],
            refused=act.refused + counts["refused"],
        )
        return act.state, act.done, act.changed, act.refused

    def _fate(self, verb: str, run_id: str, planned: Planned) -> str:
        run = self.runs.get(run_id)
        if run is None or (run.state, run.fence) != (planned.state, planned.fence):
            return "changed"
        try:
            return self._act_on(verb, run)
        except WrongState:
            return "refused"

    def _act_on(self, verb: str, run: Run) -> str:
        if verb == "hold":
            if run.state is RunState.HELD:
                raise WrongState
            self.hold(run.id)
        elif verb == "release":
            self.release(run.id)
        elif verb == "skip":
            self.steer_undo(run.id, "skip")
        elif verb == "cancel":
            return self._cancel(run)
        elif run.state in RUN_ENDED:
            if self.retried_as(run.id) is not None and run.state is not RunState.SUCCEEDED:
                return "changed"
            self.retry_run(run.id)
        else:
            return self._retry_open(run)
        return "done"

    def _cancel(self, run: Run) -> str:
        if run.state in RUN_ENDED:
            return "refused"
        is_stuck = run.state is RunState.STUCK and run.resume is None
        if RunState.UNDOING in {run.state, run.resume} or is_stuck:
            self.steer_undo(run.id, "abandon")
            return "done"
        if (run.id, CANCEL, "cancel") in self.signals and run.state is not RunState.HELD:
            return "changed"
        self.cancel_run(run.id, again=False)
        return "done"

    def _retry_open(self, run: Run) -> str:
        released = self.resolve_quarantine("release", None, run.id, self.now, b"null", ALL)
        if run.state is RunState.STUCK and run.resume is not RunState.RUNNING:
            self.steer_undo(run.id, "retry")
            return "done"
        return "done" if self.retry_now(run.id) + released else "changed"

    def forget_acts(self, epoch: int, before: float, plans_before: float) -> int:
        """Remove the oldest act that is old enough. Return how many rows."""
        if not self.leads(epoch):
            return 0
        old = [
            one
            for one in self.acts.values()
            if (one.ended_at is not None and one.ended_at < before)
            or (
                one.begun_at is None
                and (one.created_at if one.ended_at is None else one.ended_at) < plans_before
            )
        ]
        if not old:
            return 0
        gone = min(old, key=lambda one: one.created_at).id
        rows = [key for key in self.act_runs if key[0] == gone]
        for key in rows:
            del self.act_runs[key]
        del self.acts[gone]
        return len(rows) + 1
