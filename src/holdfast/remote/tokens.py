"""The token desk of a server, over HTTP."""

from __future__ import annotations

import json

from holdfast.access import Identity
from holdfast.desk.tokens import TokenMade
from holdfast.model import NewToken, TokenRow
from holdfast.remote import rows
from holdfast.remote.transport import Transport
from holdfast.wire import answers, requests
from holdfast.wire.paths import path_of


class RemoteTokenDesk:
    """A token desk that asks a server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, who: Identity, new: NewToken) -> TokenMade:
        """Make a token. If the answer is lost, this is not sent again: the token may exist. Then list the tokens, and
        revoke it."""
        body = requests.TokenCreate(
            role=new.role,  # type: ignore[arg-type]  # the server checks it
            name=new.name,
            namespaces=json.loads(new.namespaces),
            can=json.loads(new.can),
            payloads=new.payloads,
            expires_s=new.expires_s,
            who=json.loads(new.who),
        )
        made = await self._transport.post(who, "/v1/tokens", answers.TokenMade, body, is_repeatable=False)
        return TokenMade(rows.token(made.token), made.secret)

    async def rotate(self, who: Identity, token: str, grace_s: float, expires_s: float | None) -> TokenMade:
        body = requests.TokenRotate(grace_s=grace_s, expires_s=expires_s)
        made = await self._transport.post(
            who, f"/v1/tokens/{path_of(token)}/rotate", answers.TokenMade, body, is_repeatable=False
        )
        return TokenMade(rows.token(made.token), made.secret)

    async def revoke(self, who: Identity, token: str) -> bool:
        return (
            await self._transport.post(who, f"/v1/tokens/{path_of(token)}/revoke", answers.TokenRevoked)
        ).revoked

    async def list(self, who: Identity, limit: int) -> list[TokenRow]:
        found = await self._transport.get(who, "/v1/tokens", answers.Tokens)
        return [rows.token(one) for one in found.items[:limit]]
