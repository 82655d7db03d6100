"""Leading, and what the leader does about nodes that are gone and attempts that are overdue.

The supervisor decides which nodes are gone and what becomes of each step. It passes functions for that, which are
called when the rows are locked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.actor import entry
from holdfast.model import LeaderLease, NewAlert, NodeRow, StepState
from holdfast.store.answers import Duties, LostStep, Reclaimed, Remedy, SeenNode
from holdfast.store.database import LEADER, Noun, Session, leading, look, statement, transaction
from holdfast.store.rows import alert_row
from holdfast.store.verbs import Verb

ALIVE_MAX = 10_000
"""How many nodes at most are asked for their processes. They are all on one host."""

Judge = Callable[[SeenNode | None, float], str | None]
"""Returns why a node is gone at this time, or None if it is not. The node is None if only a step or a run still names
it as its agent or owner."""
PrescribeAt = Callable[[LostStep, str, float], Remedy]
"""Returns what becomes of a step whose node is gone for this reason, at this time."""
Prescribe = Callable[[LostStep, float], Remedy]
"""Returns what becomes of a step that is taken away from its agent at this time."""
Announce = Callable[[SeenNode, str], NewAlert]
"""Returns the alert about a node that is gone. The text says what the leader did."""


class Leases(Noun):
    async def now(self) -> float:
        """Return the store's time."""
        return await self._database.now()

    @transaction
    async def lead(self, session: Session, node: str, lease_s: float, lease: str = LEADER) -> int | None:
        """Take or renew the lease with this name. Return the epoch, or None if another node has the lease. If the
        process of its holder is gone, the lease can be taken at once."""
        row = await session.row(Verb.leader, lease)
        if row is not None and row[0] == node:
            await session.follow_clock()
        elif row is not None and self._database.processes.is_gone(row[0]):
            await session.run(Verb.say_gone, row[0])
        epoch: int | None = await session.value(Verb.lead, node, lease_s, lease)
        return epoch

    @look
    async def leader(self, session: Session) -> LeaderLease | None:
        row = await session.row(Verb.leader, LEADER)
        return None if row is None else LeaderLease(*row)

    @statement
    async def resign(self, session: Session, node: str) -> None:
        """Give up every named lease that this node has."""
        await session.run(Verb.resign, node)


class Leader(Leases):
    @look
    async def duties(self, session: Session, grace_s: float, window_s: float) -> Duties:
        """Return what there is to do. An attempt is overdue `grace_s` after its time, and a breaker looks back over
        `window_s`."""
        (row,) = await session.rows(Verb.duties, grace_s, window_s)
        return Duties(*row)

    @look
    async def doubtful_nodes(self, session: Session) -> list[str]:
        """Return nodes that may be gone: their lease has run out, their process is gone, or they left and still have a
        step or a run. A lost connection does not count, because the process may still be there."""
        processes = self._database.processes
        found = [row[0] for row in await session.rows(Verb.lapsed_nodes)]
        if processes.are_visible:
            alive = [NodeRow(*row).id for row in await session.rows(Verb.living, ALIVE_MAX)]
            found += [node for node in alive if node not in found and processes.is_gone(node)]
        if busy := [row[0] for row in await session.rows(Verb.busy_nodes)]:
            found += [row[0] for row in await session.rows(Verb.strangers, busy)]
        return found

    async def reclaim(
        self,
        epoch: int,
        node: str,
        judge: Judge,
        prescribe: PrescribeAt,
        announce: Announce,
        limit: int,
    ) -> Reclaimed | None:
        """Reclaim the runs and steps of a node that is gone, and raise their fences. Return None if the epoch is over.

        Nothing is done if `judge` finds that the node is alive. At most `limit` runs and `limit` steps are reclaimed:
        call this again until nothing is left.
        """
        done = await self._reclaim(epoch, node, judge, prescribe, announce, limit)
        if done is not None and done.is_retired:
            self._database.processes.let_go(node)
        return done

    @leading(None)
    async def _reclaim(
        self,
        session: Session,
        node: str,
        judge: Judge,
        prescribe: PrescribeAt,
        announce: Announce,
        limit: int,
    ) -> Reclaimed | None:
        if self._database.processes.is_gone(node):
            await session.run(Verb.say_gone, node)
        row = await session.row(Verb.lock_node, node)
        seen, now = None if row is None else SeenNode(*row), await session.now()
        why = judge(seen, now)
        if why is None:
            return Reclaimed(0, 0, 0)
        # Lock the rows first, because what becomes of a run is decided by what its owner has written last.
        await session.rows(Verb.owned_by, node, limit)
        runs = await session.run(Verb.free_runs, node, limit)
        lost = [LostStep(*one) for one in await session.rows(Verb.lost_by, node, limit)]
        remedies = [prescribe(step, why, now) for step in lost]
        await _apply(session, remedies)
        retired = bool(await session.run(Verb.retire_reclaimed, node))
        failed = sum(one.state is StepState.FAILED for one in remedies)
        quarantined = sum(one.quarantine is not None for one in remedies)
        if runs or lost or retired:
            note = f"{why}: {runs} runs freed, {len(lost)} steps reclaimed, {failed} of them failed, {quarantined} in quarantine"
            said = entry("supervisor", "reclaim", None, None, f"node {node}: {note}")
            await session.each(Verb.journal_add, [said])
            if retired and seen is not None:
                await session.each(Verb.raise_alerts, [alert_row(announce(seen, note))])
        return Reclaimed(runs, len(lost), failed, quarantined, retired)

    async def end_overdue(self, epoch: int, grace_s: float, prescribe: Prescribe, limit: int) -> int:
        """Take steps away from agents whose attempts have been overdue for more than `grace_s`. Return how many."""
        if not await self._any(Verb.overdue_steps, grace_s, 1):
            return 0
        return await self._end_overdue(epoch, grace_s, prescribe, limit)

    @leading(0)
    async def _end_overdue(self, session: Session, grace_s: float, prescribe: Prescribe, limit: int) -> int:
        overdue = [LostStep(*row) for row in await session.rows(Verb.overdue_steps, grace_s, limit)]
        now = await session.now()
        await _apply(session, [prescribe(step, now) for step in overdue])
        entries = [
            entry("supervisor", "end_overdue", step.run_id, step.n, "attempt overdue") for step in overdue
        ]
        await session.each(Verb.journal_add, entries)
        return len(overdue)

    async def close_signals(self, epoch: int, limit: int) -> int:
        """Mark signals that came too late for their runs, which have ended. So nobody looks at them again. Return how
        many."""
        return await self._close_signals(epoch, limit) if await self._any(Verb.late_signals, 1) else 0

    @leading(0)
    async def _close_signals(self, session: Session, limit: int) -> int:
        return await session.each(Verb.close_signals, await session.rows(Verb.late_signals, limit))


async def _apply(session: Session, remedies: Sequence[Remedy]) -> None:
    """Apply these remedies to their steps, whose rows are locked."""
    remedies = sorted(remedies, key=lambda one: (one.step.run_id, one.step.n))
    places = [(one.step.run_id, one.step.n, one.step.fence) for one in remedies]
    kept = [(*place, one.ending, one.error) for place, one in zip(places, remedies, strict=True)]
    await session.each(Verb.keep_attempts, kept)
    await session.each(
        Verb.reclaim_steps,
        [
            (
                *place,
                one.state,
                one.after_s if one.quarantine is None else None,
                one.losses,
                one.timeouts,
                one.error if one.needs_person else None,
            )
            for place, one in zip(places, remedies, strict=True)
        ],
    )
    poison = [one.quarantine for one in remedies if one.quarantine is not None]
    await session.each(
        Verb.list_quarantined,
        [(one.run_id, one.n, one.fingerprint, one.step, one.error, one.place) for one in poison],
    )
    await session.each(
        Verb.journal_add,
        [
            entry("supervisor", "quarantine", one.run_id, one.n, f"{one.fingerprint} {one.place}")
            for one in poison
        ],
    )
    failures = [(one.step.run_id, one.step.n) for one in remedies if one.needs_person]
    await session.each(Verb.note_failures, failures)
