"""Alerts and their outbox. Every write is in the transaction that found the writer's epoch current."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from holdfast.model import Alert, Delivery, NewAlert
from holdfast.store.answers import FailureNote, Late, Route, Sending
from holdfast.store.sqlite.dialect import Dialect
from holdfast.store.sqlite.rows import fetch
from holdfast.store.sqlite.verbs import VERBS


class Alerting(Dialect):
    def _holds(self, connection: apsw.Connection, lease: str, epoch: int) -> bool:
        return bool(connection.execute(VERBS.holds_lease, (lease, epoch, self._clock.now())).get)

    # --- the leader's part --------------------------------------------------------------------------------------

    async def failures(self, limit: int) -> list[FailureNote]:
        async with self._database.reading() as connection:
            return [FailureNote(*row) for row in fetch(connection, VERBS.failures, (limit,))]

    async def raise_alerts(
        self, epoch: int, alerts: Sequence[NewAlert], looked_at: Sequence[int] = ()
    ) -> bool:
        async with self._database.transaction() as connection:
            if not self._holds(connection, "leader", epoch):
                return False
            connection.executemany(VERBS.forget_failures, [(one,) for one in looked_at])
            connection.executemany(VERBS.raise_alerts, [self._row(alert) for alert in alerts])
            return True

    def _row(self, alert: NewAlert) -> tuple[object, ...]:
        now = self._clock.now()
        return (now, alert.kind, alert.level, alert.key, alert.run_id, alert.message, alert.times)

    async def open_alerts(self, limit: int) -> list[Alert]:
        async with self._database.reading() as connection:
            return [Alert(*row) for row in fetch(connection, VERBS.open_alerts, (limit,))]

    async def open_alerts_of(self, kind: str, after: int, limit: int) -> list[Alert]:
        async with self._database.reading() as connection:
            return [Alert(*row) for row in fetch(connection, VERBS.open_alerts_of, (kind, after, limit))]

    async def clear_alerts(self, epoch: int, ids: Sequence[int]) -> int:
        async with self._database.transaction() as connection:
            if not self._holds(connection, "leader", epoch):
                return 0
            now = self._clock.now()
            return sum(len(fetch(connection, VERBS.clear_alert, (now, one))) for one in ids)

    async def log_alerts(self, epoch: int, limit: int) -> list[Alert]:
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.unlogged_alerts, (1,)):
                return []
        async with self._database.transaction() as connection:
            if not self._holds(connection, "leader", epoch):
                return []
            rows = fetch(connection, VERBS.unlogged_alerts, (limit,))
            connection.executemany(VERBS.log_alerts, [(row[0],) for row in rows])
            return [Alert(*row) for row in rows]

    async def late_steps(self, bound_s: float, limit: int) -> list[Late]:
        async with self._database.reading() as connection:
            before = self._clock.now() - bound_s
            return [Late(*row) for row in fetch(connection, VERBS.late_steps, (before, limit))]

    async def late_runs(self, bound_s: float, limit: int) -> list[Late]:
        async with self._database.reading() as connection:
            before = self._clock.now() - bound_s
            return [Late(*row) for row in fetch(connection, VERBS.late_runs, (before, limit))]

    async def late_wakes(self, bound_s: float, rows_max: int, limit: int) -> list[Late]:
        async with self._database.reading() as connection:
            before = self._clock.now() - bound_s
            return [Late(*row) for row in fetch(connection, VERBS.late_wakes, (before, rows_max, limit))]

    # --- the outbox ---------------------------------------------------------------------------------------------

    async def unrouted_alerts(self, limit: int) -> list[tuple[int, Alert]]:
        async with self._database.reading() as connection:
            return [(row[0], Alert(*row[1:])) for row in fetch(connection, VERBS.unrouted_alerts, (limit,))]

    async def route_alerts(self, epoch: int, routes: Sequence[Route]) -> int:
        async with self._database.transaction() as connection:
            if not self._holds(connection, "alerts", epoch):
                return 0
            now = self._clock.now()
            before = connection.total_changes()
            connection.executemany(VERBS.route_alerts, [(one.alert_id, one.routed) for one in routes])
            changed = connection.total_changes() - before
            rows = [
                (delivery, one.alert_id, channel, one.event, now)
                for one in routes
                for delivery, channel in one.deliveries
            ]
            connection.executemany(VERBS.add_deliveries, rows)
            return changed

    async def claim_deliveries(self, epoch: int, channel: str, limit: int, hold_s: float) -> list[Sending]:
        async with self._database.reading() as connection:
            if not fetch(connection, VERBS.due_deliveries, (channel, self._clock.now(), 1)):
                return []
        async with self._database.transaction() as connection:
            if not self._holds(connection, "alerts", epoch):
                return []
            now = self._clock.now()
            rows = fetch(connection, VERBS.due_deliveries, (channel, now, limit))
            connection.executemany(VERBS.claim_deliveries, [(now + hold_s, row[0]) for row in rows])
            return [Sending(row[0], row[1], row[2], Alert(*row[3:])) for row in rows]

    async def end_delivery(
        self, epoch: int, delivery: str, attempt: int, error: str | None, again_s: float | None
    ) -> bool:
        async with self._database.transaction() as connection:
            if not self._holds(connection, "alerts", epoch):
                return False
            now = self._clock.now()
            sent_at = now if error is None else None
            given_up_at = now if error is not None and again_s is None else None
            ended = (sent_at, given_up_at, error, now + (again_s or 0.0), delivery, attempt)
            rows = fetch(connection, VERBS.end_delivery, ended)
            if rows and sent_at is not None:
                connection.execute(VERBS.told_alert, (sent_at, rows[0][0]))
            return bool(rows)

    async def expire_deliveries(self, epoch: int, older_s: float) -> int:
        async with self._database.transaction() as connection:
            if not self._holds(connection, "alerts", epoch):
                return 0
            now = self._clock.now()
            before = connection.total_changes()
            connection.execute(VERBS.expire_deliveries, (now, now - older_s))
            return connection.total_changes() - before

    # --- people -------------------------------------------------------------------------------------------------

    async def alerts(self, limit: int = 100) -> list[Alert]:
        async with self._database.reading() as connection:
            return [Alert(*row) for row in fetch(connection, VERBS.alerts, (limit,))]

    async def deliveries(self, alert_ids: Sequence[int]) -> list[Delivery]:
        async with self._database.reading() as connection:
            rows = [row for one in alert_ids for row in fetch(connection, VERBS.deliveries, (one,))]
        return [Delivery(*row) for row in sorted(rows)]

    async def clear_alert(self, alert_id: int, actor: str) -> bool:
        async with self._database.transaction() as connection:
            rows = fetch(connection, VERBS.clear_alert, (self._clock.now(), alert_id))
            if rows:
                self._journal(connection, actor, "clear", f"alert {alert_id}", rows[0][0])
            return bool(rows)
