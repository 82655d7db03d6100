"""Runs, for callers and operators: read one, wait for one, steer one, list many."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast import codec
from holdfast.access import Act, Identity
from holdfast.codec.schema import data_option
from holdfast.desk.filters import within_namespace
from holdfast.desk.journal import entries
from holdfast.desk.known_runs import KnownRuns, candidates, may_exist
from holdfast.desk.opened import Opened, ring
from holdfast.desk.starts import given_id
from holdfast.durations import Eta
from holdfast.errors import Forbidden, InvalidInput, UnknownRun, UnknownStep, WrongState
from holdfast.lifecycle import RUN_ENDED
from holdfast.logs import LogFilter, LogInfo, LogTake, in_time
from holdfast.model import DEFAULT_NAMESPACE, Attempt, JournalEntry, RunRow, RunState, StepKind, StepRow
from holdfast.namespaces import bare, shown, shown_row, shown_text, stored
from holdfast.store.bell import Bell
from holdfast.store.forks import Forked, ForkRequest
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store
from holdfast.supervisor.facts import Facts, SignalsDeclared, gather
from holdfast.supervisor.outlook import Outlook, etas, outlook
from holdfast.workflow import registry
from holdfast.workflow.declaration import TakenSignals

if TYPE_CHECKING:
    from holdfast.desk.quarantine import QuarantineDesk
    from holdfast.graph.graph import Graph

LOOK_S, LOOK_MAX_S = 0.25, 2.0
"""After how many seconds a wait looks again at a run that has not ended: at first, and at most."""

Ahead = Outlook
"""What earlier durations say about a run."""


class RunDesk(Protocol):
    """What callers and operators may ask about runs. `run` is an id as the identity sees it."""

    async def get(self, who: Identity, run: str) -> RunRow: ...
    async def after(self, who: Identity, run: str, mark: str, wait_s: float) -> RunRow: ...
    async def ended(self, who: Identity, runs: Sequence[str], wait_s: float) -> list[RunRow]: ...
    async def counts(self, who: Identity) -> dict[str, int]: ...
    async def steps(self, who: Identity, run: str, after: int, limit: int) -> list[StepRow]: ...
    async def step(self, who: Identity, run: str, n: int) -> StepRow: ...
    async def attempts(self, who: Identity, run: str) -> list[Attempt]: ...
    async def journal(self, who: Identity, run: str, limit: int) -> list[JournalEntry]: ...
    async def children(self, who: Identity, run: str) -> list[RunRow]: ...
    async def started(self, who: Identity, run: str) -> list[RunRow]: ...
    async def why(self, who: Identity, run: str) -> str: ...
    async def logs(
        self, who: Identity, run: str, where: LogFilter, limit: int | None = None, skip: int = 0
    ) -> list[LogInfo]: ...
    async def log_counts(self, who: Identity, run: str) -> dict[int, int]: ...
    async def graph(self, who: Identity, run: str) -> Graph: ...
    async def outlook(self, who: Identity, run: RunRow, steps: Sequence[StepRow]) -> Outlook: ...
    async def etas(self, who: Identity, runs: Sequence[RunRow]) -> dict[str, Eta]: ...

    # operators
    async def cancel(self, who: Identity, run: str, note: str = "", *, force: bool = False) -> RunState: ...
    async def hold(self, who: Identity, run: str, note: str = "") -> RunState: ...
    async def release(self, who: Identity, run: str, note: str = "") -> RunState: ...
    async def retry(self, who: Identity, run: str) -> str: ...
    async def skip(self, who: Identity, run: str, step: str | None = None, note: str = "") -> RunState: ...
    async def fork(
        self,
        who: Identity,
        run: str,
        start: str | None = None,
        input: Any = None,
        results: Mapping[str, Any] | None = None,
        new_id: str | None = None,
    ) -> Forked: ...

    async def list(self, who: Identity, where: RunFilter) -> list[RunRow]: ...


class LocalRunDesk:
    """A run desk that works on the store."""

    def __init__(
        self,
        hf: Opened,
        known: KnownRuns,
        quarantine: Callable[[], QuarantineDesk],
        leaving: asyncio.Event,
    ) -> None:
        """`leaving` is set when the process is about to leave. Everybody who waits here gets an answer then."""
        self._hf, self._known, self._quarantine, self._leaving = hf, known, quarantine, leaving

    @property
    def _store(self) -> Store:
        return self._hf.store

    # --- reading ------------------------------------------------------------------------------------------------------

    async def get(self, who: Identity, run: str) -> RunRow:
        who.demand(Act.FOLLOW)
        return shown_row(who.namespace, await self._known.row(who, run))

    async def after(self, who: Identity, run: str, mark: str, wait_s: float) -> RunRow:
        """Return the run as soon as its mark is another one, or after `wait_s` as it is then."""
        row, pause_s = await self.get(who, run), LOOK_S
        until = self._hf.environment.monotonic() + wait_s
        while mark_of(row) == mark and row.state not in RUN_ENDED:
            left_s = until - self._hf.environment.monotonic()
            if left_s <= 0 or self._leaving.is_set():
                break
            await self._pause([stored(who.namespace, row.id)], min(pause_s, left_s))
            row, pause_s = await self.get(who, run), min(pause_s * 1.5, LOOK_MAX_S)
        return row

    async def ended(self, who: Identity, runs: Sequence[str], wait_s: float) -> list[RunRow]:
        """Return those of these runs that have ended or are stuck, once there is one, or after `wait_s`. A run that
        does not exist is like one that does not end."""
        who.demand(Act.FOLLOW)
        wanted = [stored for run in runs if may_exist(run) for stored in candidates(who, run)]
        until = self._hf.environment.monotonic() + wait_s
        watched = list(wanted)
        while True:
            found = [row for row in await self._store.reads.ended_runs(wanted) if who.sees(row.namespace)]
            left_s = until - self._hf.environment.monotonic()
            if found or left_s <= 0 or self._leaving.is_set():
                return [shown_row(who.namespace, row) for row in found]
            done = await self._pause(watched, left_s)
            watched = [stored for stored in watched if stored not in done]

    async def _pause(self, runs: Sequence[str], seconds: float) -> set[str]:
        """Wait until one of these runs has ended, for at most so long. Return those that have ended or do not exist."""
        watchers: dict[str, asyncio.Future[Any]] = {run: self._hf.caller.watch_end(run) for run in runs}
        leave: asyncio.Future[Any] = asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait(
                [*watchers.values(), leave], timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            return {run for run, watcher in watchers.items() if watcher.done()}
        finally:
            leave.cancel()
            for watcher in watchers.values():
                watcher.cancel()

    async def counts(self, who: Identity) -> dict[str, int]:
        who.demand(Act.READ)
        return await self._store.reads.runs_by_state(who.namespace)

    async def steps(self, who: Identity, run: str, after: int, limit: int) -> list[StepRow]:
        who.demand(Act.READ)
        found = await self._store.reads.steps(await self._known.id(who, run), after=after, limit=limit)
        return [shown_row(who.namespace, row) for row in found]

    async def step(self, who: Identity, run: str, n: int) -> StepRow:
        found = await self.steps(who, run, n - 1, 1)
        if not found or found[0].n != n:
            raise UnknownRun(f"run {run!r} has no step {n}")
        return found[0]

    async def attempts(self, who: Identity, run: str) -> list[Attempt]:
        who.demand(Act.READ)
        found = await self._store.reads.attempts(await self._known.id(who, run))
        return [shown_row(who.namespace, row) for row in found]

    async def journal(self, who: Identity, run: str, limit: int) -> list[JournalEntry]:
        who.demand(Act.READ)
        return entries(who, await self._store.reads.journal(await self._known.id(who, run), limit))

    async def children(self, who: Identity, run: str) -> list[RunRow]:
        who.demand(Act.READ)
        found = await self._store.reads.children(await self._known.id(who, run))
        return [shown_row(who.namespace, row) for row in found if who.sees(row.namespace)]

    async def started(self, who: Identity, run: str) -> list[RunRow]:
        """Return the runs that this one started, and that are not its children."""
        who.demand(Act.READ)
        found = await self._store.reads.started_runs(await self._known.id(who, run))
        return [shown_row(who.namespace, row) for row in found if who.sees(row.namespace)]

    async def why(self, who: Identity, run: str) -> str:
        """Say in a sentence or two what the run waits for, and what would move it."""
        from holdfast.supervisor.why import explain  # noqa: PLC0415  few programs need it

        who.demand(Act.READ)
        return shown_text(who.namespace, explain(await self.facts(await self._known.row(who, run))))

    async def facts(self, row: RunRow) -> Facts:
        """Return what `why` explains."""
        steps, attempts = await self._known.steps(row.id), await self._store.reads.attempts(row.id)
        declared = await self._signals_declared(row.id)
        return await gather(self._store, row, steps, attempts, self._hf.config, declared)

    async def _signals_declared(self, stored: str) -> SignalsDeclared | None:
        declared = await self._store.workflows.declared(stored)
        if declared is None:
            return None
        taken = TakenSignals.read(declared)
        data = {name: data_option(schema) for name, schema in taken.signals.items()}
        updates = {name: data_option(schema) for name, schema in taken.updates.signals.items()}
        return SignalsDeclared(data, frozenset(taken.named), taken.open, updates)

    async def logs(
        self, who: Identity, run: str, where: LogFilter, limit: int | None = None, skip: int = 0
    ) -> list[LogInfo]:
        """Return what the run and its steps have logged, in the order of time, without the first `skip` lines, and at most
        `limit`."""
        who.demand(Act.READ)
        if not who.payloads:
            raise Forbidden("this token sees no payloads, and log lines may have parts of them")
        stored, take, found = await self._known.id(who, run), LogTake(), []
        keys = {step.n: step.key for step in await self._known.steps(stored)}
        async for logged in in_time(self._store.reads, stored, take):
            if where.fits(logged):
                if skip > 0:
                    skip -= 1
                    continue
                found.append(logged.info(keys))
                if limit is not None and len(found) >= limit:
                    break
        return found

    async def log_counts(self, who: Identity, run: str) -> dict[int, int]:
        """Return how many lines each step has logged that are kept. 0 is the workflow's own code."""
        who.demand(Act.READ)
        return await self._store.reads.log_counts(await self._known.id(who, run))

    async def graph(self, who: Identity, run: str) -> Graph:
        """Return the graph of the run's workflow, with the way of the run in it. Without the code here, it is the graph
        that a scheduler has published."""
        who.demand(Act.READ)
        row = await self._known.row(who, run)
        from holdfast.graph import Graph, graph_of, with_run  # noqa: PLC0415  reads source, which few need

        name = bare(row.workflow)
        workflow = (
            registry.workflows.get((name, row.version)) if row.namespace in self._hf.namespaces else None
        )
        if workflow is not None:
            graph = graph_of(workflow)
        elif (drawn := await self._store.workflows.drawn(row.workflow, row.version)) is not None:
            graph = msgspec.json.decode(drawn, type=Graph)
        else:
            raise WrongState(
                f"nobody has published the graph of {name} version {row.version}: start a scheduler with its code, "
                "`holdfast scheduler FILE`"
            )
        steps = [shown_row(row.namespace, step) for step in await self._known.steps(row.id)]
        return with_run(graph, shown_row(who.namespace, row), steps)

    async def outlook(self, who: Identity, run: RunRow, steps: Sequence[StepRow]) -> Outlook:
        """Return what earlier durations say about a run whose steps the caller has read."""
        who.demand(Act.READ)
        run, steps = stored_run(who.namespace, run), stored_steps(who.namespace, steps)
        return (await outlook(self._store, run, steps, self._hf.config)).shown(who.namespace)

    async def etas(self, who: Identity, runs: Sequence[RunRow]) -> dict[str, Eta]:
        """Return when each of these runs will probably end, by its id."""
        who.demand(Act.READ)
        found = await etas(self._store, [stored_run(who.namespace, run) for run in runs])
        return {shown(who.namespace, run_id): eta for run_id, eta in found.items()}

    # --- steering -----------------------------------------------------------------------------------------------------

    async def cancel(self, who: Identity, run: str, note: str = "", *, force: bool = False) -> RunState:
        """Ask the run to cancel itself: its running steps are cancelled, and what it did is undone. Return its state
        right after that. A run that is already undoing goes on with that, unless `force` makes it stop where it is. If
        the code of the run got such a request before and went on, only `force` asks it again."""
        who.demand(Act.STEER)
        codec.stored_text(note, "note")
        row = await self._known.row(who, run)
        state, operators = row.state, self._store.operators
        # A run that is stuck at a step in quarantine, and not at an undo, can be cancelled like any other.
        if RunState.UNDOING in {state, row.resume} or (state is RunState.STUCK and row.resume is None):
            if force:
                state = await operators.steer_undo(row.id, "abandon", None, who.actor, note)
        else:
            state = await operators.cancel_run(row.id, who.actor, note, again=force)
        ring(self._hf, Bell.OUTCOMES, Bell.RUNS, Bell.ENDED)
        self._hf.caller.look_for_ends()
        return state

    async def hold(self, who: Identity, run: str, note: str = "") -> RunState:
        """Stop the run: it issues no further step until `release`. Steps that are already running end and are
        recorded."""
        who.demand(Act.STEER)
        codec.stored_text(note, "note")
        state = await self._store.operators.hold((await self._known.row(who, run)).id, who.actor, note)
        ring(self._hf, Bell.OUTCOMES)
        return state

    async def release(self, who: Identity, run: str, note: str = "") -> RunState:
        who.demand(Act.STEER)
        codec.stored_text(note, "note")
        state = await self._store.operators.release((await self._known.row(who, run)).id, who.actor, note)
        ring(self._hf, Bell.RUNS)
        return state

    async def retry(self, who: Identity, run: str) -> str:
        """Try again, and return the id of the run to watch, as the store has it.

        In an open run, the steps that wait for a retry and those in quarantine are tried at once. In a stuck run, the
        undos that gave up are tried again. For an ended run, this starts a new run, which keeps all that was recorded
        and executes again what ended the run and what was undone. Retrying the same run again gives the same new run.
        If the new run was retried, too, only the newest can be retried.
        """
        who.demand(Act.STEER)
        row, operators = await self._known.row(who, run), self._store.operators
        if row.state not in RUN_ENDED:
            await self._quarantine().resolve(who, "release", run_id=run)
        if row.state is RunState.STUCK and row.resume is not RunState.RUNNING:
            await operators.steer_undo(row.id, "retry", None, who.actor, "")
            ring(self._hf, Bell.OUTCOMES)
            return row.id
        if row.state not in RUN_ENDED:
            await operators.retry_now(row.id, who.actor)
            ring(self._hf, Bell.STEPS)
            return row.id
        new_id = await operators.retry_run(row.id, who.actor)
        ring(self._hf, Bell.RUNS)
        return new_id

    async def skip(self, who: Identity, run: str, step: str | None = None, note: str = "") -> RunState:
        """Count an undo that gave up as done by hand: the one with this key (of the step or of its undo), or all of
        them."""
        who.demand(Act.STEER)
        row, n = await self._known.row(who, run), None
        codec.stored_text(note, "note")
        if step is not None:
            found = [one.n for one in await self._known.steps(row.id) if one.key in {step, f"undo:{step}"}]
            if not found:
                raise UnknownStep.named(run, step)
            n = found[-1]
        state = await self._store.operators.steer_undo(row.id, "skip", n, who.actor, note)
        ring(self._hf, Bell.OUTCOMES)
        return state

    async def fork(
        self,
        who: Identity,
        run: str,
        start: str | None = None,
        input: Any = None,
        results: Mapping[str, Any] | None = None,
        new_id: str | None = None,
    ) -> Forked:
        """Start a new run with everything that this one recorded before a point: see `Run.fork`."""
        who.demand(Act.STEER)
        row, steps, limit = await self._known.row(who, run), {}, self._hf.config.payload_max_bytes
        if results is not None and not isinstance(results, Mapping):
            raise InvalidInput(f"run.fork(set=…): give results by the keys of their steps, not {results!r}")
        if start is not None or results:
            steps = {step.key: step for step in await self._known.steps(row.id)}
        if new_id is not None:
            new_id = stored(who.namespace, given_id(new_id, "run.fork(id=…)"))
        from holdfast.desk import edits  # noqa: PLC0415  few programs fork

        declared = await edits.demand_code(self._store, row, steps.get(start or ""))
        raw = None if input is None else edits.checked_input(row, input, declared, limit)
        request = ForkRequest(
            start=start,
            input=raw,
            digest=None if raw is None else codec.digest(raw),
            results={
                key: edits.checked_result(steps[key], value, edits.child_workflow(steps[key]), limit)
                if key in steps
                else b"null"  # the store says that there is no such step
                for key, value in (results or {}).items()
            },
            id=new_id,
        )
        made = await self._store.operators.fork_run(row.id, request, who.actor)
        ring(self._hf, Bell.RUNS)
        return made

    # --- many runs ----------------------------------------------------------------------------------------------------

    async def list(self, who: Identity, where: RunFilter) -> list[RunRow]:
        """Return runs, newest first: those of the identity's namespace that fit the filter."""
        who.demand(Act.READ)
        found = await self._store.reads.runs(within_namespace(where, who.namespace))
        return [shown_row(who.namespace, row) for row in found]


def mark_of(run: RunRow) -> str:
    """Return a digest that changes when what is shown of the run changes."""
    shown = msgspec.structs.replace(run, owner=None, fence=0, digest=b"")
    return hashlib.blake2b(msgspec.json.encode(shown), digest_size=12).hexdigest()


def stored_run(namespace: str | None, run: RunRow) -> RunRow:
    """Return a run as the store has it."""
    if namespace in {None, DEFAULT_NAMESPACE}:
        return run
    return msgspec.structs.replace(
        run, id=stored(namespace, run.id), workflow=stored(namespace, run.workflow)
    )


def stored_steps(namespace: str | None, steps: Sequence[StepRow]) -> Sequence[StepRow]:
    """Return steps as the store has them. Only calls have stored names."""
    if namespace in {None, DEFAULT_NAMESPACE}:
        return steps
    return [
        msgspec.structs.replace(step, name=stored(namespace, step.name))
        if step.kind is StepKind.CALL
        else step
        for step in steps
    ]
