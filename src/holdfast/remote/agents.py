"""The agent desk of a server, over HTTP."""

from __future__ import annotations

from holdfast.access import Identity
from holdfast.desk.agents import AgentsSeen, LaneSeen
from holdfast.model import Lane
from holdfast.remote import rows
from holdfast.remote.transport import Transport
from holdfast.store.answers import Backlog
from holdfast.supervisor.health import examine
from holdfast.wire import answers


class RemoteAgentDesk:
    """An agent desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def lanes(self, who: Identity) -> list[LaneSeen]:
        found = await self._transport.get(who, "/v1/lanes", answers.Lanes)
        return [
            LaneSeen(
                Lane(one.id, one.step, tuple(one.needs), one.undo, one.depends),
                Backlog(one.ready, rows.maybe(one.since)),
            )
            for one in found.items
        ]

    async def list(self, who: Identity, *, everything: bool = False) -> AgentsSeen:
        found = await self._transport.get(who, "/v1/agents", answers.Agents, {"all": everything})
        now = self._transport.environment.now() if found.now is None else rows.at(found.now)
        nodes = [examine(rows.node(one), (one.has, one.runs), now) for one in found.items]
        return AgentsSeen(nodes, rows.leader(found.leader), now)
