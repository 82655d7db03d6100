"""What is open when a token is revoked, or expires, ends within a second: polls, claims and streams. Others go on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx2
import pytest

from holdfast.http.watch import LOOK_S
from tests.http.conftest import Asked, bearer, made_token, until
from tests.http.test_streams import listening

SOON_S = 8.0
"""Far less than the 20 s for which a request may wait, and enough on a busy machine."""
GROUPS = [{"name": "g", "steps": ["shop.pay"], "places": 1}]


async def _registered(asked: Asked, token: str) -> str:
    answer = await asked.post("/v1/agents", {"groups": GROUPS}, headers=bearer(token))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["agent"])


async def _opened(asked: Asked, kind: str, token: str) -> httpx2.Response:
    """Ask something that waits for 20 s."""
    headers = bearer(token)
    if kind == "claim":
        agent = await _registered(asked, token)
        body: Any = {"turn": 1, "free": {"g": 1}, "wait_s": 20, "has": []}
        return await asked.post(f"/v1/agents/{agent}/claim", body, headers=headers)
    run = (await asked.get("/v1/runs/x", headers=headers)).headers["etag"]
    if kind == "run":
        return await asked.get("/v1/runs/x?wait_s=20", headers={**headers, "If-None-Match": run})
    if kind == "ended":
        return await asked.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20}, headers=headers)
    body = {"name": "change", "data": {"street": "Elm"}, "wait_s": 20, "key": "k"}
    return await asked.post("/v1/runs/x/updates", body, headers=headers)


@pytest.mark.parametrize(
    ("kind", "role"), [("claim", "agent"), ("run", "viewer"), ("ended", "viewer"), ("update", "starter")]
)
async def test_a_request_that_waits_ends_when_its_token_is_revoked(
    quiet: Asked, kind: str, role: str
) -> None:
    """It is refused, and does not wait for what it asked for. That of another token goes on."""
    bad, good = await made_token(quiet.hf, role), await made_token(quiet.hf, role)
    starter = bearer(await made_token(quiet.hf, "starter"))
    body = {"workflow": "shop.pay", "input": {"cents": 1}, "id": "x"}
    assert (await quiet.post("/v1/runs", body, headers=starter)).status_code == 201
    revoked = asyncio.create_task(_opened(quiet, kind, bad))
    other = asyncio.create_task(_opened(quiet, kind, good))
    await until(lambda: len(quiet.server.watch) == 2)
    begun = time.monotonic()
    await quiet.hf.store.tokens.revoke_token(bad.split("_")[2], "test")
    answer = await revoked
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (401, "unauthenticated")
    assert time.monotonic() < begun + SOON_S
    assert not other.done()
    quiet.server.leave()
    assert (await other).status_code in {200, 202, 304}
    assert len(quiet.server.watch) == 0


async def test_what_is_open_ends_when_its_token_expires(quiet: Asked) -> None:
    """Nobody has to look at it meanwhile."""
    token = await made_token(quiet.hf, "agent", expires_s=1.5)
    answer = await asyncio.wait_for(_opened(quiet, "claim", token), SOON_S)
    assert answer.status_code == 401


async def test_the_stream_of_an_agent_ends_when_its_token_is_revoked(store_url: str) -> None:
    """Its lease is not shortened by that: the server has closed it."""
    async with listening(store_url) as (hf, url), httpx2.AsyncClient(timeout=30) as client:
        token = await made_token(hf, "agent")
        made = await client.post(f"{url}/v1/agents", json={"groups": GROUPS}, headers=bearer(token))
        path = f"{url}/v1/agents/{made.json()['agent']}/stream"
        async with client.stream("GET", path, headers=bearer(token)) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines) == "event: ping"
            begun = time.monotonic()
            await hf.store.tokens.revoke_token(token.split("_")[2], "test")
            assert [line async for line in lines if line.startswith("event: l")] in ([], ["event: leave"])
            assert time.monotonic() < begun + SOON_S


async def test_one_look_serves_all_that_is_open(quiet: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many requests of many tokens cost one statement a look, and none afterwards."""
    looks: list[int] = []
    these = quiet.hf.store.tokens.these_tokens

    async def counted(ids: Any) -> Any:
        looks.append(len(set(ids)))
        return await these(ids)

    monkeypatch.setattr(quiet.hf.store.tokens, "these_tokens", counted)
    tokens = [await made_token(quiet.hf, "agent") for _ in range(5)]
    begun = time.monotonic()
    asked = [asyncio.create_task(_opened(quiet, "claim", token)) for token in tokens * 2]
    await until(lambda: len(looks) >= 2)
    assert max(looks) == 5
    assert len(looks) <= (time.monotonic() - begun) / LOOK_S + 1
    quiet.server.leave()
    await asyncio.gather(*asked)
