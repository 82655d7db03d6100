"""Alerts and their outbox. The leader raises, logs and clears alerts. The holder of the lease `alerts` routes and sends
them. People read them, and may clear them."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.actor import entry
from holdfast.model import Alert, AlertKind, Delivery, DueRun, DueStep, NewAlert, RunState, StepState
from holdfast.store.answers import AlertRoute, DueDelivery, FailureNote, Late
from holdfast.store.database import Noun, Row, Session, leading, look, transaction
from holdfast.store.leader import Leases
from holdfast.store.rows import alert_row
from holdfast.store.verbs import Verb

ALERTS = "alerts"
"""The name of the lease of the node that sends alerts."""


class LeaderAlerts(Noun):
    @look
    async def failures(self, session: Session, limit: int) -> list[FailureNote]:
        """Return failures that no leader has looked at yet, oldest first."""
        return [FailureNote(*row) for row in await session.rows(Verb.failures, limit)]

    @leading(False)
    async def raise_alerts(
        self, session: Session, alerts: Sequence[NewAlert], looked_at: Sequence[int] = ()
    ) -> bool:
        """Raise these alerts, and forget the failures that they came from. An alert whose key is already open is only
        counted. Return False if the epoch is over."""
        await session.each(Verb.forget_failures, [(one,) for one in looked_at])
        await session.each(Verb.raise_alerts, [alert_row(alert) for alert in alerts])
        return True

    @look
    async def open_kinds(self, session: Session) -> set[str]:
        """Return the kinds of which there is an open alert."""
        return {kind for (kind,) in await session.rows(Verb.open_kinds, sorted(AlertKind))}

    @look
    async def open_alerts_of(self, session: Session, kind: str, after: int, limit: int) -> list[Alert]:
        """Return open alerts of this kind with ids above `after`, in the order of their ids."""
        return [Alert(*row) for row in await session.rows(Verb.open_alerts_of, kind, after, limit)]

    @leading(0)
    async def clear_alerts(self, session: Session, ids: Sequence[int]) -> int:
        """Clear these alerts. Return how many of them were open."""
        return await session.each(Verb.clear_alerts, [(one,) for one in ids])

    async def log_alerts(self, epoch: int, limit: int) -> list[Alert]:
        """Return alerts that no leader has logged yet, and note that this one logs them. So each is returned once."""
        return await self._log_alerts(epoch, limit) if await self._any(Verb.unlogged_alerts, 1) else []

    @leading([])
    async def _log_alerts(self, session: Session, limit: int) -> list[Alert]:
        found = [Alert(*row) for row in await session.rows(Verb.unlogged_alerts, limit)]
        await session.each(Verb.log_alerts, [(alert.id,) for alert in found])
        return found

    @look
    async def late_steps(self, session: Session, bound_s: float, limit: int) -> list[Late]:
        """Return the step of each lane and priority that waits longest for an agent, if longer than `bound_s`."""
        return [Late(*row) for row in await session.rows(Verb.late_steps, bound_s, limit)]

    @look
    async def late_runs(self, session: Session, bound_s: float, limit: int) -> list[Late]:
        """Return the run of each workflow, version and priority that waits longest for a scheduler, if longer than
        `bound_s`."""
        return [Late(*row) for row in await session.rows(Verb.late_runs, bound_s, limit)]

    @look
    async def late_wakes(self, session: Session, bound_s: float, rows_max: int, limit: int) -> list[Late]:
        """Return, for each workflow and version, the begun run without an owner that waits longest for a scheduler to
        deliver something to it, if longer than `bound_s`. At most `rows_max` outcomes, signals and timers each are
        looked at."""
        return [Late(*row) for row in await session.rows(Verb.late_wakes, bound_s, rows_max, limit)]

    async def any_promised(self) -> bool:
        """True if something open was promised to end at some time."""
        return await self._any(Verb.any_promised)

    @look
    async def promised_runs(self, session: Session, after: tuple[float, str], limit: int) -> list[DueRun]:
        """Return open runs that were promised to end at some time, those that are due first, from `after` (due_at, id) on."""
        return [_due_run(row) for row in await session.rows(Verb.promised_runs, *after, limit)]

    @look
    async def promised_runs_of(self, session: Session, ids: Sequence[str]) -> list[DueRun]:
        """Return those of these runs that are open and were promised to end at some time."""
        return [_due_run(row) for row in await session.rows(Verb.promised_runs_of, list(ids))]

    @look
    async def promised_steps(
        self, session: Session, after: tuple[float, str, int], limit: int
    ) -> list[DueStep]:
        """Return open steps that were promised to end at some time, those that are due first, from `after` (due_at, run_id,
        n) on."""
        return [_due_step(row) for row in await session.rows(Verb.promised_steps, *after, limit)]

    @look
    async def promised_steps_of(self, session: Session, steps: Sequence[tuple[str, int]]) -> list[DueStep]:
        """Return those of these steps (run_id, n) that are open and were promised to end at some time."""
        ids, numbers = [one[0] for one in steps], [one[1] for one in steps]
        return [_due_step(row) for row in await session.rows(Verb.promised_steps_of, ids, numbers)]

    @leading(0)
    async def raise_late(self, session: Session, alerts: Sequence[tuple[NewAlert, int | None]]) -> int:
        """Raise these alerts about runs and steps (n) that are late. One about what has ended meanwhile is left out, and so is
        one that is open already. Return how many were raised."""
        return await session.each(
            Verb.raise_late,
            [(one.kind, one.level, one.key, one.run_id, n, one.message) for one, n in alerts],
        )


def _due_run(row: Row) -> DueRun:
    run_id, workflow, state, *rest = row
    return DueRun(run_id, workflow, RunState(state), *rest)


def _due_step(row: Row) -> DueStep:
    run_id, n, key, name, state, *rest = row
    return DueStep(run_id, n, key, name, StepState(state), *rest)


class OutboxAlerts(Leases):
    """What the holder of the lease `alerts` may do."""

    @look
    async def unrouted_alerts(self, session: Session, limit: int) -> list[tuple[int, Alert]]:
        """Return (how far it is routed, alert) of alerts that have something to send, oldest first."""
        rows = await session.rows(Verb.unrouted_alerts, limit)
        return [(routed, Alert(*alert)) for routed, *alert in rows]

    @leading(0, ALERTS)
    async def route_alerts(self, session: Session, routes: Sequence[AlertRoute]) -> int:
        """Add the deliveries of these alerts. Return how many alerts were routed further by this."""
        changed = await session.each(Verb.route_alerts, [(one.alert_id, one.routed) for one in routes])
        await session.each(
            Verb.add_deliveries,
            [
                (delivery, one.alert_id, channel, one.event)
                for one in routes
                for delivery, channel in one.deliveries
            ],
        )
        return changed

    async def claim_deliveries(
        self, epoch: int, channel: str, limit: int, again_after_s: float
    ) -> list[DueDelivery]:
        """Claim deliveries that are due. The attempt is counted now. If nobody ends the delivery within
        `again_after_s`, it is due again."""
        if not await self._any(Verb.due_deliveries, channel, 1):
            return []
        return await self._claim_deliveries(epoch, channel, limit, again_after_s)

    @leading([], ALERTS)
    async def _claim_deliveries(
        self, session: Session, channel: str, limit: int, again_after_s: float
    ) -> list[DueDelivery]:
        due = await session.rows(Verb.due_deliveries, channel, limit)
        await session.each(Verb.claim_deliveries, [(row[0],) for row in due], again_after_s)
        return [DueDelivery(row[0], row[1], row[2], Alert(*row[3:])) for row in map(tuple, due)]

    @leading(False, ALERTS)
    async def end_delivery(
        self, session: Session, delivery: str, attempt: int, error: str | None, again_s: float | None
    ) -> bool:
        """Record how an attempt to send ended. It was sent if there is no error. Otherwise it is tried again after
        `again_s`, or given up if that is None."""
        ended = await session.row(Verb.end_delivery, delivery, attempt, error, again_s)
        if ended is None:
            return False
        alert_id, sent_at = ended
        if sent_at is not None:
            await session.run(Verb.note_sent, alert_id, sent_at)
        return True

    @leading(0, ALERTS)
    async def expire_deliveries(self, session: Session, older_s: float) -> int:
        """Give up deliveries that have been due for longer than `older_s`: their channel must be gone. Return how
        many."""
        return await session.run(Verb.expire_deliveries, older_s)


class Alerts(LeaderAlerts, OutboxAlerts):
    @look
    async def alerts(self, session: Session, limit: int = 100, namespace: str | None = None) -> list[Alert]:
        """Return alerts, cleared ones too, newest first: those of this namespace, or of the whole store."""
        if namespace is not None:
            return [Alert(*row) for row in await session.rows(Verb.alerts_in, limit, namespace)]
        return [Alert(*row) for row in await session.rows(Verb.alerts, limit)]

    @look
    async def open_alerts(self, session: Session, limit: int, namespace: str | None = None) -> list[Alert]:
        """Return open alerts, newest first: those of this namespace, or of the whole store."""
        if namespace is not None:
            return [Alert(*row) for row in await session.rows(Verb.open_alerts_in, limit, namespace)]
        return [Alert(*row) for row in await session.rows(Verb.open_alerts, limit)]

    @look
    async def deliveries(self, session: Session, alert_ids: Sequence[int]) -> list[Delivery]:
        """Return the deliveries of these alerts, oldest first: their ids rise with time."""
        return [Delivery(*row) for row in await session.rows(Verb.deliveries, list(alert_ids))]

    @transaction
    async def clear_alert(
        self, session: Session, alert_id: int, actor: str, namespace: str | None = None
    ) -> bool:
        """Clear an alert for an operator. Return False if it is not open, or not in this namespace."""
        if namespace is not None and await session.row(Verb.alert_in, alert_id, namespace) is None:
            return False
        cleared = await session.all(Verb.clear_alerts, [(alert_id,)])
        if not cleared:
            return False
        await session.each(
            Verb.journal_add, [entry(actor, "clear", cleared[0][0], None, f"alert {alert_id}")]
        )
        return True
