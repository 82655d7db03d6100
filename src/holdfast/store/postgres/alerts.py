"""Alerts and their outbox. Every write checks its writer's epoch in the same statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import asyncpg

from holdfast.model import Alert, Delivery, NewAlert
from holdfast.store.answers import FailureNote, Late, Route, Sending
from holdfast.store.postgres.pooled import Pooled
from holdfast.store.postgres.verbs import VERBS


def alert_columns(alerts: Sequence[NewAlert]) -> list[list[Any]]:
    """The parameters of `raise_alerts` after the epoch and the failures."""
    return [
        [str(alert.kind) for alert in alerts],
        [str(alert.level) for alert in alerts],
        [alert.key for alert in alerts],
        [alert.run_id for alert in alerts],
        [alert.message for alert in alerts],
        [alert.times for alert in alerts],
    ]


class Alerting(Pooled):
    # --- the leader's part --------------------------------------------------------------------------------------

    async def failures(self, limit: int) -> list[FailureNote]:
        return [FailureNote(*row) for row in await self._fetch(VERBS.failures, limit)]

    async def raise_alerts(
        self, epoch: int, alerts: Sequence[NewAlert], looked_at: Sequence[int] = ()
    ) -> bool:
        rows = await self._fetch(VERBS.raise_alerts, epoch, list(looked_at), *alert_columns(alerts))
        return bool(rows[0][0])

    async def open_alerts(self, limit: int) -> list[Alert]:
        return [Alert(*row) for row in await self._fetch(VERBS.open_alerts, limit)]

    async def open_alerts_of(self, kind: str, after: int, limit: int) -> list[Alert]:
        return [Alert(*row) for row in await self._fetch(VERBS.open_alerts_of, kind, after, limit)]

    async def clear_alerts(self, epoch: int, ids: Sequence[int]) -> int:
        return len(await self._fetch(VERBS.clear_alerts, epoch, list(ids)))

    async def log_alerts(self, epoch: int, limit: int) -> list[Alert]:
        return sorted(
            (Alert(*row) for row in await self._fetch(VERBS.log_alerts, epoch, limit)), key=lambda one: one.id
        )

    async def late_steps(self, bound_s: float, limit: int) -> list[Late]:
        return [Late(*row) for row in await self._fetch(VERBS.late_steps, bound_s, limit)]

    async def late_runs(self, bound_s: float, limit: int) -> list[Late]:
        return [Late(*row) for row in await self._fetch(VERBS.late_runs, bound_s, limit)]

    async def late_wakes(self, bound_s: float, rows_max: int, limit: int) -> list[Late]:
        return [Late(*row) for row in await self._fetch(VERBS.late_wakes, bound_s, rows_max, limit)]

    # --- the outbox ---------------------------------------------------------------------------------------------

    async def unrouted_alerts(self, limit: int) -> list[tuple[int, Alert]]:
        rows = await self._fetch(VERBS.unrouted_alerts, limit)
        return [(row[0], Alert(*tuple(row)[1:])) for row in rows]

    async def route_alerts(self, epoch: int, routes: Sequence[Route]) -> int:
        letters = [(*letter, one.alert_id, one.event) for one in routes for letter in one.deliveries]
        rows = await self._fetch(
            VERBS.route_alerts,
            epoch,
            [one.alert_id for one in routes],
            [one.routed for one in routes],
            [letter[0] for letter in letters],
            [letter[2] for letter in letters],
            [letter[1] for letter in letters],
            [letter[3] for letter in letters],
        )
        return len(rows)

    async def claim_deliveries(self, epoch: int, channel: str, limit: int, hold_s: float) -> list[Sending]:
        rows = await self._fetch(VERBS.claim_deliveries, epoch, channel, limit, hold_s)
        found = [Sending(row[0], row[1], row[2], Alert(*tuple(row)[3:])) for row in rows]
        return sorted(found, key=lambda one: one.id)

    async def end_delivery(
        self, epoch: int, delivery: str, attempt: int, error: str | None, again_s: float | None
    ) -> bool:
        return bool(await self._fetch(VERBS.end_delivery, epoch, delivery, attempt, error, again_s))

    async def expire_deliveries(self, epoch: int, older_s: float) -> int:
        return len(await self._fetch(VERBS.expire_deliveries, epoch, older_s))

    # --- people -------------------------------------------------------------------------------------------------

    async def alerts(self, limit: int = 100) -> list[Alert]:
        return [Alert(*row) for row in await self._fetch(VERBS.alerts, limit)]

    async def deliveries(self, alert_ids: Sequence[int]) -> list[Delivery]:
        return [Delivery(*row) for row in await self._fetch(VERBS.deliveries, list(alert_ids))]

    async def clear_alert(self, alert_id: int, actor: str) -> bool:
        async def run(connection: asyncpg.Connection[Any]) -> bool:
            async with connection.transaction():
                row = await connection.fetchrow(VERBS.clear_alert, alert_id)
                if row is None:
                    return False
                note = f"alert {alert_id}"
                await connection.execute(VERBS.journal_add, actor, "clear", row[0], None, note)
                return True

        return await self._on_pool(run)
