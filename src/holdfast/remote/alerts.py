"""The alert desk of a server, over HTTP."""

from __future__ import annotations

from holdfast.access import Identity
from holdfast.desk.alerts import AlertSeen
from holdfast.remote import rows
from holdfast.remote.transport import Transport
from holdfast.wire import answers


class RemoteAlertDesk:
    """An alert desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def clear(self, who: Identity, alert: int) -> bool:
        return (await self._transport.post(who, f"/v1/alerts/{alert}/clear", answers.Cleared)).cleared

    async def list(self, who: Identity, *, everything: bool, limit: int) -> list[AlertSeen]:
        found = await self._transport.get(
            who, "/v1/alerts", answers.Alerts, {"all": everything, "limit": limit}
        )
        seen = []
        for one in found.items:
            row, deliveries = rows.alert(one)
            seen.append(AlertSeen(row, one.message, deliveries))
        return seen
