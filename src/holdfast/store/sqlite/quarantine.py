"""Steps that wait for a person: the list by fingerprint, what an operator decides, and runs that cannot go on without it."""

from __future__ import annotations

from holdfast.model import Poison, Quarantined
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import fetch
from holdfast.store.sqlite.verbs import VERBS


class Quarantining(Dialect):
    async def quarantine(self, limit: int) -> list[Poison]:
        async with self._database.reading() as connection:
            return [Poison(*row) for row in fetch(connection, VERBS.quarantine, (limit,))]

    async def quarantined(self, run_id: str) -> list[Quarantined]:
        async with self._database.reading() as connection:
            return [Quarantined(*row) for row in fetch(connection, VERBS.quarantined, (run_id,))]

    async def resolve_quarantine(
        self,
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
        async with self._database.transaction() as connection:
            now = self._clock.now()
            found = fetch(connection, VERBS.to_resolve, (fingerprint, run_id, before, limit))
            steps = [row[:2] for row in found]
            if act == "release":
                connection.executemany(VERBS.release_step, [(now, *step) for step in steps])
            elif act == "skip":
                connection.executemany(VERBS.skip_step, [(now, result, *step) for step in steps])
            else:
                connection.executemany(VERBS.fail_step, [(now, *step) for step in steps])
            connection.executemany(VERBS.forget_quarantined, steps)
            # A run that was named goes on even if it has none: an operator's word gets it going, whatever came between.
            runs = {step[0] for step in steps} | ({run_id} if run_id is not None else set())
            connection.executemany(VERBS.unstick_quarantined, [(one,) for one in sorted(runs)])
            connection.executemany(
                VERBS.journal_add,
                [(now, actor, act, run, n, f"{alike} {note}".rstrip()) for run, n, alike in found],
            )
            return len(found)

    async def stick_quarantined(self, epoch: int, limit: int) -> int:
        async with self._database.reading() as connection:
            asked = (VERBS.stale_quarantined, VERBS.unmoving_runs)
            if not any(fetch(connection, verb, (1,)) for verb in asked):
                return 0
        async with self._database.transaction() as connection:
            now = self._clock.now()
            if not connection.execute(VERBS.leads, (epoch, now)).get:
                return 0
            stale = fetch(connection, VERBS.stale_quarantined, (limit,))
            connection.executemany(VERBS.forget_quarantined, stale)
            runs = fetch(connection, VERBS.unmoving_runs, (limit,))
            connection.executemany(VERBS.stick_run, runs)
            note = "nothing is left to wait for but steps in quarantine"
            connection.executemany(
                VERBS.journal_add, [(now, "supervisor", "stick", run_id, None, note) for (run_id,) in runs]
            )
            return len(runs)
