"""Following and steering a run by HTTP means what it means in Python and on the command line."""

from __future__ import annotations

import asyncio

import msgspec

from holdfast import Holdfast
from holdfast.store.operations import Start
from tests.http import flows
from tests.http.conftest import FAST, Asked, asking, bearer, made_token, until
from tests.store.made import new_run


async def test_a_run_is_steered(quiet: Asked) -> None:
    """Each act is the desk's, and the journal has it."""
    await quiet.started("shop.pay", input={"cents": 1}, id="x")
    for act, state in (("hold", "held"), ("release", "pending"), ("cancel", "cancelled")):
        answer = await quiet.post(f"/v1/runs/x/{act}", {"note": act})
        assert (answer.status_code, answer.json()["state"]) == (200, state)
    again = await quiet.post("/v1/runs/x/retry")
    assert again.json() == {"id": "x~2", "ref": "x~2", "new": True}
    assert (await quiet.post("/v1/runs/x/retry")).json()["id"] == "x~2"
    forked = await quiet.post("/v1/runs/x/fork", {"input": {"cents": 5}, "id": "y"})
    assert (forked.status_code, forked.json()["id"]) == (201, "y")
    assert (await quiet.get("/v1/runs/y")).json()["input"] == {"cents": 5}
    wrong = await quiet.post("/v1/runs/x/fork", {"input": {"cents": "x"}})
    assert (wrong.status_code, wrong.json()["place"]) == (422, "/input")
    verbs = [one["verb"] for one in (await quiet.get("/v1/runs/x/journal")).json()["items"]]
    assert verbs == ["fork", "retry", "cancel", "release", "hold"]


async def test_signals_and_updates_reach_the_run(busy: Asked) -> None:
    """A key makes each once. What does not fit is refused with the place."""
    await busy.started("shop.pay", input={"cents": 1}, id="x")
    wrong = await busy.post("/v1/runs/x/signals", {"name": "paid", "data": "much"})
    assert (wrong.status_code, wrong.json()["place"]) == (422, "/data")
    wrong = await busy.post("/v1/runs/x/signals", {"name": "payed", "data": 1})
    assert (wrong.status_code, wrong.json()["place"]) == (422, "/name")
    call = {"name": "change", "data": {"street": "Quay", "number": 2}, "key": "k", "wait_s": 20}
    for _ in range(2):
        answer = await busy.post("/v1/runs/x/updates", call)
        assert (answer.status_code, answer.json()) == (200, {"answered": True, "reply": "Quay 2"})
    other = await busy.post("/v1/runs/x/updates", {**call, "data": {"street": "Pier"}})
    assert other.status_code == 409
    for new in (True, False):
        sent = await busy.post("/v1/runs/x/signals", {"name": "paid", "data": 9, "key": "k"})
        assert (sent.status_code, sent.json()) == (202, {"new": new})
    ended = await busy.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})
    assert ended.json()["items"][0]["output"] == 10
    late = await busy.post("/v1/runs/x/signals", {"name": "paid", "data": 9})
    assert late.status_code == 409


async def test_an_update_that_is_not_answered_in_time_is_recorded(quiet: Asked) -> None:
    """Nobody runs the code here. The same key asks for the answer again."""
    await quiet.started("shop.pay", input={"cents": 1}, id="x")
    call = {"name": "change", "data": {"street": "Quay"}, "key": "k", "wait_s": 0.05}
    for _ in range(2):
        answer = await quiet.post("/v1/runs/x/updates", call)
        assert (answer.status_code, answer.json()) == (202, {"answered": False, "reply": None})
    assert len(await quiet.hf.store.reads.signals("x")) == 1


async def test_all_parts_of_a_run_can_be_read(busy: Asked) -> None:
    """Its steps, attempts, children, logs, graph, and why."""
    await busy.started("shop.family", id="x")
    await busy.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})
    (step,) = (await busy.get("/v1/runs/x/steps")).json()["items"]
    assert (step["kind"], step["state"], step["output"]) == ("child", "succeeded", 2)
    whole = (await busy.get("/v1/runs/x/steps/1")).json()
    assert {name: whole[name] for name in step} == step
    assert (await busy.get("/v1/runs/x/steps/2")).status_code == 404
    (child,) = (await busy.get("/v1/runs/x/children")).json()["items"]
    assert child["parent"] == "x"
    assert (await busy.get(f"/v1/runs/{child['ref']}")).json()["id"] == child["id"] == "child/1"
    assert (await busy.get("/v1/runs/x/attempts")).json() == {"items": []}
    assert (await busy.get("/v1/runs/x/logs?level=INFO")).json() == {"items": [], "more": False}
    assert (await busy.get("/v1/runs/x/logs?level=LOUD")).status_code == 422
    assert (await busy.get("/v1/runs/x/graph")).json()["graph"]["workflow"] == "shop.family"
    assert "succeeded" in (await busy.get("/v1/runs/x/why")).json()["text"]


async def test_a_failed_run_says_why(busy: Asked) -> None:
    """The class of the error and its message, in the run, in lists, and where its end is waited for."""
    await busy.started("shop.fail", input={}, id="x")
    (ended,) = (await busy.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})).json()["items"]
    wanted = {"type": "ValueError", "message": "it failed", "step": None}
    shown = (await busy.get("/v1/runs/x")).json()["error"]
    assert ended["state"] == "failed"
    for error in (ended["error"], shown):  # all that was recorded goes with it, for those who see payloads
        assert error.pop("recorded")["type"] == "builtins.ValueError"
        assert error == wanted
    listed = (await busy.get("/v1/runs")).json()["items"][0]["error"]
    assert listed == {**wanted, "recorded": None}


async def test_a_poll_waits_until_the_run_changes(busy: Asked) -> None:
    """With the mark of what one knows. Then the answer is the run, and not before."""
    await busy.started("shop.pay", input={"cents": 1}, id="x")
    while (first := await busy.get("/v1/runs/x")).json()["state"] != "running":
        pass
    mark = first.headers["etag"]
    same = await busy.get("/v1/runs/x", headers={"If-None-Match": mark})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", mark)
    polls = [
        asyncio.create_task(busy.get("/v1/runs/x?wait_s=20", headers={"If-None-Match": mark})),
        asyncio.create_task(busy.post("/v1/runs/ended", {"runs": ["nobody", "x"], "wait_s": 20})),
    ]
    await until(lambda: sum(busy.server.polls.values()) == 2)
    assert not any(poll.done() for poll in polls)
    await busy.post("/v1/runs/x/signals", {"name": "paid", "data": 9})
    one, ended = await asyncio.gather(*polls)
    assert (one.status_code, one.json()["state"]) == (200, "succeeded")
    assert [row["id"] for row in ended.json()["items"]] == ["x"]
    assert busy.server.polls == {}


async def test_marks_are_read_as_http_means_them(quiet: Asked) -> None:
    """`*` is whatever there is, several are named with commas, and W/ makes no difference. What is unknown stays unknown."""
    await quiet.started("shop.pay", input={"cents": 1}, id="x")
    for path in ("/v1/runs/x", "/v1/runs/x/timeline", "/v1/workflows"):
        mark = (await quiet.get(path)).headers["etag"]
        for known, status in (
            (mark, 304),
            (f"W/{mark}", 304),
            ("*", 304),
            (f'"other", W/{mark}', 304),
            ('"other"', 200),
            ('"*"x', 200),
            ("", 200),
            (",", 200),
        ):
            answer = await quiet.get(path, headers={"If-None-Match": known})
            assert (answer.status_code, answer.headers["etag"]) == (status, mark), (path, known)
    assert (await quiet.get("/v1/runs/x?wait_s=20", headers={"If-None-Match": "*"})).status_code == 304
    assert (await quiet.get("/v1/runs/nobody", headers={"If-None-Match": "*"})).status_code == 404


async def test_polls_have_a_limit_and_end_when_the_server_leaves() -> None:
    """Whoever waits is answered with what there is, and asks another server."""
    config = msgspec.structs.replace(FAST, polls_max=3)
    async with asking("sqlite://:memory:", config=config) as asked:
        await asked.started("shop.pay", input={"cents": 1}, id="x")
        mark = (await asked.get("/v1/runs/x")).headers["etag"]
        waits = [
            asyncio.create_task(asked.get("/v1/runs/x?wait_s=20", headers={"If-None-Match": mark}))
            for _ in range(2)
        ]
        waits.append(asyncio.create_task(asked.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 20})))
        await until(lambda: sum(asked.server.polls.values()) == 3)
        refused = await asked.get("/v1/runs/x?wait_s=20", headers={"If-None-Match": mark})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await asked.get("/readyz")).status_code == 200
        asked.server.leave()
        found = await asyncio.gather(*waits)
        assert [answer.status_code for answer in found] == [304, 304, 200]
        assert found[2].json() == {"items": []}
        assert (await asked.get("/readyz")).status_code == 503
        assert (await asked.get("/healthz")).status_code == 200


async def test_wait_s_is_bounded(lone: Asked) -> None:
    """Gateways cut longer requests."""
    assert (await lone.get("/v1/runs/x?wait_s=21")).status_code == 422
    assert (await lone.post("/v1/runs/ended", {"runs": ["x"], "wait_s": 21})).status_code == 422


async def test_a_damaged_payload_does_not_break_an_answer(lone: Asked) -> None:
    """It is null, and everything else is shown."""
    from holdfast.http.views import payload

    assert bytes(payload(b"{", lone.hf.who)) == b"null"


async def test_a_server_without_code_draws_what_a_scheduler_has_published(store_url: str) -> None:
    """The graph comes from the store, with the way of the run in it. Before anybody has published it, the answer says what
    to start."""
    async with asking(store_url) as asked:
        token = await made_token(asked.hf, "operator", "acme")
        with_token = {"headers": bearer(token)}
        soon = msgspec.structs.replace(FAST, learn_s=0.1)
        async with Holdfast(store_url, roles=["scheduler", "agent"], namespace="acme", config=soon) as acme:
            await (await acme.start(flows.count.using(id="x"), 1)).result(timeout=60)
            await until_drawn(acme, flows.count.name)
        found = (await asked.get("/v1/runs/x/graph", **with_token)).json()["graph"]
        assert found["workflow"] == flows.count.name
        assert found["run"]["id"] == "x"
        assert found["nodes"]
        run = msgspec.structs.replace(new_run(workflow="acme//shop.gone"), id="acme//y", namespace="acme")
        await asked.hf.store.batches.commit("somebody", [Start(run)])
        unknown = await asked.get("/v1/runs/y/graph", **with_token)
        assert (unknown.status_code, "holdfast scheduler" in unknown.text) == (409, True)


async def until_drawn(hf: Holdfast, name: str) -> None:
    async with asyncio.timeout(60):
        while await hf.store.workflows.drawn(f"acme//{name}", "1") is None:  # noqa: ASYNC110  the node gives no event
            await asyncio.sleep(0.01)
