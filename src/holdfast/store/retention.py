"""Retention: the store removes ended runs, and other rows that nobody needs any more. Each transaction removes some
hundred rows."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.actor import entry
from holdfast.store.answers import Pruned
from holdfast.store.database import LEADER, Noun, Session, leading, long_look, transaction
from holdfast.store.verbs import Verb

PARTS = (
    Verb.prune_steps,
    Verb.prune_attempts,
    Verb.prune_signals,
    Verb.prune_quarantine,
    Verb.prune_twins,
    Verb.prune_joins,
    Verb.prune_inherited,
    Verb.prune_gathers,
    Verb.prune_gathered,
    Verb.prune_ask_people,
    Verb.prune_asks,
    Verb.prune_journal,
    Verb.prune_logs,
)
"""What is removed before the run itself. So whatever is left after an interruption still has its run. Logs come last:
whoever writes some has locked its run, its step or its twin, and these are gone by then."""


class Retention(Noun):
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
        failed_before: float | None = None,
        kept: Sequence[str] = (),
        namespace: str | None = None,
    ) -> Pruned:
        """Remove one batch of old runs, with their steps, attempts, logs, signals and journal. The audit stays.

        It looks at up to `runs_max` runs that ended in `state` before `before`, beginning after the cursor `after`. It
        removes those that have no children, that no step has joined, and that no open run may still undo or go on from.
        What a run that did not succeed may have to undo after a retry stays as long as that run does. It stays if it
        ended in one of the states `kept`, or not before `failed_before`, which is `before` if it is not given.

        It stops after about `rows_max` rows. Nothing is removed if the epoch is over. An operator has no epoch, and may
        prune one namespace.
        """
        if not await self._any(Verb.old_runs, state, before, *after, 1, namespace):
            return Pruned(0, 0, None)
        return await self._prune(
            epoch,
            actor=actor,
            state=state,
            before=before,
            after=after,
            runs_max=runs_max,
            rows_max=rows_max,
            failed_before=before if failed_before is None else failed_before,
            kept=kept,
            namespace=namespace,
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
        failed_before: float,
        kept: Sequence[str],
        namespace: str | None,
    ) -> Pruned:
        if epoch is not None and await session.row(Verb.leads, LEADER, epoch) is None:
            return Pruned(0, 0, None)
        await session.by_index()
        old = await session.rows(Verb.old_runs, state, before, *after, runs_max, namespace)
        last = (old[-1][1], old[-1][0]) if len(old) == runs_max else None
        asked = (failed_before, list(kept))
        wanted = [row[0] for row in await session.rows(Verb.prunable, [row[0] for row in old], *asked)]
        above = await _lock_above(session, wanted)
        if above:
            free = [run_id for run_id in wanted if above.get(run_id, ()) is not None]
            wanted = [row[0] for row in await session.rows(Verb.prunable, free, *asked)]
        joined = {row[0] for row in await session.rows(Verb.joined, wanted)}
        wanted = [run_id for run_id in wanted if run_id not in joined]
        if not wanted:
            return Pruned(0, 0, last)
        # Nobody retries a run of which a part is gone, and that may be a run below it.
        removing = sorted({up for run_id in wanted for up in above.get(run_id) or ()})
        if removing:
            await session.run(Verb.mark_removing, removing)
        rows = 0
        for part in PARTS:
            rows += await session.run(part, wanted, rows_max - rows)
            if rows >= rows_max:  # some rows may be left, so the next batch begins at the same place
                await session.run(Verb.mark_removing, wanted)
                return Pruned(0, rows, after)
        runs = await session.run(Verb.prune_runs, wanted)
        note = f"{runs} {state} runs removed, {rows + runs} rows"
        await session.each(Verb.journal_add, [entry(actor, "prune", None, None, note)])
        return Pruned(runs, rows + runs, last)

    @long_look
    async def count_old_runs(
        self, session: Session, state: str, before: float, namespace: str | None = None
    ) -> int:
        """Return how many runs ended in `state` before `before`, in this namespace or in the whole store."""
        return int(await session.value(Verb.count_old_runs, state, before, namespace))

    async def prune_alerts(self, epoch: int, before: float, limit: int) -> int:
        """Remove alerts that were cleared before `before`, with their deliveries. Return how many."""
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
        """Remove nodes that left before `before` and have no run or step. Return how many."""
        return await self._forget(epoch, Verb.left_nodes, Verb.forget_nodes, before, limit)

    async def forget_journal(self, epoch: int, before: float, limit: int) -> int:
        """Remove entries of roles of Holdfast that are older than `before` and belong to no run. Return how many."""
        return await self._forget(epoch, Verb.old_journal, Verb.forget_journal, before, limit)

    async def forget_audit(self, epoch: int, before: float, limit: int) -> int:
        """Remove entries of the audit that are older than `before`, with or without a run. The store keeps those that are
        younger than `AUDIT_STAYS_DAYS`, whatever `before` is. Return how many."""
        return (
            await self._forget_audit(epoch, before, limit)
            if await self._any(Verb.old_audit, before, 1)
            else 0
        )

    @leading(0)
    async def _forget_audit(self, session: Session, before: float, limit: int) -> int:
        old = await session.rows(Verb.old_audit, before, limit)
        await session.run(Verb.begin_retention)
        removed = await session.each(Verb.forget_audit, old, before)
        await session.run(Verb.end_retention)
        return removed

    async def forget_acts(self, epoch: int, before: float, plans_before: float, limit: int) -> int:
        """Remove an act that ended before `before`, or a plan that nobody began and that was made before
        `plans_before`, with up to `limit` of its runs' rows. Return how many rows."""
        if not await self._any(Verb.old_acts, before, plans_before, 1):
            return 0
        return await self._forget_acts(epoch, before, plans_before, limit)

    @leading(0)
    async def _forget_acts(self, session: Session, before: float, plans_before: float, limit: int) -> int:
        old = await session.row(Verb.old_acts, before, plans_before, 1)
        if old is None:
            return 0
        removed = await session.run(Verb.forget_act_runs, old[0], limit)
        if removed < limit:
            removed += await session.run(Verb.forget_acts, old[0])
        return removed

    async def forget_workflows(self, epoch: int, before: float, limit: int) -> int:
        """Remove declarations that nobody has made since `before` and no live node has loaded. Return how many."""
        return await self._forget(epoch, Verb.old_workflows, Verb.forget_workflows, before, limit)

    async def forget_fires(self, epoch: int, before: float, limit: int) -> int:
        """Remove what became of times of schedules, if it was decided before `before` and has ended. Return how many."""
        return await self._forget(epoch, Verb.old_fires, Verb.forget_fires, before, limit)

    async def forget_backfills(self, epoch: int, before: float, limit: int) -> int:
        """Remove backfills that ended before `before`. Return how many."""
        return await self._forget(epoch, Verb.old_backfills, Verb.forget_backfills, before, limit)

    async def forget_sets(self, epoch: int, before: float, limit: int) -> int:
        """Remove sets of schedules that were first seen before `before` and that no live node has. Return how many."""
        return await self._forget(epoch, Verb.old_sets, Verb.forget_sets, before, limit)

    async def forget_events(self, epoch: int, before: float, limit: int) -> int:
        """Remove events that came before `before`, with their keys and takers. Return how many rows of one kind at most."""
        return max(
            await self._forget(epoch, Verb.old_event_keys, Verb.forget_event_keys, before, limit),
            await self._forget(epoch, Verb.old_event_takers, Verb.forget_event_takers, before, limit),
            await self._forget(epoch, Verb.old_events, Verb.forget_events, before, limit),
        )

    async def forget_occasions(self, epoch: int, before: float, limit: int) -> int:
        """Remove occasions that ended before `before`, with what they have collected. Return how many rows of one kind at
        most."""
        return max(
            await self._forget(epoch, Verb.old_collected, Verb.forget_collected, before, limit),
            await self._forget(epoch, Verb.old_occasions, Verb.forget_occasions, before, limit),
        )

    async def _forget(self, epoch: int, find: Verb, forget: Verb, before: float, limit: int) -> int:
        return (
            await self._forget_old(epoch, find, forget, before, limit)
            if await self._any(find, before, 1)
            else 0
        )

    @leading(0)
    async def _forget_old(self, session: Session, find: Verb, forget: Verb, before: float, limit: int) -> int:
        return await session.each(forget, await session.rows(find, before, limit), before)


async def _lock_above(session: Session, run_ids: Sequence[str]) -> dict[str, list[str] | None]:
    """Lock the runs above these that could be retried. Return, for each run that has some, these runs, or None if
    somebody else has locked one of them."""
    pairs = await session.rows(Verb.retryable_above, list(run_ids)) if run_ids else []
    if not pairs:
        return {}
    locked = {row[0] for row in await session.rows(Verb.lock_free_runs, sorted({up for _, up in pairs}))}
    found: dict[str, list[str] | None] = {}
    for run_id, up in pairs:
        known = found.setdefault(run_id, [])
        if known is not None and up in locked:
            known.append(up)
        else:
            found[run_id] = None
    return found
