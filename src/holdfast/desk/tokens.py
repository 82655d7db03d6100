"""Tokens, for administrators: make, rotate, revoke and list them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import msgspec

from holdfast.access import Act, Identity, Role
from holdfast.access.tokens import ID_BYTES, SECRET_BYTES, TokenText, make
from holdfast.desk.opened import Opened
from holdfast.model import NewToken, TokenRow
from holdfast.store.store import Store


class TokenMade(NamedTuple):
    token: TokenRow
    secret: str
    """The token's text, which nobody can read again."""


class TokenDesk(Protocol):
    """What administrators may ask about tokens. `token` is an id."""

    async def create(self, who: Identity, new: NewToken) -> TokenMade: ...
    async def rotate(
        self, who: Identity, token: str, grace_s: float, expires_s: float | None
    ) -> TokenMade: ...
    async def revoke(self, who: Identity, token: str) -> bool: ...
    async def list(self, who: Identity, limit: int) -> list[TokenRow]: ...


class LocalTokenDesk:
    """A token desk that works on the store."""

    def __init__(self, hf: Opened) -> None:
        self._hf = hf

    @property
    def _store(self) -> Store:
        return self._hf.store

    async def create(self, who: Identity, new: NewToken) -> TokenMade:
        """Make a token. Its id and its secret are made here."""
        who.demand(Act.ADMINISTER)
        token = self._new_token(Role(new.role))
        await self._store.tokens.add_token(
            msgspec.structs.replace(new, id=token.id, digest=token.digest), who.actor
        )
        return await self._made(token)

    async def rotate(self, who: Identity, token: str, grace_s: float, expires_s: float | None) -> TokenMade:
        """Give a token another secret. The old one works on for `grace_s`."""
        who.demand(Act.ADMINISTER)
        found = await self._store.tokens.token(token)
        fresh = self._new_token(Role.VIEWER if found is None else Role(found.role))._replace(id=token)
        await self._store.tokens.rotate_token(
            token, fresh.digest, grace_s=grace_s, expires_s=expires_s, actor=who.actor
        )
        return await self._made(fresh)

    def _new_token(self, role: Role) -> TokenText:
        return make(role, self._hf.environment.secret(ID_BYTES), self._hf.environment.secret(SECRET_BYTES))

    async def _made(self, token: TokenText) -> TokenMade:
        row = await self._store.tokens.token(token.id)
        assert row is not None
        return TokenMade(row, token.text)

    async def revoke(self, who: Identity, token: str) -> bool:
        """Revoke a token for good. Return False if it was revoked before."""
        who.demand(Act.ADMINISTER)
        return await self._store.tokens.revoke_token(token, who.actor)

    async def list(self, who: Identity, limit: int) -> list[TokenRow]:
        """Return the tokens, newest first."""
        who.demand(Act.ADMINISTER)
        return await self._store.tokens.tokens(limit)
