"""Lateness: the leader notifies people of runs and steps that will probably end later than was promised, before that happens where
it can be known. It does nothing else about them.

May change: alerts of its kinds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast.config import Config
from holdfast.durations import sketches, step_name
from holdfast.lateness import Verdict, judge, run_names, run_promise, step_promise
from holdfast.model import Alert, AlertKind, DueRun, DueStep, Level, NewAlert
from holdfast.store.durations import Durations
from holdfast.store.roles import SupervisorStore
from holdfast.store.store import Store
from holdfast.supervisor.alerts import opened, trimmed

PAGE = 500
"""How many runs and how many steps one look judges. The next one goes on with those that are due later."""
LATE_MAX = 100
"""At most this many alerts of these kinds are open at once."""
STEPS_MAX = 1000
"""For how many steps of a run the reason is read."""
KINDS = frozenset({AlertKind.RUN_LATE, AlertKind.STEP_LATE})
FIRST_RUN = (0.0, "")
FIRST_STEP = (0.0, "", 0)

Explain = Callable[[str], Awaitable[str]]
"""Says what a run waits for, as `why` does."""


class Judged(NamedTuple):
    """An open run, or an open step of it, that was promised to end at some time."""

    key: str
    """The key of the alert about it."""
    kind: AlertKind
    run_id: str
    n: int | None
    name: str
    """For people."""
    verdict: Verdict


class Lateness:
    def __init__(self, store: SupervisorStore, config: Config, explain: Explain) -> None:
        self._store, self._config, self._explain = store, config, explain
        self._after_run, self._after_step = FIRST_RUN, FIRST_STEP
        self.next_at: float | None = None
        """When something can next become late because time passes, by the store's clock. None if nothing can."""

    async def watch(self, epoch: int, kinds: Collection[str], *, promises: bool) -> int:
        """Look at what was promised to end at some time, if there are `promises`. `kinds` are those of open alerts. Return how
        many were raised."""
        if KINDS.isdisjoint(kinds) and not promises:
            self.next_at = None
            return 0
        return await self._look(epoch)

    async def mind(self, epoch: int) -> int:
        """Look if something can have become late since the last look. Return how many alerts were raised."""
        if self.next_at is None or await self._store.now() < self.next_at:
            return 0
        return await self._look(epoch)

    async def _look(self, epoch: int) -> int:
        store = self._store.alerts
        runs = await store.promised_runs(self._after_run, PAGE)
        steps = await store.promised_steps(self._after_step, PAGE)
        self._after_run = (runs[-1].due_at, runs[-1].id) if len(runs) == PAGE else FIRST_RUN
        last = steps[-1] if len(steps) == PAGE else None
        self._after_step = FIRST_STEP if last is None else (last.due_at, last.run_id, last.n)
        known = [alert for kind in sorted(KINDS) for alert in await opened(self._store, self._config, kind)]
        warned = {alert.key for alert in known}
        runs += await self._warned_runs(known, runs)
        steps += await self._warned_steps(known, steps)
        judged = await judge_all(self._store.durations, runs, steps, await self._store.now(), warned)
        late = [one for one in judged if one.verdict.is_late]
        lasting = {one.key for one in late}
        over = [alert.id for alert in known if alert.key not in lasting]
        if over:
            await store.clear_alerts(epoch, over)
        room = max(0, LATE_MAX - len(known) + len(over))
        unwarned = [one for one in late if one.key not in warned]
        new = [await self._alert(one) for one in unwarned[:room]]
        raised = await store.raise_late(epoch, new) if new else 0
        looks = [one.verdict.look_at for one in judged if one.verdict.look_at is not None]
        self.next_at = min(looks, default=None)
        return raised

    async def _warned_runs(self, known: Iterable[Alert], seen: Iterable[DueRun]) -> list[DueRun]:
        """Return the runs that people were warned of and that are not among those seen, if they are open."""
        warned = {one.run_id or "" for one in known if one.kind == AlertKind.RUN_LATE}
        others = sorted(warned.difference(run.id for run in seen))
        return await self._store.alerts.promised_runs_of(others) if others else []

    async def _warned_steps(self, known: Iterable[Alert], seen: Iterable[DueStep]) -> list[DueStep]:
        warned = {
            (one.run_id or "", int(one.key.rpartition(":")[2]))
            for one in known
            if one.kind == AlertKind.STEP_LATE
        }
        others = sorted(warned.difference((step.run_id, step.n) for step in seen))
        return await self._store.alerts.promised_steps_of(others) if others else []

    async def _alert(self, one: Judged) -> tuple[NewAlert, int | None]:
        message = f"{one.name} is late: {one.verdict.why}. {await self._explain(one.run_id)}"
        return NewAlert(one.kind, Level.WARNING, one.key, trimmed(message), one.run_id), one.n


def late_key(run_id: str, n: int | None = None) -> str:
    return f"{AlertKind.RUN_LATE}:{run_id}" if n is None else f"{AlertKind.STEP_LATE}:{run_id}:{n}"


async def judge_all(
    durations: Durations,
    runs: Sequence[DueRun],
    steps: Sequence[DueStep],
    now: float,
    warned: Collection[str],
) -> list[Judged]:
    """Return whether these runs and steps will be late, those that are due first. `warned` are the keys of open alerts."""
    begun = [run.id for run in runs if run.started_at is not None]
    marks = {mark.run_id: mark for mark in await durations.landmarks(begun)} if begun else {}
    names = {name for run in runs for name in run_names(run, marks.get(run.id))}
    names |= {step_name(step.name) for step in steps}
    known = sketches(await durations.durations(sorted(names))) if names else {}
    found: list[tuple[float, Judged]] = []
    for run in runs:
        key, promise = late_key(run.id), run_promise(run, marks.get(run.id), known, now)
        verdict = judge(promise, now, warned=key in warned)
        name = f"run {run.id} of {run.workflow}"
        found.append((run.due_at, Judged(key, AlertKind.RUN_LATE, run.id, None, name, verdict)))
    for step in steps:
        key = late_key(step.run_id, step.n)
        verdict = judge(step_promise(step, known, now), now, warned=key in warned)
        name = f"step {step.key} of run {step.run_id}"
        found.append((step.due_at, Judged(key, AlertKind.STEP_LATE, step.run_id, step.n, name, verdict)))
    return [one for _, one in sorted(found, key=lambda each: each[0])]


async def next_promise(store: Store, now: float) -> float | None:
    """Return when the leader has next to notify people of something that is late: now, if it has not done so yet. None if time
    alone makes nothing late."""
    if not await store.alerts.any_promised():
        return None
    runs = await store.alerts.promised_runs(FIRST_RUN, PAGE)
    steps = await store.alerts.promised_steps(FIRST_STEP, PAGE)
    alerts = [one for kind in sorted(KINDS) for one in await store.alerts.open_alerts_of(kind, 0, LATE_MAX)]
    if len(alerts) >= LATE_MAX:
        return None
    warned = {alert.key for alert in alerts}
    judged = [
        one for one in await judge_all(store.durations, runs, steps, now, warned) if one.key not in warned
    ]
    looks = [now if one.verdict.is_late else one.verdict.look_at for one in judged]
    return min((at for at in looks if at is not None), default=None)


async def unexplained(run_id: str) -> str:
    """Say where the reason is."""
    return f"`holdfast why {run_id}` says why"


async def explained(store: Store, config: Config, run_id: str) -> str:
    """Say what a run waits for, and what would move it."""
    from holdfast.supervisor.facts import gather  # noqa: PLC0415  few processes need it
    from holdfast.supervisor.why import explain  # noqa: PLC0415

    run = await store.reads.run(run_id)
    if run is None:
        return ""
    last = max((mark.n for mark in await store.durations.landmarks([run_id])), default=0)
    steps = await store.reads.steps(run_id, after=max(0, last - STEPS_MAX), limit=STEPS_MAX)
    bare = replace(run, due_at=None)  # that it is late is said already
    return explain(await gather(store, bare, steps, await store.reads.attempts(run_id), config))
