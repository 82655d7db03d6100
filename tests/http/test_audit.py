"""The journal says by which way each act came and in which request, beside who it was."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from holdfast.commands.options import CommandStore
from holdfast.http.ask_page import WHOLE
from holdfast.model import JournalEntry
from holdfast.queues import LimitKey, QueueKey
from tests.http.conftest import Asked, asking, bearer, made_ask, made_callback, made_token

Deed = Callable[[Asked], Awaitable[httpx2.Response]]


async def newest(asked: Asked) -> JournalEntry:
    return (await asked.hf.store.reads.journal(None))[0]


async def _post(asked: Asked, path: str, body: Any = None) -> httpx2.Response:
    answer = await asked.post(path, body)
    assert answer.is_success, answer.text
    return answer


async def _run(asked: Asked, verb: str) -> httpx2.Response:
    return await _post(asked, f"/v1/runs/{await asked.started()}/{verb}", {"note": "n"})


async def _release(asked: Asked) -> httpx2.Response:
    run = await asked.started()
    await _post(asked, f"/v1/runs/{run}/hold", {})
    return await _post(asked, f"/v1/runs/{run}/release", {})


async def _fork(asked: Asked) -> httpx2.Response:
    return await _post(asked, f"/v1/runs/{await asked.started()}/fork", {})


async def _hold(asked: Asked) -> httpx2.Response:
    return await _post(asked, "/v1/holds", {"scope": "step", "value": "shop.add"})


async def _breaker(asked: Asked) -> httpx2.Response:
    return await _post(asked, "/v1/breakers/bank/open", {"note": "n"})


async def _token(asked: Asked) -> httpx2.Response:
    asked.client.headers.update(bearer(await made_token(asked.hf, "admin", "*")))
    asked.client.headers["Holdfast-Namespace"] = "default"
    return await _post(asked, "/v1/tokens", {"role": "viewer"})


async def _hook(asked: Asked) -> httpx2.Response:
    return await _post(asked, "/v1/hooks", {"name": "in", "scheme": "github"})


async def _schedule(asked: Asked) -> httpx2.Response:
    body = {"name": "nightly", "workflow": "shop.count", "times": "@daily", "input": {"a": 1}}
    return await _post(asked, "/v1/schedules", body)


async def _pause(asked: Asked) -> httpx2.Response:
    await _schedule(asked)
    return await _post(asked, "/v1/schedules/nightly/pause", {"note": "n"})


async def _backfill(asked: Asked) -> httpx2.Response:
    await _schedule(asked)
    body = {"from": "2026-01-01", "to": "2026-01-03"}
    return await _post(asked, "/v1/schedules/nightly/backfills", body)


async def _fair(asked: Asked) -> httpx2.Response:
    return await _post(asked, "/v1/fair", {"key": "acme", "weight": 2})


async def _limit(asked: Asked) -> httpx2.Response:
    key = QueueKey("", (LimitKey("bank", 5),))
    await asked.hf.store.queues.number_queues([key])
    return await _post(asked, "/v1/limits/bank", {"most": 2})


async def _answer(asked: Asked) -> httpx2.Response:
    ask = await made_ask(asked.hf, "default", "asks", "Ship?", "person:anna")
    return await _post(asked, f"/v1/asks/{ask}/answer", {"value": True, "by": "person:anna"})


async def _delegate(asked: Asked) -> httpx2.Response:
    ask = await made_ask(asked.hf, "default", "asks", "Ship?", "person:anna")
    return await _post(asked, f"/v1/asks/{ask}/delegate", {"to": "person:bob", "by": "person:anna"})


async def _callback(asked: Asked) -> httpx2.Response:
    await made_callback(asked.hf, "default", "calls")
    return await _post(asked, "/v1/runs/calls/callback", {"output": 1})


async def _act(asked: Asked) -> httpx2.Response:
    """The entry on each run of an act names the request in which its plan was made."""
    await asked.started(id="many-1")
    plan = await _post(asked, "/v1/acts", {"verb": "cancel", "prefix": "many-"})
    await _post(asked, f"/v1/acts/{plan.json()['id']}/go", {"wait_s": 20})
    return plan


DEEDS: dict[str, Deed] = {
    "cancel": lambda asked: _run(asked, "cancel"),
    "hold": lambda asked: _run(asked, "hold"),
    "release": _release,
    "fork": _fork,
    "gate": _hold,
    "breaker": _breaker,
    "token": _token,
    "hook": _hook,
    "schedule": _schedule,
    "pause": _pause,
    "backfill": _backfill,
    "fair": _fair,
    "limit": _limit,
    "answer": _answer,
    "delegate": _delegate,
    "callback": _callback,
    "act": _act,
}


@pytest.mark.parametrize("name", DEEDS)
async def test_an_act_over_http_is_journalled_with_its_request(store_url: str, name: str) -> None:
    """The journal has the id that the server has answered as `Holdfast-Request`, whatever was done."""
    async with asking(store_url) as asked:
        answer = await DEEDS[name](asked)
        entry = await newest(asked)
    assert (entry.via, entry.request) == ("http", answer.headers["Holdfast-Request"]), entry
    assert entry.request


async def test_a_signed_address_is_a_way_of_its_own(quiet: Asked) -> None:
    """Of an ask and of a callback: their holders have nothing else, and are named as such."""
    link = await quiet.hf.asks.link(
        await made_ask(quiet.hf, "default", "asks", "Ship?", "person:anna"), "person:anna"
    )
    answer = await quiet.client.post(link, data={WHOLE: "true"})
    entry = await newest(quiet)
    assert (entry.verb, entry.via, entry.request) == ("answer", "link", answer.headers["Holdfast-Request"])
    answer = await quiet.post(await made_callback(quiet.hf, "default", "calls"), {"output": 1})
    entry = await newest(quiet)
    assert (entry.actor, entry.via) == ("callback", "link")
    assert entry.request == answer.headers["Holdfast-Request"]


async def test_a_page_a_program_and_a_command_say_so(quiet: Asked, store_url: str) -> None:
    """The same act by three ways. Only what comes through a server has a request."""
    run = await quiet.started(id="held")
    page = await quiet.get(f"/do/v1/runs/{run}/hold")
    seal = page.text.partition('name="seal" value="')[2].partition('"')[0]
    assert seal
    form, origin = {"seal": seal, "note": "by hand"}, {"Origin": "http://localhost"}
    done = await quiet.client.post(f"/do/v1/runs/{run}/hold", data=form, headers=origin)
    assert done.status_code < 400, done.text
    by_page = await newest(quiet)
    assert (by_page.verb, by_page.via) == ("hold", "page")
    assert by_page.request == done.headers["Holdfast-Request"]
    await quiet.hf.run("held").release()
    by_python = await newest(quiet)
    assert (by_python.verb, by_python.via, by_python.request) == ("release", "python", None)
    async with CommandStore(store_url, roles=()) as hf:
        await hf.run("held").cancel()
    by_command = await newest(quiet)
    assert (by_command.verb, by_command.via, by_command.request) == ("cancel", "cli", None)


async def test_what_holdfast_does_by_itself_came_by_no_way(busy: Asked) -> None:
    """The entries of its roles have neither."""
    await made_callback(busy.hf, "default", "calls", expires_s=0.01)
    async with asyncio.timeout(60):
        while (entry := await newest(busy)).verb != "expire":  # noqa: ASYNC110  the store gives no event
            await asyncio.sleep(0.02)
    assert (entry.actor, entry.via, entry.request) == ("supervisor", None, None)


async def test_the_journal_is_shown_with_ways_and_requests(quiet: Asked) -> None:
    """By the routes, and on the page of the audit, where one can look for them."""
    run = await quiet.started()
    answer = await quiet.post(f"/v1/runs/{run}/hold", {})
    request = answer.headers["Holdfast-Request"]
    for path in ("/v1/journal", f"/v1/runs/{run}/journal"):
        (entry,) = (await quiet.get(path)).json()["items"]
        assert (entry["via"], entry["request"]) == ("http", request)
    for query, is_found in (
        (f"request={request}", True),
        ("via=http", True),
        ("via=page", False),
        ("request=none", False),
    ):
        page = await quiet.get(f"/audit?{query}")
        assert (f"request {request}" in page.text) is is_found, query
    assert f"request {request}" in (await quiet.get(f"/runs/{run}?view=journal")).text
