"""The trigger desk of a server, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from holdfast.access import Identity
from holdfast.errors import UnknownOccasion
from holdfast.remote.transport import Transport
from holdfast.wire import requests
from holdfast.wire import triggers as answers
from holdfast.wire.paths import path_of

LIST_MAX = 200


class RemoteTriggerDesk:
    """A trigger desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def list(self, who: Identity, after: str = "", limit: int = LIST_MAX) -> list[answers.Trigger]:
        query = {"limit": min(limit, LIST_MAX), "after": after or None}
        return (await self._transport.get(who, "/v1/triggers", answers.Triggers, query)).items

    async def occasions(
        self,
        who: Identity,
        trigger: str | None = None,
        state: str | None = None,
        before: float = 1e11,
        limit: int = 50,
    ) -> Sequence[answers.Occasion]:
        query = {
            "limit": min(limit, LIST_MAX),
            "trigger": trigger,
            "state": state,
            "before": datetime.fromtimestamp(before, UTC).isoformat() if before < 1e11 else None,
        }
        return (await self._transport.get(who, "/v1/occasions", answers.Occasions, query)).items

    async def occasion(self, who: Identity, occasion: str) -> answers.Occasion:
        return await self._transport.get(
            who,
            f"/v1/occasions/{path_of(occasion)}",
            answers.Occasion,
            unknown=lambda: UnknownOccasion.of(occasion),
        )

    async def start(self, who: Identity, occasion: str, note: str = "") -> answers.Occasion:
        return await self._ended(who, occasion, f"/v1/occasions/{path_of(occasion)}/start", note)

    async def drop(self, who: Identity, occasion: str, note: str = "") -> answers.Occasion:
        return await self._ended(who, occasion, f"/v1/occasions/{path_of(occasion)}/drop", note)

    async def _ended(self, who: Identity, occasion: str, path: str, note: str) -> answers.Occasion:
        return await self._transport.post(
            who,
            path,
            answers.Occasion,
            requests.Noted(note=note),
            unknown=lambda: UnknownOccasion.of(occasion),
        )
