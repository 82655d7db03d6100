"""Alerts, for operators: list and clear them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from holdfast.access import Act, Identity
from holdfast.desk.journal import listed_in
from holdfast.desk.opened import Opened
from holdfast.model import Alert, Delivery
from holdfast.namespaces import shown_row, shown_text
from holdfast.store.store import Store
from holdfast.supervisor.alerts import in_words


class AlertSeen(NamedTuple):
    alert: Alert
    words: str
    """The alert as one line."""
    deliveries: list[Delivery]


class AlertDesk(Protocol):
    """What operators may ask about alerts."""

    async def clear(self, who: Identity, alert: int) -> bool: ...
    async def list(self, who: Identity, *, everything: bool, limit: int) -> list[AlertSeen]: ...


class LocalAlertDesk:
    """An alert desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def clear(self, who: Identity, alert: int) -> bool:
        """Clear an alert. Return False if it is not open."""
        who.demand(Act.STEER)
        for namespace in listed_in(who):
            if await self._store.alerts.clear_alert(alert, who.actor, namespace):
                return True
        return False

    async def list(self, who: Identity, *, everything: bool, limit: int) -> list[AlertSeen]:
        """Return open alerts, newest first, or also those that are cleared."""
        who.demand(Act.READ)
        nouns, namespace = self._store.alerts, who.namespace
        read = nouns.alerts if everything else nouns.open_alerts
        found = [alert for one in listed_in(who) for alert in await read(limit, one)]
        found = sorted(found, key=lambda alert: alert.id, reverse=True)[:limit]
        sent = await nouns.deliveries([alert.id for alert in found])
        return [
            AlertSeen(
                msgspec.structs.replace(
                    shown_row(namespace, one),
                    key=shown_text(namespace, one.key),
                    message=shown_text(namespace, one.message),
                ),
                shown_text(namespace, in_words(one)),
                [each for each in sent if each.alert_id == one.id],
            )
            for one in found
        ]
