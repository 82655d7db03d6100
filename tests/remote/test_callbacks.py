"""Callbacks through a server: agents over HTTP get the address with the step, and operators answer from anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx2
import msgspec
import pytest

from holdfast import Holdfast, InvalidInput, here, step, workflow
from holdfast.desk.callbacks import LIST_MAX
from holdfast.errors import Gone, UnknownRun
from holdfast.store.settings import PUBLIC_URL
from tests.http.conftest import FAST, bearer, made_callback, made_token
from tests.remote.conftest import Served, served

HANDED: list[str] = []


@step(callback=True)
async def hands_on(card: str) -> int:
    HANDED.append(here.callback)
    return here.later()


@step(name="elsewhere.charge", elsewhere=True, callback=True)
async def charged_elsewhere(card: str) -> int:
    return here.later()


@workflow
async def pays_remotely(card: str) -> int:
    return await hands_on(card)


@workflow
async def pays_elsewhere(card: str) -> int:
    return await charged_elsewhere(card)


@pytest.fixture
async def at(store_url: str) -> AsyncIterator[Served]:
    """A server in a process that hosts everything but an agent, and that says where it is reached."""
    HANDED.clear()
    async with served(store_url, ("scheduler", "supervisor", "server")) as found:
        await found.hf.store.settings.set_setting(PUBLIC_URL, found.url)
        yield found


async def test_a_remote_agent_hands_the_address_on(at: Served) -> None:
    """And the other system posts there, with nothing but the address."""
    config = msgspec.structs.replace(FAST, lease_s=8.0)
    async with Holdfast(at.url, roles=["agent"], config=config), httpx2.AsyncClient() as client:
        run = await at.hf.start(pays_remotely, "tok")
        async with asyncio.timeout(30):
            while not HANDED:  # noqa: ASYNC110  a step gives no event
                await asyncio.sleep(0.01)
        taken = await client.post(HANDED[0], json={"output": 7})
        assert (taken.status_code, taken.json()) == (200, {"new": True})
        assert await run.result(timeout=30) == 7


async def test_an_agent_in_another_language_finds_it_in_the_claim(at: Served) -> None:
    """As `callback`. What it reports as the output does not count."""
    token = bearer(await made_token(at.hf, "agent"))
    run = await at.hf.start(pays_elsewhere, "tok")
    async with httpx2.AsyncClient(base_url=at.url, headers=token) as client:
        group = {"name": "g", "steps": ["elsewhere.charge"], "places": 1}
        agent = (await client.post("/v1/agents", json={"groups": [group]})).json()["agent"]
        steps: list[dict[str, object]] = []
        for turn in range(1, 30):
            body = {"turn": turn, "free": {"g": 1}, "wait_s": 1, "has": []}
            steps = (await client.post(f"/v1/agents/{agent}/claim", json=body)).json()["steps"]
            if steps:
                break
        (claimed,) = steps
        address = str(claimed["callback"])
        assert address.startswith(f"{at.url}/v1/callbacks/")
        early = await client.post(f"{address}", json={"output": 7})
        assert early.json() == {"new": True}
        names = ("run", "n", "fence", "secret")
        report = {"verb": "succeed", **{name: claimed[name] for name in names}, "output": "whatever"}
        reported = await client.post(f"/v1/agents/{agent}/report", json={"reports": [report]})
        assert reported.json() == {"answers": ["accepted"]}
    assert await run.result(timeout=30) == 7


async def test_callbacks_are_listed_through_a_server(remote: Holdfast, busy: Served) -> None:
    """The same ones with the same values as on the store, however many pages that takes."""
    runs = [f"run-{n:03}" for n in range(LIST_MAX + 5)]
    for run in runs:
        await made_callback(busy.hf, "default", run, 600.0)
    found = await remote.callbacks.list(limit=1000)
    assert [one.run for one in found] == runs
    assert found == await busy.hf.callbacks.list(limit=1000)
    assert [one.run for one in await remote.callbacks.list(limit=3)] == runs[:3]
    assert [one.run for one in await remote.callbacks.list(run="run-007")] == ["run-007"]
    assert len(await remote.callbacks.list(workflow="pay", step="shop.pay")) == LIST_MAX
    for hf in (remote, busy.hf):
        assert await hf.callbacks.list(run="nobody") == []
        assert await hf.callbacks.list(step="charge") == []
        with pytest.raises(InvalidInput, match="NUL"):
            await hf.callbacks.list(step="\0")


async def test_operators_answer_through_a_server(remote: Holdfast, busy: Served) -> None:
    """With the same values and the same errors as on the store."""
    await made_callback(busy.hf, "default", "by-hand")
    with pytest.raises(InvalidInput, match="output: expected"):
        await remote.callbacks.answer("by-hand", "seven")
    assert (await remote.callbacks.answer("by-hand", 7, step="pay-1", note="they phoned")).new
    assert not (await remote.callbacks.answer("by-hand", 7)).new
    with pytest.raises(Gone):
        await remote.callbacks.fail("by-hand", "no")
    with pytest.raises(UnknownRun):
        await remote.callbacks.answer("nobody", 7)
