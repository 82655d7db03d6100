"""Views: lists of runs to which somebody has given a name. Everybody has their own, by the token with which they ask; all who
need no token share theirs."""

from __future__ import annotations

from typing import Protocol

from holdfast.access import Act, Identity
from holdfast.codec import stored_text
from holdfast.desk.opened import Opened
from holdfast.errors import InvalidInput, WrongState
from holdfast.model import DEFAULT_NAMESPACE
from holdfast.store.views import View

VIEWS_MAX = 50
"""How many views a token may have in a namespace. They stand side by side on one page."""


class ViewDesk(Protocol):
    """What people may ask about their own views."""

    async def list(self, who: Identity) -> list[View]: ...
    async def save(self, who: Identity, view: View) -> View: ...
    async def remove(self, who: Identity, name: str) -> bool: ...


class LocalViewDesk:
    """A view desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    async def list(self, who: Identity) -> list[View]:
        """Return the identity's own views, by name."""
        who.demand(Act.READ)
        return await self._hf.store.views.views(who.id, _namespace(who))

    async def save(self, who: Identity, view: View) -> View:
        """Save a view, in place of one of the same name."""
        who.demand(Act.READ)
        made = View(stored_text(view.name, "name").strip(), stored_text(view.query, "query"))
        if not made.name:
            raise InvalidInput("name: give the view a name")
        if not await self._hf.store.views.save_view(who.id, _namespace(who), made, VIEWS_MAX):
            raise WrongState(f"there are {VIEWS_MAX} views already: remove one of them first")
        return made

    async def remove(self, who: Identity, name: str) -> bool:
        """Remove a view. Return False if there was none of this name."""
        who.demand(Act.READ)
        return bool(
            await self._hf.store.views.remove_view(who.id, _namespace(who), stored_text(name, "name"))
        )


def _namespace(who: Identity) -> str:
    return who.namespace or DEFAULT_NAMESPACE
