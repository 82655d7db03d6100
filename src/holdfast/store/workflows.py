"""What code declares, and who publishes which names."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import astuple

from holdfast.model import Declaration
from holdfast.store.answers import Rival
from holdfast.store.database import Part, Processes, Session, look
from holdfast.store.origins import Offers, demand_names
from holdfast.store.verbs import Verb

DECLARED = Declaration.__struct_fields__.index("first_at")
"""What code says stands before what the store notes."""
NOTED_EVERY_S = 3600.0
"""That something was declared once more is written down this often at most: processes that come and go write nothing."""


class Workflows(Part):
    @look
    async def declared(self, session: Session, run_id: str) -> Declaration | None:
        """What code declares of an open run's workflow. None when nobody did, or the run is not open."""
        row = await session.row(Verb.declared, run_id)
        return None if row is None else Declaration(*row)

    @look
    async def workflows(self, session: Session, limit: int) -> list[Declaration]:
        """All that is declared, by name."""
        return [Declaration(*row) for row in await session.rows(Verb.workflows, limit)]

    @look
    async def rivals(self, session: Session, code: str, node: str = "") -> list[Rival]:
        """Live nodes that publish something else than `code` (see `claims`), but for `node`."""
        return await _rivals(session, self._database.processes, code, node)


async def declare(
    session: Session, processes: Processes, node: str, claims: Offers, declared: Sequence[Declaration]
) -> None:
    """Enter what a node declares, unless its names are taken. In the transaction of its registration."""
    if claims.code:
        await session.in_turn()
        demand_names(claims, await _rivals(session, processes, claims.code, node))
    rows = [astuple(one)[:DECLARED] for one in declared]
    await session.each(Verb.declare, rows, NOTED_EVERY_S)


async def _rivals(session: Session, processes: Processes, code: str, node: str) -> list[Rival]:
    rows = await session.rows(Verb.rivals, code, node)
    return [Rival(*about) for other, *about in rows if not processes.is_gone(other)]
