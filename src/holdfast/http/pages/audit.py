"""The pages of the audit: who did what, and who may?"""

from __future__ import annotations

import msgspec

from holdfast.http.call import Call, Given
from holdfast.http.operators import JournalQuery
from holdfast.http.pages.page import Page
from holdfast.wire import answers


class AuditQuery(msgspec.Struct):
    who: str = ""
    verb: str = ""
    via: str = ""
    request: str = ""


async def audit(call: Call) -> Given:
    page = Page(call)
    found: answers.Journal = await page.ask("GET /v1/journal", query=JournalQuery(200))
    query: AuditQuery = call.query
    items = [one for one in found.items if _fits(one, query)]
    return await page.shown("audit.html", "audit", "Audit", items=items, seen=len(found.items), query=query)


def _fits(one: answers.Entry, query: AuditQuery) -> bool:
    """True if the entry has what the form asks for."""
    pairs = (
        (query.who, one.actor),
        (query.verb, one.verb),
        (query.via, one.via or ""),
        (query.request, one.request or ""),
    )
    return all(wanted.strip().lower() in text.lower() for wanted, text in pairs)


async def tokens(call: Call) -> Given:
    page = Page(call)
    found: answers.Tokens = await page.ask("GET /v1/tokens")
    page.now = (await page.ask("GET /v1/me")).now
    assert page.now is not None
    good = [
        one
        for one in found.items
        if one.revoked_at is None and (one.expires_at is None or one.expires_at > page.now)
    ]
    return await page.shown(
        "tokens.html",
        "tokens",
        "Tokens",
        good=good,
        ended=[one for one in found.items if one not in good],
    )
