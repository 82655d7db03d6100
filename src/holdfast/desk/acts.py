"""Acts on many runs, for programs and operators.

plan = await hf.plan("cancel", workflow="order", state="held", since="2h")
print(plan.preview.sentence)
done = await plan.carry_out()
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol

import msgspec

from holdfast.access import Identity, roles
from holdfast.codec import stored_text
from holdfast.desk.cautions import cautions
from holdfast.desk.known_runs import may_exist
from holdfast.desk.opened import Opened
from holdfast.desk.plans import STATES, PlanTally, Preview
from holdfast.errors import InvalidInput, UnknownAct, UnknownRun, WrongState
from holdfast.model import ActOptions, ActRow, ActRun, ActState, ActVerb, Fate
from holdfast.namespaces import shown, shown_row, shown_text, stored
from holdfast.store.acts import LEFT, NewAct
from holdfast.store.reads import RunFilter
from holdfast.store.store import Store
from holdfast.supervisor.acts import Carrier

Verb = Literal["cancel", "hold", "release", "retry", "skip", "fork"]
PAGE = 500
"""How many runs are listed at a time. So a plan of any size needs little memory."""
ID_CHARS = 10
"""How much of a new id names an act. People type it."""


class ActDesk(Protocol):
    """What operators may ask about acts. `act` is an id."""

    async def get(self, who: Identity, act: str) -> ActRow: ...
    async def stop(self, who: Identity, act: str) -> bool: ...
    async def runs(
        self, who: Identity, act: str, fates: Sequence[str], after: str, limit: int
    ) -> list[ActRun]: ...
    async def list(self, who: Identity, limit: int) -> list[ActRow]: ...


class LocalActDesk:
    """An act desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def get(self, who: Identity, act: str) -> ActRow:
        who.demand(roles.Act.READ)
        row = await self._store.acts.act(act) if may_exist(act) else None
        if row is None or who.namespace not in {None, row.namespace}:
            raise UnknownAct(f"no act has the id {act!r}: `holdfast acts` lists them")
        return row

    async def stop(self, who: Identity, act: str) -> bool:
        """Stop an act. Return False if there was nothing to stop."""
        who.demand(roles.Act.STEER)
        await self.get(who, act)
        return await self._store.acts.stop_act(act, who.actor)

    async def runs(
        self, who: Identity, act: str, fates: Sequence[str], after: str, limit: int
    ) -> list[ActRun]:
        await self.get(who, act)
        found = await self._store.acts.act_runs(
            act, fates, stored(who.namespace, after) if after else "", limit
        )
        return [shown_row(who.namespace, one) for one in found]

    async def list(self, who: Identity, limit: int) -> list[ActRow]:
        """Return the newest acts, newest first."""
        who.demand(roles.Act.READ)
        return await self._store.acts.acts(limit, who.namespace)


class ActInfo:
    """An act, as it was when it was read."""

    __slots__ = ("_row",)

    def __init__(self, row: ActRow) -> None:
        self._row = row

    def __repr__(self) -> str:
        return f"<ActInfo {self.id} {self.verb} {self.state}>"

    @property
    def id(self) -> str:
        return self._row.id

    @property
    def verb(self) -> str:
        """What it does to each run: cancel, hold, release, retry, skip or fork."""
        return str(self._row.verb)

    @property
    def state(self) -> ActState:
        """`planned`, `running`, `done` or `stopped`; `planning` while its runs are listed."""
        return self._row.state

    @property
    def actor(self) -> str:
        """Who made the plan."""
        return self._row.actor

    @property
    def note(self) -> str:
        return self._row.note

    @property
    def runs(self) -> int:
        """How many runs are in the plan."""
        return self._row.runs

    @property
    def done(self) -> int:
        return self._row.done

    @property
    def changed(self) -> int:
        """How many runs were left alone, because they had changed since the plan was made."""
        return self._row.changed

    @property
    def refused(self) -> int:
        """How many runs could not be acted on."""
        return self._row.refused

    @property
    def left(self) -> int:
        """How many runs were not tried yet."""
        return self._row.runs - self._row.tried

    @property
    def preview(self) -> Preview:
        """What the plan says, in words and numbers."""
        return msgspec.json.decode(self._row.preview, type=Preview)

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self._row.created_at, UTC)

    @property
    def begun_at(self) -> datetime | None:
        return _moment(self._row.begun_at)

    @property
    def ended_at(self) -> datetime | None:
        return _moment(self._row.ended_at)


def _moment(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)


class Act:
    """A handle to one act on many runs: carry it out, follow it, stop it. If it does not exist, its methods raise
    UnknownAct."""

    def __init__(
        self,
        hf: Opened,
        act_id: str,
        preview: Preview | None = None,
        *,
        namespace: str | None = None,
        actor: str,
    ) -> None:
        """`namespace` is the one in which the act is seen. Without it, the act is seen wherever it is. `actor` is
        who stops it."""
        self._hf, self.id, self._namespace, self._actor = hf, act_id, namespace, actor
        self.preview = preview or Preview()
        """What the plan says, if this handle came from `hf.plan`."""

    def __repr__(self) -> str:
        return f"<Act {self.id}>"

    async def row(self) -> ActRow:
        """Return the act's row, for the command line."""
        row = await self._hf.store.acts.act(self.id)
        if row is None or self._namespace not in {None, row.namespace}:
            raise UnknownAct(f"no act has the id {self.id!r}: `holdfast acts` lists them")
        return row

    async def info(self) -> ActInfo:
        """Return the act as it is now."""
        return ActInfo(await self.row())

    async def carry_out(self, progress: Callable[[ActInfo], None] | None = None) -> ActInfo:
        """Carry out the plan, and return the act when it has ended. If another process carries it out, this waits for
        that one, and takes over if it dies. If the act is done, nothing happens again.

        After each batch, `progress` is called. A stopped act goes on with what is left. If this process dies or this
        call is cancelled, the leader goes on.
        """
        hf, config, acts = self._hf, self._hf.config, self._hf.store.acts
        row = await self.row()
        if row.state is ActState.PLANNING:
            raise WrongState(
                f"act {self.id!r} has no complete plan: wait until it is made, or make a new one"
            )
        fence = await acts.begin_act(self.id, hf.caller.id, config.act_lease_s, config.plan_s)
        if fence is None and (await self.row()).state in {ActState.PLANNED, ActState.STOPPED}:
            raise WrongState(
                f"the plan of act {self.id!r} is too old, because most of its runs will have changed: make a new one"
            )
        while True:
            if fence is None:
                fence = await acts.take_act(self.id, hf.caller.id, config.act_lease_s)
            if fence is not None:
                batch = await Carrier(acts, self.id, fence, config, hf.caller.ring).batch()
                fence = None if batch is None else fence
                row = await self.row() if batch is None else batch
            else:
                row = await self.row()
            info = ActInfo(row)
            if progress is not None:
                progress(info)
            if row.state is not ActState.RUNNING:
                hf.caller.look_for_ends()
                return info
            if fence is None:
                await hf.environment.sleep(config.poll_s)

    async def watch(self, every_s: float = 0.5) -> AsyncIterator[ActInfo]:
        """Yield the act now and after each change, until it has ended."""
        last: ActRow | None = None
        while True:
            row = await self.row()
            if last is None or (row.state, row.tried) != (last.state, last.tried):
                yield ActInfo(row)
            last = row
            if row.state in {ActState.DONE, ActState.STOPPED}:
                return
            await self._hf.environment.sleep(every_s)

    async def stop(self) -> ActInfo:
        """Stop the act: no further run is acted on. `carry_out` goes on with what is left."""
        await self.row()  # an act of another namespace is unknown
        await self._hf.store.acts.stop_act(self.id, self._actor)
        return await self.info()

    async def runs(self, *fates: Literal["done", "changed", "refused", "left"]) -> AsyncIterator[ActRun]:
        """Yield the runs of the plan by their ids, with what became of each: all of them, or those with one of these
        fates. `left` are those that were not tried yet."""
        known = {*map(str, Fate), LEFT}
        if wrong := [fate for fate in fates if fate not in known]:
            raise WrongState(f"act.runs({wrong[0]!r}): a fate is one of {', '.join(sorted(known))}")
        after = ""
        while True:
            if not after:
                await self.row()
            page = await self._hf.store.acts.act_runs(self.id, fates, after, PAGE)
            for run in page:
                yield shown_row(self._namespace, run)
            if len(page) < PAGE:
                return
            after = page[-1].run_id


def demand_plan(verb: str, where: RunFilter, how: ActOptions, note: str) -> None:
    """Raise InvalidInput for a plan that cannot be meant."""
    if verb not in set(ActVerb):
        raise InvalidInput(f"plan({verb!r}): expected one of {', '.join(ActVerb)}")
    if how.force and verb != ActVerb.CANCEL:
        raise InvalidInput(f"plan({verb!r}, force=True): force is for cancel")
    if how.start is not None:
        if verb != ActVerb.FORK:
            raise InvalidInput(f"plan({verb!r}, from_={how.start!r}): from_ is for fork")
        stored_text(how.start, "from_")
    if not where.is_narrow:
        raise InvalidInput("plan(…): say which runs are meant, for example by their state, workflow or age")
    stored_text(note, "note")


async def make_plan(
    hf: Opened,
    verb: ActVerb,
    where: RunFilter,
    options: ActOptions,
    note: str,
    progress: Callable[[int], None] | None = None,
    *,
    actor: str,
) -> Act:
    """List the runs that a filter means, and write down those that the act can do something to. After each page,
    `progress` is called with the number of runs that were listed."""
    if where.ids and (unknown := await hf.store.reads.unknown_runs(where.ids)):
        raise UnknownRun.of(shown(where.namespace, unknown[0]))
    acts, tally = hf.store.acts, PlanTally(verb, options)
    act_id = hf.environment.new_id()[-ID_CHARS:].lower()
    if not where.states and not where.ids:  # what was named and cannot be acted on is listed as left alone
        states = STATES[verb] + (("undoing",) if options.force else ())
        where = msgspec.structs.replace(where, states=tuple(map(str, states)))
    # What happens to a run happens to the pages of its maps, too.
    where = msgspec.structs.replace(where, limit=PAGE, has_pages=False)
    await acts.plan_act(NewAct(act_id, verb, actor, note, options, where.namespace or ""))
    declared: dict[tuple[str, str], bool] = {}
    after = ""
    while True:
        page = await acts.meant_runs(where, after)
        for code in {(run.workflow, run.version) for run in page} - declared.keys():
            declared[code] = verb is not ActVerb.FORK or await _has_code(hf, *code)
        ids = {run.id for run in page}
        if options.start is not None:
            ids = await acts.runs_with_step(sorted(ids), options.start)
        planned = [
            run
            for run in page
            if tally.take(run, has_code=declared[run.workflow, run.version], has_step=run.id in ids)
        ]
        await acts.add_act_runs(act_id, [(run.id, str(run.state), run.fence) for run in planned])
        if progress is not None:
            progress(tally.seen)
        if len(page) < PAGE:
            break
        last = page[-1]
        after = last.id
        if where.prefix is None and not where.ids:
            where.before = (last.created_at, last.id)
    preview = tally.preview(await cautions(hf.store, tally))
    text = shown_text(where.namespace, msgspec.json.encode(preview).decode())
    preview = msgspec.json.decode(text, type=Preview)
    if await acts.finish_plan(act_id, text) is None:
        raise WrongState(f"act {act_id!r} was stopped while its plan was made")
    return Act(hf, act_id, preview, namespace=where.namespace, actor=actor)


async def _has_code(hf: Opened, workflow: str, version: str) -> bool:
    return await hf.store.workflows.declaration(workflow, version) is not None
