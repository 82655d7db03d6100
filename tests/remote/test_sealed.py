"""Agents with keys behind a server without keys: plain text stays among those who have them."""

from __future__ import annotations

import base64

import httpx2
import pytest

from holdfast import Holdfast, RunState
from holdfast.codec import secret
from holdfast.keyring import KEYS
from tests.remote.conftest import served
from tests.remote.test_agents import REMOTE
from tests.roles import sealed_flows as flows
from tests.roles.conftest import FAST
from tests.roles.sealed_flows import CANARY
from tests.roles.test_sealed import everything, until_state

ONE = "one:" + base64.b64encode(bytes(range(32))).decode()


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has never seen a secret."""
    monkeypatch.setattr(secret, "_state", secret._State())


async def test_a_server_without_keys_passes_sealed_steps_to_agents_that_have_them(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent opens what it executes and seals what it reports, with its logs and checkpoints. The server shows what is
    sealed as sealed, and takes no start of its own."""
    monkeypatch.setenv(KEYS, ONE)
    async with Holdfast(store_url, roles=("scheduler", "supervisor"), config=FAST) as hf:
        monkeypatch.delenv(KEYS)
        async with served(store_url, ("server",)) as at:
            monkeypatch.setenv(KEYS, ONE)
            async with Holdfast(at.url, roles=["agent"], config=REMOTE):
                run = await hf.start(flows.letter.using(id="r"), CANARY)
                assert await run.result(timeout=60) == f"child of {CANARY}!"
                assert f"reading child of {CANARY}" in {line.message for line in await run.logs()}
            async with httpx2.AsyncClient(base_url=at.url) as client:
                shown = (await client.get("/v1/runs/r")).text
                assert "$sealed" in shown
                assert CANARY not in shown
                refused = await client.post("/v1/runs", json={"workflow": run_name(), "input": {"text": "x"}})
                assert (refused.status_code, "sealed" in refused.text) == (409, True)
    assert CANARY not in everything(store_url)


def run_name() -> str:
    return flows.letter.name


async def test_an_agent_without_the_key_executes_nothing(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is held, and says which key is missing. It goes on where there is one."""
    monkeypatch.setenv(KEYS, ONE)
    async with Holdfast(store_url, roles=("scheduler", "supervisor"), config=FAST) as hf:
        monkeypatch.delenv(KEYS)
        async with served(store_url, ("server",)) as at:
            async with Holdfast(at.url, roles=["agent"], config=REMOTE):
                run = await hf.start(flows.letter.using(id="r"), CANARY)
                await until_state(hf, "r", RunState.HELD)
                assert "'one'" in await run.why()
            monkeypatch.setenv(KEYS, ONE)
            async with Holdfast(at.url, roles=["agent"], config=REMOTE):
                await run.release()
                assert await run.result(timeout=60) == f"child of {CANARY}!"
