"""The journal desk of a server, over HTTP."""

from __future__ import annotations

from holdfast.access import Identity
from holdfast.model import JournalEntry
from holdfast.remote import rows
from holdfast.remote.runs import PAGE
from holdfast.remote.transport import Transport
from holdfast.wire import answers


class RemoteJournalDesk:
    """A journal desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, who: Identity, limit: int) -> list[JournalEntry]:
        found = await self._transport.get(who, "/v1/journal", answers.Journal, {"limit": min(limit, PAGE)})
        return [rows.entry(one) for one in found.items]
