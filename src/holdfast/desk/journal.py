"""The journal, for operators: who did what, and why."""

from __future__ import annotations

from typing import Protocol

import msgspec

from holdfast.access import Act, Identity
from holdfast.desk.opened import Opened
from holdfast.model import JournalEntry
from holdfast.namespaces import shown_row, shown_text
from holdfast.store.reads import JournalFilter
from holdfast.store.store import Store

EVERYTHING = JournalFilter()
WHOLE_STORE = ""
"""The namespace of alerts and entries of the journal that are about the store as a whole."""


class JournalDesk(Protocol):
    """What operators may ask about the journal."""

    async def list(
        self, who: Identity, limit: int, where: JournalFilter = EVERYTHING
    ) -> list[JournalEntry]: ...


class LocalJournalDesk:
    """A journal desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def list(self, who: Identity, limit: int, where: JournalFilter = EVERYTHING) -> list[JournalEntry]:
        who.demand(Act.AUDIT)
        found: list[JournalEntry] = []
        for one in listed_in(who):
            if where == EVERYTHING:
                found += await self._store.reads.journal(None, limit, one)
            else:
                found += await self._store.reads.journal_found(where, limit, one)
        return entries(who, sorted(found, key=lambda entry: entry.id, reverse=True)[:limit])


def listed_in(who: Identity) -> list[str | None]:
    """Return where to read what is listed for an identity. Who has all namespaces also sees what is said about the store
    as a whole, which is in none. None stands for all of it."""
    if who.namespace is None or not who.has_all:
        return [who.namespace]
    return [who.namespace, WHOLE_STORE]


def entries(who: Identity, rows: list[JournalEntry]) -> list[JournalEntry]:
    """Return entries of the journal with the names that the identity sees."""
    return [
        msgspec.structs.replace(shown_row(who.namespace, row), note=shown_text(who.namespace, row.note))
        for row in rows
    ]
