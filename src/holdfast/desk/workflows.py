"""Workflows, for callers and operators: what code has declared about them."""

from __future__ import annotations

from typing import Protocol

from holdfast.access import Act, Identity
from holdfast.desk.filters import demand_workflow
from holdfast.desk.opened import Opened
from holdfast.errors import UnknownWorkflow
from holdfast.model import Declaration
from holdfast.store.store import Store

WORKFLOWS_MAX = 1000
"""How many declarations are read to find one by its name."""
NAMESPACES_MAX = 1000
"""For how many namespaces declarations are remembered."""
DECLARED_S = 1.0
"""For how long the declarations in the store are remembered: a start need not read them again."""


class WorkflowDesk(Protocol):
    """What callers and operators may ask about workflows. `name` is as the identity sees it."""

    async def demand(self, who: Identity, name: str) -> None: ...
    async def get(self, who: Identity, name: str) -> list[Declaration]: ...
    async def list(self, who: Identity) -> list[Declaration]: ...


class LocalWorkflowDesk:
    """A workflow desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf
        self._declared: dict[str | None, tuple[float, list[Declaration]]] = {}
        """What code has declared in each namespace, and when that was read."""

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def declared(self, who: Identity) -> list[Declaration]:
        """Return what code has declared in the namespace of the identity."""
        now = self._hf.environment.monotonic()
        read_at, found = self._declared.get(who.namespace, (float("-inf"), []))
        if now > read_at + DECLARED_S:
            if len(self._declared) > NAMESPACES_MAX:
                self._declared.clear()
            found = await self._store.workflows.workflows(WORKFLOWS_MAX, who.namespace)
            self._declared[who.namespace] = self._hf.environment.monotonic(), found
        return found

    async def demand(self, who: Identity, name: str) -> None:
        """Raise UnknownWorkflow if no run has this workflow, and no code has declared it."""
        who.demand(Act.READ)
        await demand_workflow(self._store, name, who.namespace)

    async def get(self, who: Identity, name: str) -> list[Declaration]:
        """Return the declarations of all versions of a workflow, the newest first."""
        found = [one for one in await self.list(who) if one.name == name]
        if not found:
            raise UnknownWorkflow(f"no workflow is called {name!r} here")
        return sorted(found, key=lambda one: (one.first_at, one.version), reverse=True)

    async def list(self, who: Identity) -> list[Declaration]:
        who.demand(Act.READ_WORKFLOWS)
        return [one for one in await self.declared(who) if who.may_start(one.name)]
