"""Signing in and out."""

from __future__ import annotations

import msgspec

from holdfast.access import Act
from holdfast.http.call import Call, Given
from holdfast.http.pages.page import HTML, Page, safe_path
from holdfast.http.refusals import Refusal


class SignInQuery(msgspec.Struct):
    next: str = "/"


async def sign_in_page(call: Call) -> Given:
    return Page(call).plain("signin.html", title="Sign in", next=safe_path(call.query.next), wrong="")


async def sign_in(call: Call) -> Given:
    wanted = safe_path(call.body.get("next", ["/"])[0])
    text = call.body.get("token", [""])[0]
    try:
        cookie = await call.server.visitors.sign_in(
            text, call.path["address"], call.headers, call.path["scheme"]
        )
    except Refusal as refusal:
        if refusal.name not in {"unauthenticated", "throttled"}:
            raise
        wrong = (
            "This token is not good: it is unknown, has expired or was revoked."
            if refusal.name == "unauthenticated"
            else "There were too many attempts from here. Wait a minute."
        )
        status = refusal.problem().status
        return Page(call).plain("signin.html", status=status, title="Sign in", next=wanted, wrong=wrong)
    found = await call.server.visitors.visitor({"cookie": cookie.partition(";")[0]})
    if wanted == "/" and found is not None and not found.who.may(Act.READ) and found.who.may(Act.SEE_ASKS):
        wanted = "/asks"  # whoever only answers questions may not see the first page
    return Given(b"", 303, {"Location": wanted, "Set-Cookie": cookie}, HTML)


async def sign_out(call: Call) -> Given:
    cookie = await call.server.visitors.sign_out(call.headers, "http")
    return Given(b"", 303, {"Location": "/signin", "Set-Cookie": cookie}, HTML)
