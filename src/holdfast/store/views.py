"""Views: lists of runs to which somebody has given a name. Each token has its own."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.store.database import Noun, Session, look, statement, transaction
from holdfast.store.verbs import Verb


class View(NamedTuple):
    name: str
    query: str
    """What stands after `/runs?` in the address of the list."""


class Views(Noun):
    @look
    async def views(self, session: Session, holder: str, namespace: str) -> list[View]:
        """Return the views of a token in a namespace, by name. An empty holder is whoever needs no token."""
        return [View(*row) for row in await session.rows(Verb.views, holder, namespace)]

    @transaction
    async def save_view(self, session: Session, holder: str, namespace: str, view: View, most: int) -> bool:
        """Save a view, in place of one of the same name. Return False if there are `most` already. Views of tokens that are no
        longer good are removed."""
        await session.run(Verb.sweep_views)
        return bool(await session.run(Verb.save_view, holder, namespace, *view, most))

    @statement
    async def remove_view(self, session: Session, holder: str, namespace: str, name: str) -> int:
        """Remove a view. Return 0 if there was none."""
        return await session.run(Verb.remove_view, holder, namespace, name)
