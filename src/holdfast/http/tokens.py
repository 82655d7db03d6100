"""Tokens over HTTP, for administrators. A secret is in one answer, and never again."""

from __future__ import annotations

from holdfast.access.tokens import borne_by, namespaces, narrowed
from holdfast.codec import stored_text
from holdfast.errors import InvalidInput
from holdfast.http import views
from holdfast.http.call import Call, Given
from holdfast.http.refusals import Refusal
from holdfast.model import DEFAULT_NAMESPACE, NewToken
from holdfast.wire import answers, requests

LIST_MAX = 1_000


async def tokens(call: Call) -> Given:
    return Given(
        answers.Tokens([views.token(row) for row in await call.desk.tokens.list(call.who, LIST_MAX)])
    )


async def create(call: Call) -> Given:
    given: requests.TokenCreate = call.body
    try:
        new = NewToken(
            "",
            stored_text(given.name or given.role, "name"),
            given.role,
            namespaces(tuple(given.namespaces) or (DEFAULT_NAMESPACE,)),
            narrowed(tuple(given.can)),
            given.payloads,
            b"",
            given.expires_s,
            borne_by(tuple(given.who), given.role),
        )
    except InvalidInput as wrong:
        raise Refusal("invalid", str(wrong)) from None
    made = await call.desk.tokens.create(call.who, new)
    return Given(answers.TokenMade(views.token(made.token), made.secret), 201)


async def rotate(call: Call) -> Given:
    given: requests.TokenRotate = call.body
    made = await call.desk.tokens.rotate(call.who, call.id("token"), given.grace_s, given.expires_s)
    return Given(answers.TokenMade(views.token(made.token), made.secret))


async def revoke(call: Call) -> Given:
    return Given(answers.TokenRevoked(await call.desk.tokens.revoke(call.who, call.id("token"))))
