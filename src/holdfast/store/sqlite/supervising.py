"""What the Supervisor may do. Every write is in the transaction that found its epoch current."""

from __future__ import annotations

import json

from holdfast.store.offline import offline
from holdfast.store.protocol import Reclaimed
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import fetch
from holdfast.store.sqlite.verbs import VERBS

OVERDUE_BACK_OFF_S = 1.0
"""A step whose attempt hung is not started again in the same instant."""


class Supervising(Dialect):
    async def lead(self, node: str, lease_s: float, lease: str = "leader") -> int | None:
        async with self._database.transaction() as connection:
            now = self._environment.now()
            row = connection.execute(VERBS.leader, (lease,)).get
            holder, epoch, expires_at = row[:3] if row else (None, 0, 0.0)
            if holder is not None and expires_at > now:
                if holder != node:
                    seen = connection.execute(VERBS.node, (holder,)).get
                    retired = seen is not None and seen[1] is not None
                    if not retired and not self._liveness.is_gone(holder):
                        return None
                    epoch += 1
            else:
                epoch += 1
            connection.execute(VERBS.lead, (node, epoch, now, now + lease_s, lease))
            return int(epoch)

    async def resign(self, node: str) -> None:
        async with self._database.transaction() as connection:
            connection.execute(VERBS.resign, (self._environment.now(), node))

    async def dead_nodes(self, grace_s: float) -> list[tuple[str, str]]:
        """`grace_s` is not needed here: a file lock is lost only with its process, never to reconnect."""
        now = self._environment.now()
        dead = []
        async with self._database.reading() as connection:
            live = fetch(connection, VERBS.live_nodes)
            holders = [row[0] for row in connection.execute(VERBS.holders)]
        for node, lease_until in live:
            if lease_until < now:
                dead.append((node, "its lease ran out"))
            elif self._liveness.is_gone(node):
                dead.append((node, "its process is gone"))
        known = {node for node, _ in live}
        # Found by what is held, whatever the node's row says: a paused process may claim after it was buried.
        dead += [(node, "it left and still holds something") for node in holders if node not in known]
        return dead

    async def bury(self, node: str, epoch: int, reason: str, losses_max: int, limit: int) -> Reclaimed | None:
        async with self._database.transaction() as connection:
            now = self._environment.now()
            if not connection.execute(VERBS.leading, (epoch, now)).get:
                return None
            runs = [(row[0], node) for row in connection.execute(VERBS.owned_by, (node, limit))]
            connection.executemany(VERBS.free_runs, runs)
            steps = fetch(connection, VERBS.held_by, (node, limit))
            error = json.dumps(
                {
                    "type": "holdfast.errors.StepLost",
                    "message": f"agent {node} was lost: {reason}",
                    "ending": "lost",
                }
            )
            connection.executemany(VERBS.keep_attempt, [(*step, "lost", error, now) for step in steps])
            states = connection.executemany(
                VERBS.reclaim_steps, [(now, losses_max, error, *step) for step in steps]
            ).fetchall()
            failures = [step[:2] for step, (state,) in zip(steps, states, strict=True) if state == "failed"]
            failed = len(failures)
            connection.executemany(VERBS.note_failures, failures)
            done = len(runs) < limit and len(steps) < limit
            before = connection.total_changes()
            if done:
                connection.execute(VERBS.retire, (now, node))
            retired = connection.total_changes() > before
            if runs or steps or retired:
                note = f"{len(runs)} runs freed, {len(steps)} steps taken back, {failed} of them failed"
                self._journal(connection, "supervisor", "bury", f"node {node}: {reason}: {note}")
                place = connection.execute(VERBS.place, (node,)).get
                if retired and place is not None:
                    told = offline(node, f"{reason}: {note}", place)
                    row = (now, told.kind, told.level, told.key, told.run_id, told.message, told.times)
                    connection.execute(VERBS.raise_alerts, row)
        if done:
            self._liveness.let_go(node)
        return Reclaimed(len(runs), len(steps), failed)

    async def hush_signals(self, epoch: int, limit: int) -> int:
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.late_signals, (1,)):
                return 0
        async with self._database.transaction() as connection:
            if not connection.execute(VERBS.leading, (epoch, self._environment.now())).get:
                return 0
            late = fetch(connection, VERBS.late_signals, (limit,))
            connection.executemany(VERBS.hush_signals, late)
            return len(late)

    async def end_overdue(self, epoch: int, grace_s: float, limit: int) -> int:
        async with self._database.reading() as connection:
            before = self._environment.now() - grace_s
            agents = [row[0] for row in connection.execute(VERBS.holders)]
            if not any(fetch(connection, VERBS.overdue_steps, (agent, before, 1)) for agent in agents):
                return 0
        error = json.dumps(
            {
                "type": "holdfast.errors.StepTimeout",
                "message": "the attempt did not complete in time, and its agent did not say so",
                "ending": "timed out",
            }
        )
        async with self._database.transaction() as connection:
            now = self._environment.now()
            if not connection.execute(VERBS.leading, (epoch, now)).get:
                return 0
            overdue: list[tuple[str, int, int]] = []
            for agent in agents:
                room = limit - len(overdue)
                overdue += fetch(connection, VERBS.overdue_steps, (agent, now - grace_s, room))
            connection.executemany(VERBS.keep_attempt, [(*step, "timed out", error, now) for step in overdue])
            ended = connection.executemany(
                VERBS.time_out_steps, [(now, now + OVERDUE_BACK_OFF_S, error, *step) for step in overdue]
            ).fetchall()
            connection.executemany(VERBS.note_failures, [row[:2] for row in ended if row[2] == "failed"])
            connection.executemany(
                VERBS.journal_add,
                [
                    (now, "supervisor", "end_overdue", run_id, n, "attempt overdue")
                    for run_id, n, _ in overdue
                ],
            )
            return len(overdue)
