"""The pages of the audit: who did what, and who may?"""

from __future__ import annotations

import msgspec

from holdfast.http.call import Call, Given
from holdfast.http.operators import JournalQuery, Sought
from holdfast.http.pages.page import Page
from holdfast.store.reads import JOURNAL_LOOKED_AT
from holdfast.wire import answers


class AuditQuery(msgspec.Struct):
    who: Sought = ""
    verb: Sought = ""
    via: Sought = ""
    request: Sought = ""
    all: bool = False
    """Also what roles of Holdfast did: most of the journal, and nobody's deed."""


async def audit(call: Call) -> Given:
    page = Page(call)
    query: AuditQuery = call.query
    via = query.via.strip() or ("" if query.all else "*")
    sought = JournalQuery(200, query.who.strip(), query.verb.strip(), via, query.request.strip())
    found: answers.Journal = await page.ask("GET /v1/journal", query=sought)
    given = {name: value for name, value in msgspec.structs.asdict(query).items() if name != "all" and value}
    return await page.shown(
        "audit.html",
        "audit",
        "Audit",
        items=found.items,
        query=query,
        ways=[
            ("People and programs", page.url("/audit", **given), not query.all),
            ("Everything", page.url("/audit", **given, all="true"), query.all),
        ],
        looked_at=f"{JOURNAL_LOOKED_AT:,}",
    )


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
