"""Tokens: who may speak to a server. Their secrets are in no row, only digests of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.actor import entry, way
from holdfast.errors import WrongState
from holdfast.model import NewToken, TokenRow
from holdfast.namespaces import stored
from holdfast.store.database import Noun, Session, look, statement, transaction
from holdfast.store.rows import token_of
from holdfast.store.verbs import Verb

NOTED_EVERY_S = 3600.0
"""How often the store notes at most that a token was used. So using one costs no write."""


class RefusedEntry(NamedTuple):
    """Requests of somebody that a server has refused, as one entry of the journal."""

    actor: str
    namespace: str | None
    """The namespace of whoever asked, if it is one. None puts the entry where only those see it who see the whole store."""
    note: str


class Tokens(Noun):
    async def now(self) -> float:
        """Return the store's time, by which tokens expire."""
        return await self._database.now()

    @look
    async def token(self, session: Session, token_id: str) -> TokenRow | None:
        row = await session.row(Verb.token, token_id)
        return None if row is None else token_of(row)

    @look
    async def these_tokens(self, session: Session, ids: Sequence[str]) -> list[TokenRow]:
        """Return those of these tokens that there are."""
        return [token_of(row) for row in await session.rows(Verb.these_tokens, list(ids))]

    @look
    async def tokens(self, session: Session, limit: int) -> list[TokenRow]:
        """Return the tokens, newest first. Those that are revoked or have expired are among them."""
        return [token_of(row) for row in await session.rows(Verb.tokens, limit)]

    @transaction
    async def add_token(self, session: Session, token: NewToken, actor: str) -> bool:
        """Add a token. Return False if its id is taken, which chance does not do."""
        given = (token.id, token.name, token.role, token.namespaces, token.can, token.payloads)
        if not await session.run(Verb.add_token, *given, actor, token.expires_s, token.digest, token.who):
            return False
        await _journal(session, actor, "token create", f"{token.id}: {token.name}, {token.role}")
        return True

    @transaction
    async def rotate_token(
        self,
        session: Session,
        token_id: str,
        digest: bytes,
        *,
        grace_s: float,
        expires_s: float | None,
        actor: str,
    ) -> None:
        """Give a token another secret. The old one works on for `grace_s`. Without `expires_s`, it lasts as long from
        now as it did from its beginning. Raise WrongState if it is revoked or has expired, or if there is none."""
        if not await session.run(Verb.rotate_token, token_id, digest, grace_s, expires_s):
            raise _not_good(token_id, await session.row(Verb.token, token_id))
        await _journal(session, actor, "token rotate", token_id)

    @transaction
    async def revoke_token(self, session: Session, token_id: str, actor: str) -> bool:
        """Revoke a token for good, and remove its views. Return False if it was revoked before. Raise WrongState if there is
        none."""
        if await session.run(Verb.revoke_token, token_id):
            await session.run(Verb.remove_views_of, token_id)
            await _journal(session, actor, "token revoke", token_id)
            return True
        if await session.row(Verb.token, token_id) is None:
            raise _not_good(token_id, None)
        return False

    @statement
    async def use_token(self, session: Session, token_id: str) -> int:
        """Note that a token was used, at most once an hour."""
        return await session.run(Verb.use_token, token_id, NOTED_EVERY_S)

    @transaction
    async def journal_refused(self, session: Session, refused: Sequence[RefusedEntry]) -> None:
        """Write down which requests were refused, in one commit."""
        for one in refused:
            about = None if one.namespace is None else stored(one.namespace, "requests")
            await session.run(Verb.journal_about, one.actor, "refuse", about, one.note, *way(one.actor))


def _not_good(token_id: str, row: object) -> WrongState:
    if row is None:
        return WrongState(f"no token has the id {token_id!r}: `holdfast tokens` lists them")
    return WrongState(
        f"the token {token_id} is revoked or has expired: make another one with `holdfast tokens create`"
    )


async def _journal(session: Session, actor: str, verb: str, note: str) -> None:
    await session.each(Verb.journal_add, [entry(actor, verb, None, None, note)])
