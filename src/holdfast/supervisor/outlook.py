"""Estimates from how long earlier runs and steps took: when a run will end, and which of its steps take too long."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.config import Config
from holdfast.durations import Eta, eta, eta_names, sketches, step_name
from holdfast.model import Landmark, RunRow, RunState, StepKind, StepRow, StepState, Twin, TwinState
from holdfast.namespaces import shown
from holdfast.store.store import Store
from holdfast.supervisor.stragglers import bounds_of


class Outlook(NamedTuple):
    """What earlier durations say about one run."""

    eta: Eta | None = None
    bounds: Mapping[str, float] = {}
    """How long its running steps may run before they are stragglers, by the step's name."""
    twins: Mapping[int, Twin] = {}
    """The twins of its steps, by the step's number."""

    def shown(self, namespace: str | None) -> Outlook:
        """Return this outlook with the names that those in the namespace see."""
        return self._replace(bounds={shown(namespace, name): bound for name, bound in self.bounds.items()})

    def straggles(self, step: StepRow, now: float) -> bool:
        """True if this step has been running for longer than such steps do."""
        bound = self.bounds.get(step.name)
        running = step.kind is StepKind.CALL and step.state is StepState.RUNNING
        return bound is not None and running and now - (step.started_at or now) > bound

    def after(self, passed_s: float) -> Outlook:
        """Return this outlook as it is `passed_s` seconds later."""
        if self.eta is None:
            return self
        left_s, most_s = (max(0.0, seconds - passed_s) for seconds in (self.eta.left_s, self.eta.most_s))
        return self._replace(eta=Eta(left_s, most_s, self.eta.samples))

    def twin(self, step: StepRow) -> Twin | None:
        """Return the twin that runs beside this step, or that outran it; None if there is none."""
        twin = self.twins.get(step.n)
        return twin if twin is not None and twin.state in {TwinState.RUNNING, TwinState.WON} else None


async def etas(store: Store, runs: Sequence[RunRow]) -> dict[str, Eta]:
    """Return by run id when each running run will probably end. Runs of which too little is known are left out."""
    running = [run for run in runs if run.state is RunState.RUNNING]
    if not running:
        return {}
    marks = {mark.run_id: mark for mark in await store.durations.landmarks([run.id for run in running])}
    names = {name for run in running for name in eta_names(run, marks.get(run.id))}
    known = sketches(await store.durations.durations(sorted(names)))
    now = await store.now()
    estimates = {run.id: eta(run, marks.get(run.id), known, now) for run in running}
    return {run_id: estimate for run_id, estimate in estimates.items() if estimate is not None}


async def outlook(store: Store, run: RunRow, steps: Sequence[StepRow], config: Config) -> Outlook:
    """Return the outlook of a run whose steps the caller has read."""
    twins = {twin.n: twin for twin in await store.twins.twins(run.id)}
    calls = {step_name(step.name) for step in steps if step.state is StepState.RUNNING}
    last = max(steps, key=lambda step: step.n, default=None)
    mark = None if last is None else Landmark(run.id, last.n, last.name, last.issued_at)
    names = [*sorted(calls), *eta_names(run, mark)]
    if not names:
        return Outlook(twins=twins)
    known = sketches(await store.durations.durations(names))
    bounds = bounds_of({name: sketch for name, sketch in known.items() if name in calls}, config)
    return Outlook(eta(run, mark, known, await store.now()), bounds, twins)
