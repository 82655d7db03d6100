"""What the Supervisor may do. Every write is in the transaction that found its epoch current."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from holdfast.config import Config
from holdfast.model import NEVER, StepState
from holdfast.store.answers import Reclaimed
from holdfast.store.offline import offline
from holdfast.store.protocol import GONE, LAPSED, LEFT
from holdfast.store.remedies import Held, Loss, Remedy, lost, overdue, remedy
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import fetch
from holdfast.store.sqlite.verbs import VERBS


class Supervising(Dialect):
    async def lead(self, node: str, lease_s: float, lease: str = "leader") -> int | None:
        async with self._database.transaction() as connection:
            row = connection.execute(VERBS.leader, (lease,)).get
            if row is not None and row[0] == node and self._clock.take_over(connection):
                row = connection.execute(VERBS.leader, (lease,)).get
            now = self._clock.now()
            holder, epoch, expires_at = row[:3] if row else (None, 0, 0.0)
            if holder is not None and expires_at > now:
                if holder != node:
                    seen = connection.execute(VERBS.node, (holder,)).get
                    ended = seen is not None and (seen[1] is not None or seen[2] is not None)
                    if not ended and not self._liveness.is_gone(holder):
                        return None
                    epoch += 1
            else:
                epoch += 1
            connection.execute(VERBS.lead, (node, epoch, now, now + lease_s, lease))
            return int(epoch)

    async def resign(self, node: str) -> None:
        async with self._database.transaction() as connection:
            connection.execute(VERBS.resign, (self._clock.now(), node))

    async def dead_nodes(self) -> list[tuple[str, str]]:
        now = self._clock.now()
        dead = []
        async with self._database.reading() as connection:
            live = fetch(connection, VERBS.live_nodes)
            holders = [row[0] for row in connection.execute(VERBS.holders)]
        for node, lease_until, gone_at in live:
            if gone_at is not None or self._liveness.is_gone(node):
                dead.append((node, GONE))
            elif lease_until < now:
                dead.append((node, LAPSED))
        known = {node for node, _, _ in live}
        # Found by what is held, whatever the node's row says: a paused process may claim after it was buried.
        dead += [(node, LEFT) for node in holders if node not in known]
        return dead

    async def reclaim(
        self, node: str, epoch: int, reason: str, losses_max: int, limit: int
    ) -> Reclaimed | None:
        async with self._database.transaction() as connection:
            now = self._clock.now()
            if not connection.execute(VERBS.leads, (epoch, now)).get:
                return None
            seen = connection.execute(VERBS.node, (node,)).get
            if reason == LAPSED and seen is not None and seen[1] is None and seen[0] >= now:
                return Reclaimed(0, 0, 0)
            runs = [(row[0], node) for row in connection.execute(VERBS.owned_by, (node, limit))]
            connection.executemany(VERBS.free_runs, runs)
            steps = fetch(connection, VERBS.held_by, (node, limit))
            config = msgspec.structs.replace(self._config, losses_max=losses_max)
            remedies = self._reclaim_steps(connection, steps, lost(node, reason), config, now)
            failed = sum(one.state is StepState.FAILED for one in remedies)
            poison = sum(one.fingerprint is not None for one in remedies)
            done = len(runs) < limit and len(steps) < limit
            before = connection.total_changes()
            if done:
                connection.execute(VERBS.retire, (now, node))
            retired = connection.total_changes() > before
            if runs or steps or retired:
                note = (
                    f"{len(runs)} runs freed, {len(steps)} steps taken back, {failed} of them failed, "
                    f"{poison} in quarantine"
                )
                self._journal(connection, "supervisor", "reclaim", f"node {node}: {reason}: {note}")
                place = connection.execute(VERBS.place, (node,)).get
                if retired and place is not None:
                    told = offline(node, f"{reason}: {note}", place)
                    row = (now, told.kind, told.level, told.key, told.run_id, told.message, told.times)
                    connection.execute(VERBS.raise_alerts, row)
        if done:
            self._liveness.let_go(node)
        return Reclaimed(len(runs), len(steps), failed, poison)

    def _reclaim_steps(
        self,
        connection: apsw.Connection,
        steps: Sequence[tuple[str, int, int]],
        loss: Loss,
        config: Config,
        now: float,
    ) -> list[Remedy]:
        """Take steps from their agents, with what follows by their policies."""
        random = self._environment.random
        remedies = []
        for step in steps:
            (row,) = fetch(connection, VERBS.counters, step)
            remedies.append(remedy(Held(*step, *row), loss, now=now, random=random, config=config))
        told = loss.told
        connection.executemany(VERBS.keep_attempt, [(*step, loss.ending, told, now) for step in steps])
        connection.executemany(
            VERBS.reclaim_steps,
            [
                (
                    one.state,
                    NEVER if one.fingerprint is not None else now + one.after_s,
                    now if one.state is StepState.FAILED else None,
                    told if one.is_told else None,
                    one.losses,
                    one.timeouts,
                    *step,
                )
                for step, one in zip(steps, remedies, strict=True)
            ],
        )
        ended = [one for one in remedies if one.is_told]
        connection.executemany(VERBS.note_failures, [one.step[:2] for one in ended])
        poison = [
            (*one.step[:2], one.fingerprint, one.step.name) for one in ended if one.fingerprint is not None
        ]
        connection.executemany(VERBS.list_quarantined, [(*one, loss.kind, loss.place, now) for one in poison])
        connection.executemany(
            VERBS.journal_add,
            [
                (now, "supervisor", "quarantine", run_id, n, f"{alike} {loss.place}")
                for run_id, n, alike, _ in poison
            ],
        )
        return remedies

    async def close_signals(self, epoch: int, limit: int) -> int:
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.late_signals, (1,)):
                return 0
        async with self._database.transaction() as connection:
            if not connection.execute(VERBS.leads, (epoch, self._clock.now())).get:
                return 0
            late = fetch(connection, VERBS.late_signals, (limit,))
            connection.executemany(VERBS.close_signals, late)
            return len(late)

    async def end_overdue(self, epoch: int, grace_s: float, limit: int) -> int:
        async with self._database.reading() as connection:
            before = self._clock.now() - grace_s
            agents = [row[0] for row in connection.execute(VERBS.holders)]
            if not any(fetch(connection, VERBS.overdue_steps, (agent, before, 1)) for agent in agents):
                return 0
        async with self._database.transaction() as connection:
            now = self._clock.now()
            if not connection.execute(VERBS.leads, (epoch, now)).get:
                return 0
            late: list[tuple[str, int, int]] = []
            for agent in agents:
                room = limit - len(late)
                late += fetch(connection, VERBS.overdue_steps, (agent, now - grace_s, room))
            self._reclaim_steps(connection, late, overdue(), self._config, now)
            connection.executemany(
                VERBS.journal_add,
                [(now, "supervisor", "end_overdue", run_id, n, "attempt overdue") for run_id, n, _ in late],
            )
            return len(late)
