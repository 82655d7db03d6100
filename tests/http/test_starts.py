"""Starting by HTTP: once for one id or key, on any server, and checked before anything is written."""

from __future__ import annotations

import asyncio
import json

import pytest

from holdfast import Holdfast
from holdfast.access import local
from holdfast.codec.schema import filled
from holdfast.http import views
from holdfast.namespaces import stored
from holdfast.store.reads import RunFilter
from holdfast.workflow import registry
from holdfast.workflow.declaration import declarations
from tests.http import flows
from tests.http.conftest import FAST, Asked, asking, bearer, made_token

COUNT = {"workflow": "shop.count", "input": {"a": 1}}


async def test_a_run_is_started_and_its_result_read(busy: Asked) -> None:
    """From HTTP alone."""
    answer = await busy.post("/v1/runs", {**COUNT, "id": "order 42/7", "tags": {"for": "acme"}})
    assert answer.status_code == 201
    where = answer.headers["location"]
    ended = await busy.post("/v1/runs/ended", {"runs": ["order 42/7"], "wait_s": 20})
    assert [one["output"] for one in ended.json()["items"]] == [2]
    found = (await busy.get(where)).json()
    assert (found["id"], found["state"], found["output"]) == ("order 42/7", "succeeded", 2)
    assert found["tags"] == {"for": "acme"}


async def test_the_same_id_and_input_is_the_same_run(quiet: Asked) -> None:
    """However the input is written. Another input is a conflict, and changes nothing."""
    assert (await quiet.post("/v1/runs", {**COUNT, "id": "x"})).status_code == 201
    again = await quiet.post("/v1/runs", {"workflow": "shop.count", "input": {"by": 1, "a": 1}, "id": "x"})
    assert (again.status_code, again.json()["new"]) == (200, False)
    assert (await quiet.post("/v1/runs", {**COUNT, "input": {"a": 2}, "id": "x"})).status_code == 409


async def test_python_and_http_start_the_same_run(quiet: Asked) -> None:
    """One call has one digest, whoever makes it."""
    await quiet.hf.start(flows.count.using(id="x"), 1)
    assert (await quiet.post("/v1/runs", {**COUNT, "id": "x"})).status_code == 200


async def test_fifty_at_once_over_two_servers_start_one_run(store_url: str) -> None:
    """By an id or by an Idempotency-Key. One is answered 201, the others 200, and all have the same run."""
    async with asking(store_url) as one, asking(store_url) as other:
        for headers, more in (({}, {"id": "x"}), ({"Idempotency-Key": "a key"}, {})):
            found = await asyncio.gather(
                *(
                    server.post("/v1/runs", {**COUNT, **more}, headers=headers)
                    for _ in range(25)
                    for server in (one, other)
                )
            )
            assert sorted(answer.status_code for answer in found) == [200] * 49 + [201]
            assert len({answer.json()["id"] for answer in found}) == 1
        assert len(await one.hf.store.reads.runs(RunFilter())) == 2


async def test_a_key_belongs_to_its_namespace(wide: Asked) -> None:
    """The same key in another namespace is another run. An id and a key together are refused."""
    ids = set()
    for namespace in ("acme", "umbrella"):
        token = await made_token(wide.hf, "starter", namespace)
        given = bearer(token, **{"Idempotency-Key": "k"})
        answer = await wide.post("/v1/runs", COUNT, headers=given)
        assert answer.status_code == 201
        ids.add(answer.json()["id"])
        both = await wide.post("/v1/runs", {**COUNT, "id": "x"}, headers=given)
        assert both.status_code == 422
    assert len(ids) == 2
    assert all(one.startswith("key~") for one in ids)


async def test_each_of_a_batch_is_answered_by_itself(quiet: Asked) -> None:
    """In order, with the status that it would have had alone."""
    items = [
        {**COUNT, "id": "a"},
        {**COUNT, "key": "b"},
        {"workflow": "shop.nothing"},
        {**COUNT, "input": {"a": "x"}},
        {**COUNT, "id": "a"},
        {**COUNT, "id": "a", "input": {"a": 2}},
        {**COUNT, "id": "b//c"},
    ]
    found = (await quiet.post("/v1/runs/batch", {"items": items})).json()["items"]
    assert sorted((found[0]["status"], found[4]["status"])) == [200, 201]
    assert [one["status"] for one in found[1:4]] == [201, 404, 422]
    assert found[3]["problem"]["place"] == "/items/3/input/a"
    assert found[5]["status"] == 409
    assert found[6]["problem"]["place"] == "/items/6/id"
    assert len(await quiet.hf.store.reads.runs(RunFilter())) == 2


async def test_a_batch_that_cannot_be_read_starts_nothing(quiet: Asked) -> None:
    """The problem names the item."""
    items = [COUNT, {**COUNT, "priority": "high"}]
    answer = await quiet.post("/v1/runs/batch", {"items": items})
    assert (answer.status_code, answer.json()["place"]) == (422, "/items/1/priority")
    assert await quiet.hf.store.reads.runs(RunFilter()) == []
    assert (await quiet.post("/v1/runs/batch", {"items": []})).status_code == 422


async def test_runs_of_a_namespace_are_stored_under_it(wide: Asked) -> None:
    """Everything that is answered has the id without the namespace."""
    token = await made_token(wide.hf, "operator", "acme")
    answer = await wide.post("/v1/runs", {**COUNT, "id": "x"}, headers=bearer(token))
    assert answer.json() == {"id": "x", "ref": "x", "new": True}
    row = await wide.hf.store.reads.run("acme//x")
    assert row is not None
    assert row.namespace == "acme"
    for path in ("/v1/runs/x", "/v1/runs", "/v1/runs/x/why", "/v1/runs/x/journal"):
        assert "//" not in (await wide.get(path, headers=bearer(token))).text
    assert (
        (await wide.post("/v1/runs/x/release", headers=bearer(token)))
        .json()["detail"]
        .startswith("run 'x' is")
    )


async def test_a_run_that_python_started_in_a_namespace_is_found_there(wide: Asked) -> None:
    """Under its bare id, and the same start by HTTP finds it."""
    await wide.hf.start(flows.count.using(id="x", namespace="acme"), 1)
    mine = bearer(await made_token(wide.hf, "operator", "acme"))
    other = bearer(await made_token(wide.hf, "operator", "umbrella"))
    assert (await wide.get("/v1/runs/x", headers=mine)).json()["id"] == "x"
    assert (await wide.post("/v1/runs", {**COUNT, "id": "x"}, headers=mine)).status_code == 200
    assert (await wide.get("/v1/runs/x", headers=other)).status_code == 404
    assert (await wide.post("/v1/runs", {**COUNT, "id": "x"}, headers=other)).status_code == 201


async def test_a_server_without_the_code_checks_by_what_was_declared(store_url: str) -> None:
    """It refuses what the code would refuse, and writes the input as the code would."""
    async with Holdfast(store_url, config=FAST) as hf:
        kept = dict(registry.workflows)
        registry.workflows.clear()
        try:
            async with asking(store_url) as asked:
                for given, status in (
                    ({"a": 1}, 201),
                    ({"a": "x"}, 422),
                    ({}, 422),
                    ({"a": 1, "c": 2}, 422),
                    ([1], 422),
                ):
                    body = {
                        "workflow": "shop.count",
                        "input": given,
                        **({"id": "x"} if status == 201 else {}),
                    }
                    answer = await asked.post("/v1/runs", body)
                    assert answer.status_code == status, answer.text
                assert (await asked.post("/v1/runs", {"workflow": "shop.none"})).status_code == 404
                versions = (await asked.get("/v1/workflows/shop.count")).json()["versions"]
                schema = versions[0]["input"]
                assert schema["$defs"]["count"]["properties"]["a"] == {"type": "integer"}
        finally:
            registry.workflows.update(kept)
        run = await hf.start(flows.count.using(id="x"), 1)
        assert await run.result(20) == 2


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("shop.count", {"a": 1}),
        ("shop.count", {"secret": "é", "by": 2, "a": 1}),
        ("shop.pay", {"cents": 5}),
    ],
)
def test_an_input_is_written_as_the_code_writes_it(name: str, given: dict[str, object]) -> None:
    """Members in the declared order, defaults filled in, numbers in the declared type."""
    import msgspec

    workflow = registry.workflows[name, "1"]
    (declared,) = [one for one in declarations(None, "") if one.name == name]
    made = msgspec.json.encode(filled(given, msgspec.json.decode(declared.input)))
    assert made == workflow.shape.from_json(json.dumps(given))


def test_only_the_default_namespace_is_bare() -> None:
    """The prefix cannot be made by an id, because no id may contain it."""
    assert stored("default", "x") == stored(None, "x") == "x"
    assert stored("acme", "x") == "acme//x"
    assert local("me").within("acme").namespace == "acme"


async def test_a_run_begins_later(quiet: Asked) -> None:
    """At a time, or in so many seconds. What cannot be meant is refused, with its place, and nothing is written."""
    made = await quiet.post("/v1/runs", {**COUNT, "id": "a", "begin_at": "2090-01-01T00:00:00+01:00"})
    assert made.status_code == 201
    found = (await quiet.get("/v1/runs/a")).json()
    assert (found["state"], found["begin_at"]) == ("pending", "2089-12-31T23:00:00Z")
    items = [{**COUNT, "id": "b", "begin_in_s": 3600}, {**COUNT, "id": "c"}]
    assert (await quiet.post("/v1/runs/batch", {"items": items})).status_code == 200
    found = (await quiet.get("/v1/runs/b")).json()
    assert found["begin_at"] > found["created_at"]
    assert (await quiet.get("/v1/runs/c")).json()["begin_at"] is None
    for wrong in ({"begin_at": "2090-01-01T00:00:00"}, {"begin_in_s": 0}, {"begin_at": 5}):
        assert (await quiet.post("/v1/runs", {**COUNT, "id": "d", **wrong})).status_code == 422
    both = {**COUNT, "id": "d", "begin_in_s": 5, "begin_at": "2090-01-01T00:00:00Z"}
    refused = await quiet.post("/v1/runs", both)
    assert (refused.status_code, refused.json()["place"]) == (422, "/begin_in_s")
    refused = await quiet.post("/v1/runs/batch", {"items": [both]})
    assert (refused.status_code, refused.json()["place"]) == (422, "/items/0/begin_in_s")
    assert (await quiet.get("/v1/runs/d")).status_code == 404


async def test_one_run_takes_several_starts(quiet: Asked) -> None:
    """Each is answered with the run that takes it, one by one and in a batch of requests, and once for each key."""
    start = {"workflow": "shop.note"}
    first = await quiet.post("/v1/runs", {**start, "id": "a", "input": {"shop": "x", "notes": ["one"]}})
    assert (first.status_code, first.json()["id"]) == (201, "a")
    two = {**start, "input": {"shop": "x", "notes": ["two"]}}
    for _ in range(2):
        answer = await quiet.post("/v1/runs", two, headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json()["id"], answer.json()["new"]) == (200, "a", False)
    items = [{**start, "input": {"shop": shop, "notes": ["three"]}, "key": shop} for shop in ("x", "y")]
    found = (await quiet.post("/v1/runs/batch", {"items": items})).json()["items"]
    assert [one["status"] for one in found] == [200, 201]
    assert found[0]["run"]["id"] == "a"
    later = await quiet.post("/v1/runs", {**two, "begin_in_s": 5})
    assert later.status_code == 422
    empty = await quiet.post("/v1/runs", {**start, "input": {"shop": "x", "notes": []}})
    assert (empty.status_code, empty.json()["place"]) == (422, "/input")
    assert "`notes` has the items" in empty.json()["detail"]


async def test_a_server_without_the_code_gathers_too(store_url: str) -> None:
    """By what the code has declared."""
    async with Holdfast(store_url, config=FAST):
        pass
    async with asking(store_url) as server:
        known = {name: registry.workflows.pop(name) for name in [("shop.note", "1")]}
        try:
            start = {"workflow": "shop.note", "input": {"shop": "x", "notes": ["one"]}}
            ids = [(await server.post("/v1/runs", start)).json()["id"] for _ in range(3)]
            other = {"workflow": "shop.note", "input": {"shop": "y", "notes": ["one"]}}
            assert len(set(ids)) == 1
            assert (await server.post("/v1/runs", other)).json()["id"] not in ids
        finally:
            registry.workflows.update(known)


async def test_a_start_may_say_when_the_run_is_due(quiet: Asked) -> None:
    """Within a span, or at a time with a zone. What cannot be is refused, and the answer says where."""
    assert (await quiet.post("/v1/runs", {**COUNT, "id": "span", "due_in_s": 60})).status_code == 201
    found = (await quiet.get("/v1/runs/span")).json()
    assert found["created_at"] < found["due_at"]
    at = {**COUNT, "id": "at", "due_at": "2090-01-01T06:00:00+01:00"}
    assert (await quiet.post("/v1/runs", at)).status_code == 201
    assert (await quiet.get("/v1/runs/at")).json()["due_at"].startswith("2090-01-01T05:00:00")
    for wrong, place in (
        ({"due_in_s": 0}, "/due_in_s"),
        ({"due_at": "2020-01-01T00:00:00Z"}, "/due_at"),
        ({"due_at": "2090-01-01T00:00:00"}, "/due_at"),
        ({"due_at": "2090-01-01T00:00:00Z", "due_in_s": 5}, "/due_in_s"),
        ({"due_in_s": 60, "timeout_s": 30}, "/due_in_s"),
    ):
        refused = await quiet.post("/v1/runs", {**COUNT, "id": "wrong", **wrong})
        assert refused.status_code == 422, wrong
        assert refused.json()["place"] == place, refused.json()
    assert (await quiet.get("/v1/runs/wrong")).status_code == 404


@pytest.mark.parametrize("name", ["begin_at", "due_at"])
async def test_a_time_that_leads_out_of_the_calendar_is_refused(quiet: Asked, name: str) -> None:
    """Otherwise nobody could list the runs of the namespace any more: what follows it has no date."""
    for at in ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00", "9000-01-01T00:00:01Z"):
        body = {"workflow": "shop.pay", "input": {"cents": 1}, name: at, "timeout_s": 1e9}
        alone = await quiet.post("/v1/runs", body)
        assert (alone.status_code, alone.json()["place"]) == (422, f"/{name}"), alone.text
        (item,) = (await quiet.post("/v1/runs/batch", {"items": [body]})).json()["items"]
        assert (item["status"], item["problem"]["place"]) == (422, f"/items/0/{name}")
    body = {"workflow": "shop.pay", "input": {"cents": 1}, name: "8999-12-31T23:59:59Z"}
    assert (await quiet.post("/v1/runs", {**body, "timeout_s": 1e9})).status_code == 201
    found = await quiet.get("/v1/runs")
    assert (found.status_code, len(found.json()["items"])) == (200, 1)


def test_a_row_with_a_time_beyond_the_calendar_breaks_no_list() -> None:
    """Whoever wrote it."""
    assert views.moment(1e12).year == 9999
    assert views.moment(-1e12).year == 1
