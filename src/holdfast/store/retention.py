"""Retention: ended runs go in batches of some hundred rows, each a transaction of its own; and so does what nobody asks for any
more."""

from __future__ import annotations

from holdfast.store.answers import Pruned
from holdfast.store.database import LEADER, Part, Session, leading, long_look, transaction
from holdfast.store.verbs import Verb

PARTS = (
    Verb.prune_steps,
    Verb.prune_attempts,
    Verb.prune_signals,
    Verb.prune_quarantine,
    Verb.prune_twins,
    Verb.prune_joins,
    Verb.prune_inherited,
    Verb.prune_journal,
)
"""What goes before the run itself, so that whatever is left after an interruption still has its run."""


class Retention(Part):
    async def prune(
        self,
        epoch: int | None,
        *,
        actor: str,
        state: str,
        before: float,
        after: tuple[float, str],
        runs_max: int,
        rows_max: int,
    ) -> Pruned:
        """One batch: of the runs that ended in `state` before `before`, beginning after the cursor `after`, remove those
        that have no children and no live run above them, with their steps, attempts, signals and journal. At most
        `runs_max` runs, and about `rows_max` rows. Nothing when `epoch` is over; no epoch: an operator asks."""
        if not await self._any(Verb.old_runs, state, before, *after, 1):
            return Pruned(0, 0, None)
        return await self._prune(
            epoch,
            actor=actor,
            state=state,
            before=before,
            after=after,
            runs_max=runs_max,
            rows_max=rows_max,
        )

    @transaction
    async def _prune(
        self,
        session: Session,
        epoch: int | None,
        *,
        actor: str,
        state: str,
        before: float,
        after: tuple[float, str],
        runs_max: int,
        rows_max: int,
    ) -> Pruned:
        if epoch is not None and await session.row(Verb.leads, LEADER, epoch) is None:
            return Pruned(0, 0, None)
        await session.by_index()
        old = await session.rows(Verb.old_runs, state, before, *after, runs_max)
        last = (old[-1][1], old[-1][0]) if len(old) == runs_max else None
        wanted = [row[0] for row in await session.rows(Verb.prunable, [row[0] for row in old])]
        joined = {row[0] for row in await session.rows(Verb.joined, wanted)}
        wanted = [run_id for run_id in wanted if run_id not in joined]
        if not wanted:
            return Pruned(0, 0, last)
        rows = 0
        for part in PARTS:
            rows += await session.run(part, wanted, rows_max - rows)
            if rows >= rows_max:  # something may be left: the same place again
                return Pruned(0, rows, after)
        runs = await session.run(Verb.prune_runs, wanted)
        note = f"{runs} runs that {state} removed, {rows + runs} rows"
        await session.each(Verb.journal_add, [(actor, "prune", None, None, note)])
        return Pruned(runs, rows + runs, last)

    @long_look
    async def count_old_runs(self, session: Session, state: str, before: float) -> int:
        """How many runs ended in `state` before `before`."""
        return int(await session.value(Verb.count_old_runs, state, before))

    async def prune_alerts(self, epoch: int, before: float, limit: int) -> int:
        """Remove alerts that were cleared before `before`, with their deliveries; how many."""
        return (
            await self._prune_alerts(epoch, before, limit)
            if await self._any(Verb.old_alerts, before, 1)
            else 0
        )

    @leading(0)
    async def _prune_alerts(self, session: Session, before: float, limit: int) -> int:
        old = await session.rows(Verb.old_alerts, before, limit)
        await session.each(Verb.prune_deliveries, old)
        return await session.each(Verb.prune_alerts, old)

    async def forget_nodes(self, epoch: int, before: float, limit: int) -> int:
        """Remove nodes that left before `before` and have nothing; how many."""
        return await self._forget(epoch, Verb.left_nodes, Verb.forget_nodes, before, limit)

    async def forget_journal(self, epoch: int, before: float, limit: int) -> int:
        """Remove journal rows from before `before` that belong to no run; how many."""
        return await self._forget(epoch, Verb.old_journal, Verb.forget_journal, before, limit)

    async def forget_workflows(self, epoch: int, before: float, limit: int) -> int:
        """Remove what nobody has declared since `before` and no live node has loaded; how many."""
        return await self._forget(epoch, Verb.old_workflows, Verb.forget_workflows, before, limit)

    async def _forget(self, epoch: int, find: Verb, forget: Verb, before: float, limit: int) -> int:
        return (
            await self._forget_old(epoch, find, forget, before, limit)
            if await self._any(find, before, 1)
            else 0
        )

    @leading(0)
    async def _forget_old(self, session: Session, find: Verb, forget: Verb, before: float, limit: int) -> int:
        return await session.each(forget, await session.rows(find, before, limit))
