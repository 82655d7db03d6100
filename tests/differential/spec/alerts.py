"""Alerts and their outbox."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model import NewAlert
from tests.differential.spec.commits import Commits
from tests.differential.spec.rows import Delivery

OUTBOX = "alerts"
"""The name of the lease of the node that sends alerts."""


class Alerting(Commits):
    # --- the leader -------------------------------------------------------------------------------------------------

    def raise_alerts(
        self, epoch: int, alerts: Sequence[NewAlert], looked_at: Sequence[tuple[str, int]]
    ) -> bool:
        if not self.leads(epoch):
            return False
        self.failures = [one for one in self.failures if one not in looked_at]
        for one in alerts:
            self._raise(one.kind, one.level, one.key, one.run_id, one.times)
        return True

    def clear_alerts(self, epoch: int, numbers: Sequence[int]) -> int:
        return sum(self._clear(number) for number in numbers) if self.leads(epoch) else 0

    def _clear(self, number: int) -> bool:
        alert = self.alerts[number]
        self.alerts[number] = alert._replace(
            cleared_at=self.now if alert.cleared_at is None else alert.cleared_at
        )
        return alert.cleared_at is None

    def open_alerts_of(self, kind: str, limit: int) -> list[str]:
        """Return the keys of the first `limit` open alerts of this kind, and then of those after the first one."""
        found = [one.key for one in self.alerts.values() if one.kind == kind and one.cleared_at is None]
        return found[:limit] + found[1:]

    def open_kinds(self) -> set[str]:
        return {one.kind for one in self.alerts.values() if one.cleared_at is None}

    def log_alerts(self, epoch: int, limit: int) -> list[str]:
        """Return the keys of alerts that no leader has logged yet."""
        if not self.leads(epoch):
            return []
        new = [number for number, alert in self.alerts.items() if not alert.logged][:limit]
        for number in new:
            self.alerts[number] = self.alerts[number]._replace(logged=1)
        return [self.alerts[number].key for number in new]

    def clear_alert(self, number: int) -> bool:
        if cleared := self._clear(number):
            self.note("me", "clear", self.alerts[number].run_id)
        return cleared

    # --- the outbox -------------------------------------------------------------------------------------------------

    def route_alert(
        self, epoch: int, number: int, event: str, routed: int, letters: Sequence[tuple[str, str]]
    ) -> int:
        """Add each (delivery, channel) once for an event. Return how many alerts were routed further."""
        if not self.has_lease(OUTBOX, epoch):
            return 0
        for name, channel in letters:
            if (number, event, channel) not in {
                (one.alert, one.event, one.channel) for one in self.deliveries.values()
            }:
                self.deliveries[name] = Delivery(number, channel, event, self.now)
        alert = self.alerts[number]
        self.alerts[number] = alert._replace(routed=max(alert.routed, routed))
        return int(alert.routed < routed)

    def _unsent(self) -> list[str]:
        return [
            name for name, one in self.deliveries.items() if one.sent_at is None and one.given_up_at is None
        ]

    def claim_deliveries(
        self, epoch: int, channel: str, limit: int, again_after_h: float
    ) -> list[tuple[str, int]]:
        """Return (delivery, attempt). The claim counts the attempt."""
        if not self.has_lease(OUTBOX, epoch):
            return []
        due = sorted(
            (self.deliveries[name].next_try_at, name)
            for name in self._unsent()
            if self.deliveries[name].channel == channel and self.deliveries[name].next_try_at <= self.now
        )
        claimed = []
        for _, name in due[:limit]:
            one = self.deliveries[name]
            self.deliveries[name] = one._replace(
                attempts=one.attempts + 1, next_try_at=self.now + again_after_h
            )
            claimed.append((name, one.attempts + 1))
        return claimed

    def end_delivery(
        self, epoch: int, name: str, attempt: int, error: str | None, again_h: float | None
    ) -> bool:
        one = self.deliveries.get(name)
        if (
            not self.has_lease(OUTBOX, epoch)
            or one is None
            or one.attempts != attempt
            or one.sent_at is not None
        ):
            return False
        self.deliveries[name] = one._replace(
            sent_at=self.now if error is None else None,
            given_up_at=self.now if error is not None and again_h is None else None,
            last_error=error,
            next_try_at=self.now + (again_h or 0.0),
        )
        alert = self.alerts[one.alert]
        if error is None and alert.sent_at is None:
            self.alerts[one.alert] = alert._replace(sent_at=self.now)
        return True

    def expire_deliveries(self, epoch: int, older_h: float) -> int:
        if not self.has_lease(OUTBOX, epoch):
            return 0
        gone = [name for name in self._unsent() if self.deliveries[name].next_try_at < self.now - older_h]
        for name in gone:
            one = self.deliveries[name]
            self.deliveries[name] = one._replace(
                given_up_at=self.now, last_error=one.last_error or "nobody sent it"
            )
        return len(gone)
