"""The overview of a server's store: the same protocol as `LocalOverview`, over HTTP."""

from __future__ import annotations

import msgspec

from holdfast.access import Identity
from holdfast.decider.undo_plan import PlannedUndo
from holdfast.desk.attention import ATTENTION, AttentionList
from holdfast.desk.backlog import BacklogList
from holdfast.desk.overview import Asked, Explained, Listed, SearchResult
from holdfast.desk.stats import Stats, StatsAsked
from holdfast.remote import rows
from holdfast.remote.runs import RemoteRunDesk, part_of
from holdfast.remote.transport import Transport
from holdfast.store.reads import RunFilter
from holdfast.timeline import Timeline
from holdfast.wire import answers


class RemoteOverview:
    """An overview that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def why(self, who: Identity, run: str) -> Explained:
        return await part_of(self._transport, who, run, "/why", Explained)

    async def attention(self, who: Identity, limit: int = ATTENTION) -> AttentionList:
        return await self._transport.get(who, "/v1/attention", AttentionList, {"limit": limit})

    async def backlog(self, who: Identity) -> BacklogList:
        return await self._transport.get(who, "/v1/backlog", BacklogList)

    async def stats(self, who: Identity, asked: StatsAsked = StatsAsked()) -> Stats:  # noqa: B008
        query = {"window": f"{asked.window_s:.0f}s", "by": asked.by, "workflow": asked.workflow}
        return await self._transport.get(who, "/v1/stats", Stats, query)

    async def listed(self, who: Identity, where: RunFilter, *, words: bool) -> list[Listed]:
        found = await RemoteRunDesk(self._transport).listed(who, where, eta=True, words=words)
        return [Listed(rows.run(one), rows.eta(one.eta), one.words or "") for one in found]

    async def search(self, who: Identity, text: str) -> SearchResult:
        return await self._transport.get(who, "/v1/search", SearchResult, {"q": text})

    async def timeline(self, who: Identity, run: str, asked: Asked = Asked()) -> Timeline:  # noqa: B008
        query = {"only": asked.only, "group": asked.group, "after": asked.after}
        return await part_of(self._transport, who, run, "/timeline", Timeline, query)

    async def undo_plan(self, who: Identity, run: str) -> list[PlannedUndo]:
        found = await part_of(self._transport, who, run, "/undo", answers.UndoPlan)
        return [PlannedUndo(*msgspec.structs.astuple(one)) for one in found.items]
