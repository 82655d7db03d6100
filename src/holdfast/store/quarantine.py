"""Quarantine: which steps are in it, what an operator decides about them, and runs that are stuck until then."""

from __future__ import annotations

from holdfast.actor import entry
from holdfast.model import Poison, Quarantined
from holdfast.store.database import Noun, Session, leading, look, transaction
from holdfast.store.verbs import Verb


class LeaderQuarantine(Noun):
    @look
    async def quarantine(self, session: Session, limit: int, namespace: str | None = None) -> list[Poison]:
        """Return what is in quarantine, grouped by fingerprint, the oldest first: in this namespace, or everywhere."""
        return [Poison(*row) for row in await session.rows(Verb.quarantine, limit, namespace)]

    async def stick_quarantined(self, epoch: int, limit: int) -> int:
        """Make runs stuck that wait for nothing but steps in quarantine. Return how many. Steps that have left
        quarantine are removed from its list."""
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
        # Lock the rows and look again, because the owners may have advanced the runs meanwhile.
        await session.rows(Verb.lock_runs, found)
        still = [row[0] for row in await session.rows(Verb.unmoving_runs, found, limit)]
        stuck = [row[0] for row in await session.rows(Verb.stick_runs, still)]
        note = "the run waits for nothing but steps in quarantine"
        await session.each(
            Verb.journal_add, [entry("supervisor", "stick", run_id, None, note) for run_id in stuck]
        )
        return len(stuck)


class Quarantine(LeaderQuarantine):
    @look
    async def quarantined(self, session: Session, run_id: str) -> list[Quarantined]:
        """Return the run's steps in quarantine."""
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
        namespace: str | None = None,
    ) -> int:
        """Apply an operator's decision to up to `limit` steps in quarantine. Return how many.

        It is about steps that went into quarantine until `before`, with this fingerprint if one is given, and of this
        run and in this namespace if those are given. `act` is one of: `release` them with fresh budgets, `skip` them with this result, `fail`
        them. Their runs go on.
        """
        return await resolve(
            session,
            act,
            fingerprint=fingerprint,
            run_id=run_id,
            before=before,
            result=result,
            actor=actor,
            note=note,
            limit=limit,
            namespace=namespace,
        )


async def resolve(
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
    namespace: str | None = None,
) -> int:
    """Apply a decision to steps in quarantine. See `resolve_quarantine`."""
    found = await session.rows(Verb.to_resolve, fingerprint, run_id, before, limit, namespace)
    # A run that the operator named goes on even if none of its steps is in quarantine any more.
    runs = sorted({row[0] for row in found} | ({run_id} if run_id is not None else set()))
    await session.rows(Verb.lock_runs, runs)
    done = await session.all(Verb.resolve_steps, [(row[0], row[1]) for row in found], act, result)
    await session.each(Verb.forget_quarantined, done)
    await session.run(Verb.unstick_quarantined, runs)
    fingerprints = {(row[0], row[1]): row[2] for row in found}
    entries = [entry(actor, act, run, n, f"{fingerprints[run, n]} {note}".rstrip()) for run, n in done]
    await session.each(Verb.journal_add, entries)
    return len(done)
