"""Finding what answers a path, and what a request costs on its way to the desk and back."""

from __future__ import annotations

import asyncio
import cProfile
import json
import pstats
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast.http.app import make_app
from holdfast.http.path_tree import PathTree
from holdfast.http.table import TABLE
from tests.http.conftest import Asked, bearer, made_token

REQUESTS = 100
CALLS_MAX = {"claim": 275, "report": 260, "start": 475, "batch": 255}
"""Python calls, with built-in functions, on Python 3.11: measured 252, 239, 440 and 235. Of a batch: for each of its items."""
IN_BATCH, AT_ONCE = 100, 32


@pytest.fixture(scope="module")
def tree() -> PathTree[str]:
    made: PathTree[str] = PathTree()
    for route in TABLE:
        made.add(route.path, route.path)
    return made


@pytest.mark.parametrize("path", sorted({route.path for route in TABLE}))
def test_each_path_is_found_with_its_parts(tree: PathTree[str], path: str) -> None:
    parts = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    given = {name: f"~{number}" for number, name in enumerate(parts)}
    assert tree.find(path.format(**given)) == (path, given)


@pytest.mark.parametrize(
    "path",
    ["", "v1/runs", "//v1/runs", "/v1/runs/", "/v1/runs//steps", "/v1/runs\n", "/V1/runs", "/v1/runs/x/y/z"],
)
def test_what_stands_in_no_row_of_the_table_is_nothing(tree: PathTree[str], path: str) -> None:
    """No part is left out or added, and none is empty."""
    assert tree.find(path) is None


def test_a_part_that_is_named_goes_first_and_one_that_leads_nowhere_is_no_trap(tree: PathTree[str]) -> None:
    """A run may have the id `batch`."""
    assert tree.find("/v1/runs/batch") == ("/v1/runs/batch", {})
    assert tree.find("/v1/runs/batch/steps") == ("/v1/runs/{run}/steps", {"run": "batch"})


async def test_a_request_is_so_many_python_calls(lone: Asked) -> None:
    """The way from the server's side of the connection to the desk and back: routes, token, rights, reading, answering."""
    app: Any = make_app(lone.server)
    token = await made_token(lone.hf, "agent")
    groups = [{"name": "g", "steps": ["shop.pay"], "places": 1}]
    registered = await lone.post("/v1/agents", {"groups": groups}, headers=bearer(token))
    agent, number = registered.json()["agent"], 0
    starter = await made_token(lone.hf, "starter")

    async def ask(path: str, body: Any, token: str) -> None:
        raw, statuses = json.dumps(body).encode(), []
        head = {"host": "localhost", "content-type": "application/json", **bearer(token)}
        headers = [(name.lower().encode(), value.encode()) for name, value in head.items()]

        async def receive() -> Any:
            return {"type": "http.request", "body": raw, "more_body": False}

        async def send(message: Any) -> None:
            statuses.append(message.get("status"))

        scope = {"type": "http", "method": "POST", "scheme": "http", "path": path, "query_string": b""}
        await app({**scope, "headers": headers, "client": ("127.0.0.1", 1)}, receive, send)
        assert statuses[0] in {200, 201}

    def turn() -> int:
        nonlocal number
        number += 1
        return number

    async def claim() -> None:
        await ask(f"/v1/agents/{agent}/claim", {"turn": turn(), "free": {"g": 1}, "wait_s": 0}, token)

    async def report() -> None:
        one = {"verb": "succeed", "run": "x", "n": 1, "fence": 1, "secret": "x", "output": 1}
        await ask(f"/v1/agents/{agent}/report", {"reports": [one]}, token)

    def item() -> Any:
        return {"workflow": "shop.count", "input": {"a": 1}, "id": f"run-{turn()}"}

    async def starts() -> None:
        await asyncio.gather(*(ask("/v1/runs", item(), starter) for _ in range(AT_ONCE)))

    async def batch() -> None:
        await ask("/v1/runs/batch", {"items": [item() for _ in range(IN_BATCH)]}, starter)

    async def calls(one: Callable[[], Awaitable[None]], times: int) -> float:
        for _ in range(3):
            await one()
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(times):
            await one()
        profile.disable()
        return pstats.Stats(profile).total_calls / times  # type: ignore[attr-defined,no-any-return]

    found = {
        "claim": await calls(claim, REQUESTS),
        "report": await calls(report, REQUESTS),
        "start": await calls(starts, 10) / AT_ONCE,
        "batch": await calls(batch, 10) / IN_BATCH,
    }
    assert {what: (count, CALLS_MAX[what]) for what, count in found.items() if count > CALLS_MAX[what]} == {}
