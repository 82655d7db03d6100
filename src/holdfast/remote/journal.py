"""The journal desk of a server, over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.access import Identity
from holdfast.desk.journal import EVERYTHING
from holdfast.model import JournalEntry
from holdfast.remote import rows
from holdfast.remote.runs import PAGE
from holdfast.remote.transport import Transport
from holdfast.store.reads import JournalFilter
from holdfast.wire import answers


class RemoteJournalDesk:
    """A journal desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, who: Identity, limit: int, where: JournalFilter = EVERYTHING) -> list[JournalEntry]:
        sought = {name: value for name, value in msgspec.structs.asdict(where).items() if value}
        query = {"limit": min(limit, PAGE), **sought}
        found = await self._transport.get(who, "/v1/journal", answers.Journal, query)
        return [rows.entry(one) for one in found.items]
