"""Views: lists of runs that somebody has given a name. A view is nothing but the address of a list."""

from __future__ import annotations

import json

from holdfast.http.call import Call, Given
from holdfast.http.pages.page import Page
from holdfast.http.reader import read_body
from holdfast.wire import requests, views


async def save(call: Call) -> Given:
    page, given = Page(call), {name: call.body.get(name, [""])[0] for name in ("name", "query")}
    body = read_body(json.dumps(given).encode(), views.SaveView, call.server.config)
    made: views.View = await page.ask("POST /v1/views", body=body)
    return page.to(page.listed(made.query))


async def remove(call: Call) -> Given:
    page = Page(call)
    await page.ask("POST /v1/views/{view}/remove", body=requests.Nothing())
    return page.to(page.listed(call.body.get("query", [""])[0]))
