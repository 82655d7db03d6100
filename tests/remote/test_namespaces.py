"""Agents and programs whose tokens are for one namespace: the server knows it, and they need not say it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from holdfast import Holdfast, HoldfastError
from holdfast.errors import Forbidden
from tests.forkserver import HOLDFAST
from tests.http.conftest import FAST, made_token
from tests.remote import flows
from tests.remote.conftest import served

ROOT = Path(__file__).parents[2]


async def test_an_agent_works_in_the_namespace_of_its_token(store_url: str) -> None:
    """It executes steps of that namespace, under their stored keys, and none of another one."""
    flows.begun.clear()
    async with (
        served(store_url, ("supervisor", "server")) as at,
        Holdfast(store_url, roles=["scheduler"], namespace="acme", config=FAST) as acme,
        Holdfast(store_url, roles=["scheduler"], config=FAST) as other,
    ):
        token = await made_token(at.hf, "agent", "acme")
        operator = await made_token(at.hf, "operator", "acme")
        async with (
            Holdfast(at.url, token=token, roles=["agent"], config=FAST),
            Holdfast(at.url, token=operator) as remote,
        ):
            theirs = await other.start(flows.wide.using(id="same"), 2)
            ours = await acme.start(flows.wide.using(id="same"), 2)
            assert await ours.result(timeout=60) == await remote.run("same", flows.wide).result(timeout=60)
            assert {key.partition("::")[0] for key in flows.begun} == {"acme//same"}
            assert await theirs.state() == "running"
            assert [one.id for one in await remote.runs()] == ["same"]
            assert (await remote.run("same").info()).namespace == "acme"


async def test_a_program_may_name_its_namespace(store_url: str) -> None:
    """Named or not, the run is in the namespace of the token, under a bare id. Another namespace is refused."""
    async with (
        served(store_url, ("supervisor", "server")) as at,
        Holdfast(store_url, roles=["scheduler", "agent"], namespace="acme", config=FAST) as acme,
    ):
        token = await made_token(at.hf, "operator", "acme")
        async with Holdfast(at.url, token=token, namespace="acme") as remote:
            run = await remote.start(flows.wide.using(id="named"), 2)
            assert run.id == "named"
            assert await run.result(timeout=60) == await acme.run("named", flows.wide).result(timeout=60)
            assert (await remote.start(flows.wide.using(id="named"), 2)).id == "named"
            again = await remote.start(flows.wide.using(id="again", namespace="acme"), 2)
            assert await again.result(timeout=60) == 3
        with pytest.raises(Forbidden):
            async with Holdfast(at.url, token=token, namespace="umbrella") as other:
                await other.start(flows.wide.using(id="named"), 2)


@pytest.mark.parametrize(
    ("namespace", "roles"), [("*", ["agent"]), (["acme", "umbrella"], ["agent"]), (["acme", "umbrella"], [])]
)
def test_a_process_behind_a_server_works_for_one_namespace(
    namespace: str | list[str], roles: list[str]
) -> None:
    """It is refused at once: without that, an agent that names several would work in `default`."""
    with pytest.raises(HoldfastError, match="works for one namespace"):
        Holdfast("http://127.0.0.1:1", namespace=namespace, roles=roles)


async def test_commands_need_not_name_the_namespace_of_a_token(tmp_path: Path, store_url: str) -> None:
    """`start` through a server starts a run in the token's namespace."""
    (tmp_path / "app.py").write_text("from tests.remote.flows import wide\n")
    async with (
        served(store_url, ("supervisor", "server")) as at,
        Holdfast(store_url, roles=["scheduler", "agent"], namespace="acme", config=FAST) as acme,
    ):
        token = await made_token(at.hf, "operator", "acme")
        command = [HOLDFAST, "start", "app.py:wide", "--id", "made", "--input", '{"n": 2}', "--store", at.url]
        started = await acme.environment.blocking(
            lambda: subprocess.run(
                command,
                cwd=tmp_path,
                env={**os.environ, "HOLDFAST_TOKEN": token, "PYTHONPATH": str(ROOT)},
                capture_output=True,
                text=True,
                check=False,
            )
        )
        assert started.returncode == 0, started.stderr
        assert await acme.run("made", flows.wide).result(timeout=60) == 3
