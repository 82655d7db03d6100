"""Which run an identity means. A run in another namespace is unknown, like one that does not exist."""

from __future__ import annotations

from holdfast.access import Identity, Kind
from holdfast.desk.opened import Opened
from holdfast.errors import UnknownRun
from holdfast.model import RunRow, StepRow
from holdfast.namespaces import namespace_of, stored
from holdfast.store.store import Store

PAGE = 1000
"""How many steps are read at once."""


class KnownRuns:
    """Finds runs in the store, for those who see them."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def row(self, who: Identity, run: str) -> RunRow:
        """Return the run. A run in another namespace is unknown."""
        if may_exist(run):
            for stored in candidates(who, run):
                row = await self._store.reads.run(stored)
                if row is not None and who.sees(row.namespace):
                    return row
        raise UnknownRun.of(run)

    async def id(self, who: Identity, run: str) -> str:
        """Return the id that the store has for the run."""
        return (await self.row(who, run)).id

    async def named(self, who: Identity, run: str) -> str:
        """Return the id that the store has for the run. For a program on the store, the act itself finds out whether
        there is such a run."""
        if not may_exist(run):
            raise UnknownRun.of(run)
        if who.kind is not Kind.LOCAL:
            return (await self.row(who, run)).id
        found = stored(who.namespace, run)
        if who.namespace is not None and namespace_of(found) != who.namespace:
            raise UnknownRun.of(run)
        return found

    async def steps(self, stored: str) -> list[StepRow]:
        """Return all steps of the run that the store has under this id."""
        found: list[StepRow] = []
        while True:
            page = await self._store.reads.steps(stored, after=found[-1].n if found else 0, limit=PAGE)
            found += page
            if len(page) < PAGE:
                return found


def may_exist(run_id: object) -> bool:
    """True if a store can be asked for this id: it must be a text that both dialects can store."""
    try:
        return isinstance(run_id, str) and b"\0" not in run_id.encode()
    except UnicodeEncodeError:
        return False


def candidates(who: Identity, run: str) -> list[str]:
    """Return the ids under which the store may have the run. Before namespaces were walls, runs in them had bare ids."""
    found = stored(who.namespace, run)
    return [found] if found == run else [found, run]
