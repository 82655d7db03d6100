"""The workflow desk of a server, over HTTP."""

from __future__ import annotations

from holdfast.access import Identity
from holdfast.desk.filters import unknown_workflow
from holdfast.errors import UnknownWorkflow
from holdfast.model import Declaration
from holdfast.remote import rows
from holdfast.remote.runs import RemoteRunDesk
from holdfast.remote.transport import Transport
from holdfast.store.reads import RunFilter
from holdfast.wire import answers
from holdfast.wire.paths import path_of


class RemoteWorkflowDesk:
    """A workflow desk that asks a server."""

    def __init__(self, transport: Transport, runs: RemoteRunDesk) -> None:
        self._transport, self._runs = transport, runs

    async def demand(self, who: Identity, name: str) -> None:
        known = sorted({one.name for one in await self.list(who)})
        if any(one == name or one.endswith(f".{name}") for one in known):
            return
        if not await self._runs.list(who, RunFilter(workflow=name, limit=1)):
            raise unknown_workflow(name, known)

    async def get(self, who: Identity, name: str) -> list[Declaration]:
        found = await self._transport.get(
            who,
            f"/v1/workflows/{path_of(name)}",
            answers.WorkflowVersions,
            unknown=lambda: UnknownWorkflow(f"no workflow is called {name!r} there"),
        )
        return [rows.declaration(one) for one in found.versions]

    async def list(self, who: Identity) -> list[Declaration]:
        return [
            rows.declaration(one)
            for one in (await self._transport.get(who, "/v1/workflows", answers.Workflows)).items
        ]
