"""What the code of nodes declares about workflows, and which nodes publish which names."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from holdfast.model import Declaration
from holdfast.namespaces import parted
from holdfast.store.answers import Rival
from holdfast.store.database import Noun, Processes, Session, look, transaction
from holdfast.store.origins import Offers, demand_names
from holdfast.store.verbs import Verb

DECLARED = Declaration.__struct_fields__.index("first_at")
"""How many fields of a declaration come from the code. The store itself keeps the times in the fields after them."""
NOTED_EVERY_S = 3600.0
"""How often the store notes at most that something was declared again. So processes that come and go write nothing."""


class Workflows(Noun):
    @look
    async def declared(self, session: Session, run_id: str) -> Declaration | None:
        """Return what code declares about the workflow of an open run. None if nobody declared it, or the run has
        ended."""
        row = await session.row(Verb.declared, run_id)
        return None if row is None else Declaration(*row)

    @look
    async def declaration(self, session: Session, name: str, version: str) -> Declaration | None:
        """Return what code declares about this version of a workflow, by its stored name. None if nobody declared
        it."""
        row = await session.row(Verb.declaration, *parted(name), version)
        return None if row is None else Declaration(*row)

    @look
    async def workflows(
        self, session: Session, limit: int, namespace: str | None = None
    ) -> list[Declaration]:
        """Return all declarations, by name, or those that hold in this namespace. `*` is declared for all."""
        return [Declaration(*row) for row in await session.rows(Verb.workflows, limit, namespace)]

    @look
    async def graphless(self, session: Session, limit: int) -> list[tuple[str, str, str, str]]:
        """Return namespace, name, version and digest of declarations that have no graph of their code."""
        return [tuple(row) for row in await session.rows(Verb.graphless, limit)]

    @transaction
    async def set_graphs(self, session: Session, graphs: Sequence[tuple[str, str, str, str, str]]) -> int:
        """Write graphs of workflows: namespace, name, version, digest of the code, and the graph. One of code that has been
        replaced meanwhile is not written. Return how many were."""
        return sum([await session.run(Verb.set_graph, *graph) for graph in sorted(graphs)])

    @look
    async def drawn(self, session: Session, name: str, version: str) -> str | None:
        """Return the graph of this version of a workflow, by its stored name, as JSON. None if nobody has drawn it."""
        row = await session.row(Verb.drawn, *parted(name), version)
        return None if row is None else row[0]

    @look
    async def rivals(self, session: Session, code: str, node: str = "") -> list[Rival]:
        """Return live nodes, other than `node`, whose published code differs from `code` (see `Offers.code`)."""
        return await _rivals(session, self._database.processes, code, node)


async def declare(
    session: Session, processes: Processes, node: str, offers: Offers, declared: Sequence[Declaration]
) -> None:
    """Write what a node declares. Raise NameTaken if another application has one of its names. Called in the
    transaction that registers the node, and that keeps others from registering."""
    if offers.code:
        demand_names(offers, await _rivals(session, processes, offers.code, node))
    rows = [astuple(one)[:DECLARED] for one in declared]
    await session.each(Verb.declare, rows, NOTED_EVERY_S)


async def _rivals(session: Session, processes: Processes, code: str, node: str) -> list[Rival]:
    rows = await session.rows(Verb.rivals, code, node)
    return [Rival(*columns) for other, *columns in rows if not processes.is_gone(other)]
