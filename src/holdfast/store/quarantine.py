"""Steps that wait for a person: the list by fingerprint, what an operator decides, and runs that cannot go on without it."""

from __future__ import annotations

from holdfast.model import Poison, Quarantined
from holdfast.store.database import Part, Session, leading, look, transaction
from holdfast.store.verbs import Verb


class LeaderQuarantine(Part):
    @look
    async def quarantine(self, session: Session, limit: int) -> list[Poison]:
        """What is in quarantine, by fingerprint, the oldest first."""
        return [Poison(*row) for row in await session.rows(Verb.quarantine, limit)]

    async def stick_quarantined(self, epoch: int, limit: int) -> int:
        """Runs in which nothing but steps in quarantine is left to wait for become stuck; how many. What is listed as in
        quarantine and is not any more goes from the list."""
        if not await self._any(Verb.unmoving_runs, None, 1) and not await self._any(
            Verb.stale_quarantined, 1
        ):
            return 0
        return await self._stick_quarantined(epoch, limit)

    @leading(0)
    async def _stick_quarantined(self, session: Session, limit: int) -> int:
        await session.each(Verb.forget_quarantined, await session.rows(Verb.stale_quarantined, limit))
        found = [row[0] for row in await session.rows(Verb.unmoving_runs, None, limit)]
        if not found:
            return 0
        # With their rows locked, looked at again: their owners may have gone on meanwhile.
        await session.rows(Verb.lock_runs, found)
        still = [row[0] for row in await session.rows(Verb.unmoving_runs, found, limit)]
        stuck = [row[0] for row in await session.rows(Verb.stick_runs, still)]
        note = "nothing is left to wait for but steps in quarantine"
        await session.each(
            Verb.journal_add, [("supervisor", "stick", run_id, None, note) for run_id in stuck]
        )
        return len(stuck)


class Quarantine(LeaderQuarantine):
    @look
    async def quarantined(self, session: Session, run_id: str) -> list[Quarantined]:
        """The run's steps in quarantine."""
        return [Quarantined(*row) for row in await session.rows(Verb.quarantined, run_id)]

    @transaction
    async def resolve_quarantine(
        self,
        session: Session,
        act: str,
        *,
        fingerprint: str | None,
        run_id: str | None,
        before: float,
        result: bytes,
        actor: str,
        note: str,
        limit: int,
    ) -> int:
        """Decide about up to `limit` steps that went into quarantine before `before`, those with this fingerprint, of this
        run: `release` them with fresh budgets, `skip` them with this result, or `fail` them. Their runs go on. How many."""
        found = await session.rows(Verb.to_resolve, fingerprint, run_id, before, limit)
        # A run that was named goes on even if it has none: an operator's word gets it going, whatever came between.
        runs = sorted({row[0] for row in found} | ({run_id} if run_id is not None else set()))
        await session.rows(Verb.lock_runs, runs)
        done = await session.all(Verb.resolve_steps, [(row[0], row[1]) for row in found], act, result)
        await session.each(Verb.forget_quarantined, done)
        await session.run(Verb.unstick_quarantined, runs)
        alike = {(row[0], row[1]): row[2] for row in found}
        said = [(actor, act, run, n, f"{alike[run, n]} {note}".rstrip()) for run, n in done]
        await session.each(Verb.journal_add, said)
        return len(done)
