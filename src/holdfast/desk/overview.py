"""What people look at: runs in time, what needs a person, what nobody can do.

Python (`hf.desk.overview`), the command line and the server all ask an `Overview`, with the identity of who asks. Nothing here
changes anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from holdfast.access import Act, Identity
from holdfast.decider.undo_plan import PlannedUndo, undo_plan
from holdfast.desk.attention import ATTENTION, AttentionList, allowed, attention_list
from holdfast.desk.backlog import BacklogList, backlog_list
from holdfast.desk.cautions import cautions
from holdfast.desk.filters import within_namespace
from holdfast.desk.known_runs import KnownRuns
from holdfast.desk.opened import Opened
from holdfast.desk.plans import DID, AlikeRuns, PlanTally
from holdfast.desk.runs import LocalRunDesk
from holdfast.desk.stats import Stats, StatsAsked, stats
from holdfast.durations import Eta
from holdfast.errors import UnknownRun
from holdfast.lifecycle import STEP_LIVE
from holdfast.model import (
    ActOptions,
    ActVerb,
    Attempt,
    Breaker,
    BreakerState,
    Hold,
    Lane,
    RunRow,
    RunState,
    StepKind,
    StepRow,
    StepState,
)
from holdfast.namespaces import BETWEEN, shown, shown_row, shown_text, stored
from holdfast.step_words import UNKNOWN_WAIT, in_short, step_state
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store
from holdfast.supervisor.facts import QUEUES_MAX
from holdfast.supervisor.moves import Move, moves
from holdfast.supervisor.outlook import outlook
from holdfast.supervisor.phrases import command, counted, place
from holdfast.supervisor.said import SentencePart
from holdfast.supervisor.why import explained, full_limit, gate_in_short, gate_of, limit_in_short
from holdfast.timeline import Only, Sources, Timeline, drawn
from holdfast.timeline.bars import Gated
from holdfast.wire.paths import path_of

STEPS_PAGE = 2_000
NEWEST_STEPS = 200
"""How many of a run's newest steps are searched for those that it waits for."""
COUNTED_MAX = 10_000
"""How many runs that fit a filter are counted."""
FOUND_MAX, NAMES_MAX = 8, 1_000


class Asked(NamedTuple):
    """Which part of a timeline is asked for."""

    only: Only = "all"
    group: str = ""
    """The id of the row below which the rows are."""
    after: int = 0


class Explained(msgspec.Struct):
    """Why a run is where it is, and what may be done to it now."""

    text: str
    """A sentence or two: the parts joined."""
    parts: list[SentencePart]
    state: str
    """The state that it is about: of the run, or of the step that it waits for."""
    moves: list[Move]
    """What would move the run, the likeliest first."""
    acts: list[Move]
    """What else may be done to it now."""


class ActPreview(msgspec.Struct, kw_only=True):
    """What an act on one run would do, in words and numbers."""

    verb: str
    sentence: str
    allowed: bool
    """False if it can do nothing to the run as it is, or whoever asks may not do it."""
    changes: list[AlikeRuns]
    warnings: list[str]
    command: str
    undo: list[str]
    """The keys of the steps that would be undone, in this order."""
    plan: str | None = None
    """Of an act on many runs: the id of its plan."""


class FoundRun(msgspec.Struct):
    id: str
    ref: str
    workflow: str
    state: str


class SearchResult(msgspec.Struct):
    """What a search finds. Ids are found by their beginning, and names by any part of them."""

    runs: list[FoundRun]
    workflows: list[str]
    schedules: list[str]


class CountedRuns(msgspec.Struct):
    runs: dict[str, int]
    exact: bool
    """False if there are more than were counted."""


class SeenStep(NamedTuple):
    """A step, and what there is to know about it."""

    row: StepRow
    lane: Lane | None
    tried: list[Attempt]
    breaker: BreakerState | None
    place: str
    child: str | None


class Overview(Protocol):
    """What may be looked at. `run` is an id as the identity sees it."""

    async def why(self, who: Identity, run: str) -> Explained: ...
    async def attention(self, who: Identity, limit: int = ATTENTION) -> AttentionList: ...
    async def backlog(self, who: Identity) -> BacklogList: ...
    async def words(
        self, who: Identity, runs: Sequence[RunRow], etas: Mapping[str, Eta] = ...
    ) -> dict[str, str]: ...
    async def listed(self, who: Identity, where: RunFilter, *, words: bool) -> list[Listed]: ...
    async def stats(self, who: Identity, asked: StatsAsked = ...) -> Stats: ...
    async def counts(self, who: Identity, where: RunFilter) -> CountedRuns: ...
    async def search(self, who: Identity, text: str) -> SearchResult: ...
    async def timeline(self, who: Identity, run: str, asked: Asked = Asked()) -> Timeline: ...  # noqa: B008
    async def step(self, who: Identity, run: str, n: int) -> SeenStep: ...
    async def undo_plan(self, who: Identity, run: str) -> list[PlannedUndo]: ...
    async def preview(
        self, who: Identity, run: str, verb: ActVerb, options: ActOptions = ...
    ) -> ActPreview: ...


class Listed(NamedTuple):
    """A run in a list."""

    row: RunRow
    eta: Eta | None
    words: str
    """How it ended, or what it waits for, in a few words. Empty if they were not asked for."""


class LocalOverview:
    """An overview of the store."""

    def __init__(self, hf: Opened, known: KnownRuns, runs: LocalRunDesk) -> None:
        self._hf, self._known, self._runs = hf, known, runs

    @property
    def _store(self) -> Store:
        return self._hf.store

    # --- one run ------------------------------------------------------------------------------------------------------

    async def why(self, who: Identity, run: str) -> Explained:
        """Say what the run waits for, what would move it, and what else may be done to it."""
        who.demand(Act.READ)
        facts = await self._runs.facts(await self._known.row(who, run))
        namespace = who.namespace
        found, may = explained(facts), moves(facts, lambda name: shown(namespace, name))
        parts = [
            SentencePart(one.kind, shown_text(namespace, one.text), shown_text(namespace, one.ref))
            for one in found.parts
        ]
        return Explained(
            "".join(part.text for part in parts),
            parts,
            found.state,
            [allowed(who, one) for one in may.moves],
            [allowed(who, one) for one in may.acts],
        )

    async def timeline(self, who: Identity, run: str, asked: Asked = Asked()) -> Timeline:  # noqa: B008
        """Return the run in time."""
        who.demand(Act.READ)
        row = await self._known.row(who, run)
        store, steps = self._store, await self._bare_steps(row.id)
        ahead = await outlook(store, row, steps, self._hf.config)
        has_children = any(step.kind is StepKind.CHILD for step in steps)
        children = await store.reads.child_ids(row.id) if has_children else {}
        if has_children:
            children = await store.reads.joins(row.id) | children
        to_undo: list[StepRow] = []
        if row.ending is not None and row.finished_at is None:
            by_n = {step.n: step for step in steps}
            to_undo = [by_n[one.n] for one in await self._to_undo(row, steps)]
        now = await store.now()
        namespace = who.namespace
        given = Sources(
            shown_row(namespace, row),
            [shown_row(namespace, step) for step in steps],
            await store.reads.attempts(row.id),
            now,
            ahead.twins,
            ahead.shown(namespace).bounds,
            None if ahead.eta is None else ahead.eta.left_s,
            {n: shown(namespace, child) for n, child in children.items()},
            [shown_row(namespace, step) for step in to_undo],
            await self._gate(row, steps, namespace),
            path_of,
        )
        mark = _mark(given, asked)
        return drawn(given, mark, only=asked.only, group=asked.group, after=asked.after)

    async def step(self, who: Identity, run: str, n: int) -> SeenStep:
        """Return a step with its attempts, and what it needs and depends on."""
        who.demand(Act.READ)
        run_id, store = (await self._known.row(who, run)).id, self._store
        found = await store.reads.steps(run_id, after=n - 1, limit=1)
        if not found or found[0].n != n:
            raise UnknownRun(f"run {run!r} has no step {n}")
        row = found[0]
        lane = next((one for one in await store.agents.lanes() if one.id == row.lane), None)
        depends = row.name if lane is None else lane.depends
        breaker = next((one.state for one in await store.gates.breakers() if one.name == depends), None)
        node = None
        if row.agent is not None:
            node = next((one for one in await store.nodes.nodes() if one.id == row.agent), None)
        child = None
        if row.kind is StepKind.CHILD:
            child = (await store.reads.joins(run_id) | await store.reads.child_ids(run_id)).get(n)
        tried = [one for one in await store.reads.attempts(run_id) if one.n == n]
        return SeenStep(
            shown_row(who.namespace, row),
            lane,
            [shown_row(who.namespace, one) for one in tried],
            breaker,
            "" if node is None else place(node),
            child,
        )

    async def undo_plan(self, who: Identity, run: str) -> list[PlannedUndo]:
        """Return what the run has still to undo, or would undo if it were cancelled now, in the order in which it would be
        undone."""
        who.demand(Act.READ)
        row = await self._known.row(who, run)
        found = await self._to_undo(row, await self._bare_steps(row.id))
        return [one._replace(undo=shown(who.namespace, one.undo)) for one in found]

    async def preview(
        self,
        who: Identity,
        run: str,
        verb: ActVerb,
        options: ActOptions = ActOptions(),  # noqa: B008  immutable
    ) -> ActPreview:
        """Say what an act would do to the run. Nothing changes."""
        who.demand(Act.READ)
        row = await self._known.row(who, run)
        tally = PlanTally(verb, options)
        where = RunFilter(ids=(row.id,), limit=1)
        meant = [one for one in await self._store.acts.meant_runs(where) if one.id == row.id]
        has_code = (
            verb is not ActVerb.FORK
            or await self._store.workflows.declaration(row.workflow, row.version) is not None
        )
        start = options.start
        has_step = start is None or row.id in await self._store.acts.runs_with_step([row.id], start)
        takes = [one for one in meant if tally.take(one, has_code=has_code, has_step=has_step)]
        found = tally.preview(await cautions(self._store, tally))
        undo: list[PlannedUndo] = []
        if verb is ActVerb.CANCEL and takes and not options.force:
            undo = await self._to_undo(row, await self._bare_steps(row.id))
        shown_id = shown(who.namespace, row.id)
        change = (found.changes or found.left)[0]
        words = shown_text(who.namespace, change.words)
        does = f"would be {DID[verb]}" if takes else f"cannot be {DID[verb]}"
        undone = f"; {counted(len(undo), 'step')} would be undone" if undo else ""
        extra = ["--force"] if options.force else ["--from", options.start] if options.start else []
        return ActPreview(
            verb=str(verb),
            sentence=f"{shown_id} {does}{undone}",
            allowed=bool(takes) and who.may(Act.STEER),
            changes=[AlikeRuns(count=1, words=words, sample=[shown_id])],
            warnings=[shown_text(who.namespace, one) for one in found.warnings],
            command=command(str(verb), shown_id, *extra).strip("`"),
            undo=[one.key for one in undo],
        )

    async def _to_undo(self, row: RunRow, steps: list[StepRow]) -> list[PlannedUndo]:
        if row.finished_at is not None:
            return []
        lanes = {lane.id: lane for lane in await self._store.agents.lanes()}
        children = await self._store.reads.child_ids(row.id)
        return undo_plan(
            row, steps, await self._store.reads.signals(row.id), lanes=lanes, children=children.keys()
        )

    async def _bare_steps(self, run_id: str) -> list[StepRow]:
        found: list[StepRow] = []
        while True:
            page = await self._store.reads.bare_steps(
                run_id, after=found[-1].n if found else 0, limit=STEPS_PAGE
            )
            found += page
            if len(page) < STEPS_PAGE:
                return found

    async def _gate(
        self, row: RunRow, steps: list[StepRow], namespace: str | None
    ) -> Callable[[StepRow], Gated | None]:
        """Return what says whether a gate keeps a ready step from beginning."""
        if not any(step.kind is StepKind.CALL and step.state in STEP_LIVE for step in steps):
            return lambda _: None
        gates = self._store.gates
        holds, breakers = await gates.holds(), await gates.breakers()
        if not holds and not breakers:
            return lambda _: None
        lanes = await self._store.agents.lanes()
        by_n = {step.n: step for step in steps}

        def gate(step: StepRow) -> Gated | None:
            found = gate_of(by_n[step.n], row, lanes, holds, breakers)
            if found is None:
                return None
            words = shown_text(namespace, gate_in_short(found))
            if isinstance(found, Breaker):
                return Gated("fail", words, found.opened_at or step.ready_at)
            return Gated("held", words, found.at)

        return gate

    # --- many runs ----------------------------------------------------------------------------------------------------

    async def listed(self, who: Identity, where: RunFilter, *, words: bool) -> list[Listed]:
        """Return runs, newest first, with when each will probably end, and with what it waits for if that is asked for."""
        rows = await self._runs.list(who, where)
        etas = await self._runs.etas(who, rows)
        said = await self.words(who, rows, etas) if words else {}
        return [Listed(row, etas.get(row.id), said.get(row.id, "")) for row in rows]

    async def words(
        self, who: Identity, runs: Sequence[RunRow], etas: Mapping[str, Eta] = {}
    ) -> dict[str, str]:
        """Say in a few words how each of these runs ended, or what it waits for, by its id. The rows are as the identity
        sees them."""
        who.demand(Act.READ)
        store, namespace = self._store, who.namespace
        running = [
            stored(namespace, run.id) for run in runs if run.state in {RunState.RUNNING, RunState.UNDOING}
        ]
        found = await store.overview.open_steps(running, NEWEST_STEPS) if running else {}
        steps = {
            shown(namespace, run): [shown_row(namespace, one) for one in rows] for run, rows in found.items()
        }
        lanes: list[Lane] = []
        holds: list[Hold] = []
        breakers: list[Breaker] = []
        ready = [step for rows in steps.values() for step in rows if step.state is StepState.READY]
        if ready:
            holds, breakers = await store.gates.holds(), await store.gates.breakers()
            lanes = await store.agents.lanes() if holds or breakers else []
        queues = {step.queue for step in ready} | {run.queue for run in runs if run.state is RunState.PENDING}
        limits = {
            queue: full_limit(await store.limits.of_queue(queue))
            for queue in sorted(one for one in queues if one > 0)[:QUEUES_MAX]
        }
        now = await store.now()

        def limited(queue: int) -> str:
            """Say which limit has no room for what is in a queue. If the queue was not read, say that this is unknown:
            to name something else that is waited for would be a guess."""
            if queue <= 0:
                return ""
            if queue not in limits:
                return UNKNOWN_WAIT
            full = limits[queue]
            return "" if full is None else limit_in_short(full)

        def gate(run: RunRow, step: StepRow) -> str:
            row = msgspec.structs.replace(step, name=stored(namespace, step.name))
            code = msgspec.structs.replace(run, workflow=stored(namespace, run.workflow))
            closed = gate_of(row, code, lanes, holds, breakers)
            if closed is not None:
                return shown_text(namespace, gate_in_short(closed))
            return "" if step.ready_at > now else limited(step.queue)

        return {
            run.id: in_short(
                run,
                steps.get(run.id, ()),
                now,
                etas.get(run.id),
                partial(gate, run),
                limited(run.queue) if run.state is RunState.PENDING else "",
            )
            for run in runs
        }

    async def counts(self, who: Identity, where: RunFilter) -> CountedRuns:
        """Return how many runs fit a filter, by state. The states of the filter do not count, so that somebody can choose
        another one."""
        who.demand(Act.READ)
        where = within_namespace(msgspec.structs.replace(where, states=(), before=None), who.namespace)
        if not msgspec.structs.replace(where, namespace=None).is_narrow and where.has_pages:
            return CountedRuns(await self._store.reads.runs_by_state(who.namespace), True)
        found = await self._store.overview.count_meant(msgspec.structs.replace(where, limit=COUNTED_MAX + 1))
        return CountedRuns(found, sum(found.values()) <= COUNTED_MAX)

    async def search(self, who: Identity, text: str) -> SearchResult:
        """Return runs whose id begins with a text, and workflows and schedules with the text in their name."""
        who.demand(Act.READ)
        namespace, small = who.namespace, text.casefold()
        runs: list[RunRow] = []
        if text and BETWEEN not in text:
            where = within_namespace(RunFilter(prefix=text, limit=FOUND_MAX), namespace)
            runs = await self._store.reads.runs(where)
        declared = await self._store.workflows.workflows(NAMES_MAX, namespace)
        names = sorted({shown(namespace, one.name) for one in declared})
        schedules = await self._store.schedules.schedules(namespace, "", NAMES_MAX)
        return SearchResult(
            [
                FoundRun(run_id, path_of(run_id), shown(namespace, row.workflow), str(row.state))
                for row in runs
                for run_id in [shown(namespace, row.id)]
            ],
            [name for name in names if small in name.casefold()][:FOUND_MAX],
            [name for row in schedules for name in [shown(namespace, row.name)] if small in name.casefold()][
                :FOUND_MAX
            ],
        )

    # --- the store ----------------------------------------------------------------------------------------------------

    async def stats(self, who: Identity, asked: StatsAsked = StatsAsked()) -> Stats:  # noqa: B008
        """Return how runs ended in the window that ends now, and what is usual at this time of the day."""
        return await stats(self._store, self._hf.config, who, asked)

    async def attention(self, who: Identity, limit: int = ATTENTION) -> AttentionList:
        """Return what needs a person now, most urgent first."""
        return await attention_list(self._store, self._hf.config, who, limit)

    async def backlog(self, who: Identity) -> BacklogList:
        """Return what waits for somebody who can do it."""
        return await backlog_list(self._store, self._hf.config, who)


def _mark(given: Sources, asked: Asked) -> str:
    """Return a digest that changes when something other than the time has changed."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(repr((asked, given.run.state, given.run.ending, len(given.attempts))).encode())
    for step in given.steps:
        digest.update(f"{step.n} {step.fence} {step_state(step, given.now)}".encode())
    for twin in given.twins.values():
        digest.update(f"{twin.n} {twin.state}".encode())
    return digest.hexdigest()
