"""What a token of one namespace cannot do in another by the form of a name, and what an agent cannot do to others by what it
says about itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.limits import Limit
from holdfast.namespaces import namespace_of
from holdfast.queues import LimitKey, QueueKey
from holdfast.wire.paths import path_of
from holdfast.workflow.limits import Limits
from tests.http.conftest import Asked, asking, bearer, made_token
from tests.store.made import A, begin, call, join, new_run, number_lane

THEIRS = "acme//shop.charge"
GROUP = {"name": "g", "steps": ["shop.charge"], "places": 5}


@pytest.mark.parametrize(
    "given",
    [
        {"groups": [{**GROUP, "steps": [THEIRS]}]},
        {"groups": [GROUP], "about": {"steps": [THEIRS]}},
        {"groups": [GROUP], "about": {"hedged": [THEIRS]}},
    ],
    ids=["group", "steps", "hedged"],
)
async def test_an_agent_names_no_step_of_another_namespace(lone: Asked, given: dict[str, Any]) -> None:
    """The stored name of what is in another namespace is no name in `default`, so its steps cannot be claimed."""
    token = await made_token(lone.hf, "agent", "default")
    refused = await lone.post("/v1/agents", given, headers=bearer(token))
    assert refused.status_code == 422, refused.text
    assert "//" in refused.json()["detail"]


async def test_an_agent_says_nothing_about_what_is_in_another_namespace(store_url: str) -> None:
    """It cannot open their breakers, and cannot say how long their steps take."""
    async with asking(store_url) as asked:
        headers = bearer(await made_token(asked.hf, "agent", "default"))
        made = await asked.post("/v1/agents", {"groups": [GROUP]}, headers=headers)
        beat = f"/v1/agents/{made.json()['agent']}/beat"
        for said in (
            {"seen": [{"name": "acme//stripe", "ok": 0, "failed": 1000}]},
            {"durations": [[THEIRS, 1, 5.0]]},
        ):
            refused = await asked.post(beat, said, headers=headers)
            assert refused.status_code == 422, refused.text
        assert await asked.hf.store.gates.breakers() == []
        assert (
            await asked.post(beat, {"seen": [{"name": "stripe", "ok": 1, "failed": 0}]}, headers=headers)
        ).is_success


async def _offers(asked: Asked) -> list[tuple[str, dict[str, Any]]]:
    """Return what each node says about itself, but for its pulse: the scheduler's goes on."""
    found = [(one.id, json.loads(one.offers)) for one in await asked.hf.store.nodes.nodes()]
    return [(node, {name: value for name, value in said.items() if name != "pulse"}) for node, said in found]


async def test_an_agent_does_not_become_a_node_that_is_there(store_url: str) -> None:
    """Whose id it names: neither a scheduler, of whatever namespace, nor an agent of another token. It could send it away."""
    async with asking(store_url, roles=("scheduler",)) as asked:
        mine, theirs = [bearer(await made_token(asked.hf, "agent", one)) for one in ("acme", "default")]
        made = await asked.post("/v1/agents", {"groups": [GROUP]}, headers=theirs)
        agent = made.json()["agent"]
        before = await _offers(asked)
        for node in (asked.hf.node_id, agent):
            refused = await asked.post("/v1/agents", {"groups": [GROUP], "id": node}, headers=mine)
            assert (refused.status_code, refused.json()["type"].rpartition(":")[2]) == (410, "gone")
            left = await asked.post(f"/v1/agents/{node}/leave", headers=mine)
            assert left.status_code == 410
        assert await _offers(asked) == before
        assert not asked.hf.node.fenced
        again = await asked.post("/v1/agents", {"groups": [GROUP], "id": agent}, headers=theirs)
        assert again.json()["agent"] == agent


async def test_an_agent_does_not_learn_what_runs_in_another_namespace(store_url: str) -> None:
    """Of a step that runs there it gets the same answer as of one that does not exist."""
    async with asking(store_url) as asked:
        store = asked.hf.store
        await join(store)
        lane = await number_lane(store, THEIRS)
        await begin(store, call(1, lane=lane), run=new_run("acme//pay"))
        (step,) = await store.agents.claim_steps(A, [lane], 5)
        headers = bearer(await made_token(asked.hf, "agent", "default"))
        made = await asked.post("/v1/agents", {"groups": [GROUP]}, headers=headers)
        has = [[step.run_id, step.n, step.fence], ["acme//none", 1, 1]]
        beaten = await asked.post(f"/v1/agents/{made.json()['agent']}/beat", {"has": has}, headers=headers)
        assert beaten.json()["stop"] == [[run, n] for run, n, _ in has]


@pytest.mark.parametrize(
    ("about", "pulse"),
    [
        ({"pulse": 7}, None),
        ({"pulse": {"at": "x"}}, None),
        ({"pool": 5}, None),
        ({"triggers": 5, "composed": {}, "schedules": "x", "workflows": ["shop.count@1"]}, None),
        ({"sources": [["a", "b", "c"]], "steps": ["shop.charge"], "step_sources": [3]}, None),
        ({}, {"succeeded": "x", "failed": None}),
        ({}, {"at": "x", "pool": 7, "lease_s": "long"}),
    ],
    ids=str,
)
async def test_what_an_agent_says_breaks_nobodys_look_at_agents(
    lone: Asked, about: dict[str, Any], pulse: dict[str, Any] | None
) -> None:
    """It is refused, or is not kept: everybody in every namespace reads the rows of agents."""
    headers = bearer(await made_token(lone.hf, "agent", "default"))
    admin = bearer(await made_token(lone.hf, "admin", "*"), **{"Holdfast-Namespace": "acme"})
    made = await lone.post("/v1/agents", {"groups": [GROUP], "about": about}, headers=headers)
    assert made.status_code in {201, 422}, made.text
    if pulse is not None:
        beaten = await lone.post(f"/v1/agents/{made.json()['agent']}/beat", {"pulse": pulse}, headers=headers)
        assert beaten.status_code in {200, 422}, beaten.text
    for path in ("/v1/agents", "/v1/stats", "/v1/attention", "/v1/backlog"):
        assert (await lone.get(path, headers=admin)).status_code == 200, path
    event = {"specversion": "1.0", "type": "a.b", "source": "s", "id": "1", "data": 1}
    kind = {"Content-Type": "application/cloudevents+json"}
    assert (await lone.post("/v1/events", event, headers=admin | kind)).status_code == 202
    for node in await lone.hf.store.nodes.nodes():
        if node.roles == "agent":
            assert not {"workflows", "triggers", "composed", "schedules"} & set(json.loads(node.offers))


async def test_a_limit_of_another_namespace_is_unknown(store_url: str) -> None:
    """Also by its stored name, and in the same bytes as a limit that does not exist."""
    async with asking(store_url) as asked:
        await asked.hf.store.queues.number_queues([QueueKey("acme//key", (LimitKey("acme//stripe", 5),))])
        headers = bearer(await made_token(asked.hf, "admin", "default"))
        for path in ("acme//stripe", "nothing"):
            known = await asked.get(f"/v1/limits/{path_of(path)}", headers=headers)
            moved = await asked.post(f"/v1/limits/{path_of(path)}", {"most": 0}, headers=headers)
            assert (known.status_code, moved.status_code) == (404, 404), path
        (theirs,) = await asked.hf.store.limits.limits("acme")
        assert theirs.most == 5
        own = bearer(await made_token(asked.hf, "admin", "acme"))
        assert (await asked.get("/v1/limits/stripe", headers=own)).status_code == 200


@pytest.mark.parametrize("given", ["acme//stripe", "acme///stripe", "acme////stripe", "acme/////stripe"])
def test_no_argument_names_a_limit_of_another_namespace(given: str) -> None:
    """A key that is filled from the input of a run stays in the namespace of the run."""
    (key,) = Limits((Limit("{customer}", 1),), (), {}).filled(
        "default", None, json.dumps({"customer": given}).encode()
    )
    assert namespace_of(key.name) == "default"
