"""Whatever is wrong with a request is a problem that says what, where, and what to do. Nothing has changed by then."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from holdfast import errors
from holdfast.http.refusals import problem_of
from holdfast.store.reads import RunFilter
from holdfast.wire.problems import FROM, KINDS, kind_of
from tests.http.conftest import FAST, Asked, asking, bearer, made_token
from tests.store.conftest import run_sql

JSON = {"Content-Type": "application/json"}
GOOD = '{"workflow": "shop.count", "input": {"a": 1}}'

MALFORMED = {
    "nothing": (b"", ""),
    "not JSON": (b"{", ""),
    "two values": (b"{} {}", ""),
    "a comment": (b"{} // here", ""),
    "not UTF-8": (b'{"workflow": "\xff"}', ""),
    "UTF-16": (GOOD.encode("utf-16"), ""),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD.encode(), ""),
    "NaN": (b'{"workflow": "shop.count", "input": {"a": NaN}}', ""),
    "Infinity": (b'{"workflow": "shop.count", "input": {"a": -Infinity}}', ""),
    "a number beyond all": (b'{"workflow": "shop.count", "input": {"a": 1e999}}', ""),
    "a number of many digits": (b'{"workflow": "shop.count", "input": {"a": ' + b"9" * 5000 + b"}}", ""),
    "a key twice": (b'{"workflow": "shop.count", "input": {"a": 1, "a": 2}}', "/input/a"),
    "a key twice, escaped": (b'{"workflow": "shop.count", "input": {"a": 1, "\\u0061": 2}}', "/input/a"),
    "a key twice, deep": (b'{"input": [0, {"b/c": [{"d": 1, "d": 2}]}]}', "/input/1/b~1c/0/d"),
    "NUL": (b'{"workflow": "shop.count", "tags": {"x": "a\\u0000"}}', "/tags/x"),
    "NUL in a key": (b'{"workflow": "shop.count", "tags": {"a\\u0000": "x"}}', "/tags"),
    "half a character": (b'{"workflow": "shop.count", "input": {"a": "\\ud800"}}', "/input/a"),
    "half a character in a key": (b'{"workflow": "shop.count", "input": {"\\udfff": 1}}', "/input"),
    "too deep": (
        b'{"workflow": "shop.count", "input": ' + b"[" * 70 + b"]" * 70 + b"}",
        "/input" + "/0" * 63,
    ),
    "far too deep": (b"[" * 100_000 + b"]" * 100_000, ""),
}
INVALID = {
    "an unknown member": (b'{"workflow": "shop.count", "inputs": {}}', ""),
    "no workflow": (b"{}", ""),
    "an array": (b"[]", ""),
    "null": (b"null", ""),
    "an empty name": (b'{"workflow": ""}', "/workflow"),
    "another type": (b'{"workflow": "shop.count", "id": 5}', "/id"),
    "a tag that is no text": (b'{"workflow": "shop.count", "tags": {"x": 5}}', "/tags"),
    "a priority beyond all": (b'{"workflow": "shop.count", "priority": 99999999999}', "/priority"),
    "no time": (b'{"workflow": "shop.count", "timeout_s": -1}', "/timeout_s"),
    "an input that does not fit": (b'{"workflow": "shop.count", "input": {"a": "x"}}', "/input/a"),
    "an array of arguments": (b'{"workflow": "shop.count", "input": [1]}', "/input"),
    "a bare argument": (b'{"workflow": "shop.count", "input": 1}', "/input"),
    "an argument too many": (b'{"workflow": "shop.count", "input": {"a": 1, "c": 1}}', "/input"),
    "an argument too few": (b'{"workflow": "shop.count", "input": {}}', "/input"),
    "an id with a namespace": (b'{"workflow": "shop.count", "input": {"a": 1}, "id": "acme//x"}', "/id"),
    "an id with a slash before it": (b'{"workflow": "shop.count", "input": {"a": 1}, "id": "/x"}', "/id"),
    "an id of dollars": (b'{"workflow": "shop.count", "input": {"a": 1}, "id": "$x"}', "/id"),
    "an id with spaces around": (b'{"workflow": "shop.count", "input": {"a": 1}, "id": " x"}', "/id"),
}


@pytest.mark.parametrize(("body", "place"), MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_cannot_be_read_is_malformed(lone: Asked, body: bytes, place: str) -> None:
    """The problem names the place, and no run was started."""
    answer = await lone.client.post("/v1/runs", content=body, headers=JSON)
    found = answer.json()
    assert (answer.status_code, found["type"]) == (400, "urn:holdfast:problem:malformed")
    assert found.get("place", "") == place
    assert found["detail"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert await lone.hf.store.reads.runs(RunFilter()) == []


@pytest.mark.parametrize(("body", "place"), INVALID.values(), ids=INVALID.keys())
async def test_what_does_not_fit_is_invalid(lone: Asked, body: bytes, place: str) -> None:
    """The problem names the place, and no run was started."""
    answer = await lone.client.post("/v1/runs", content=body, headers=JSON)
    found = answer.json()
    assert (answer.status_code, found["type"]) == (422, "urn:holdfast:problem:invalid"), found
    assert found.get("place", "") == place
    assert await lone.hf.store.reads.runs(RunFilter()) == []


@pytest.mark.parametrize(
    "media_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "application/jsonp",
    ],
)
async def test_another_media_type_is_refused(lone: Asked, media_type: str | None) -> None:
    """A browser can send these from another page without asking."""
    headers = {} if media_type is None else {"Content-Type": media_type}
    answer = await lone.client.post("/v1/runs", content=GOOD, headers=headers)
    assert (answer.status_code, answer.json()["place"]) == (415, "Content-Type")
    answer = await lone.client.post("/v1/runs", content=GOOD, headers={**JSON, "Content-Encoding": "gzip"})
    assert answer.status_code == 415


async def test_what_is_too_large_is_refused_before_it_is_read_to_its_end() -> None:
    """So one request costs a bounded amount of memory."""
    config = msgspec.structs.replace(
        FAST, body_max_bytes=100, batch_max_bytes=300, payload_max_bytes=100, members_max=10
    )
    async with asking("sqlite://:memory:", config=config) as asked:
        body = b'{"note": "' + b"x" * 200 + b'"}'
        assert (await asked.client.post("/v1/runs/x/hold", content=body, headers=JSON)).status_code == 413

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(1000):
                yield b"x" * 1000

        assert (await asked.client.post("/v1/runs/x/hold", content=parts(), headers=JSON)).status_code == 413
        many = b'{"tags": {' + b",".join(b'"%d": "x"' % n for n in range(20)) + b"}}"
        assert (await asked.client.post("/v1/runs", content=many, headers=JSON)).status_code == 413
        item = {"workflow": "shop.count", "input": {"a": 1}, "id": "x" * 200}
        assert (await asked.post("/v1/runs/batch", {"items": [item]})).status_code != 413
        assert (await asked.post("/v1/runs/batch", {"items": [item, item]})).status_code == 413
        run = await asked.started("shop.pay", input={"cents": 1})
        answer = await asked.post(f"/v1/runs/{run}/signals", {"name": "paid", "data": "x" * 200})
        assert (answer.status_code, answer.json()["place"]) == (413, "/data")


@pytest.mark.parametrize("name", ["Host", "Authorization", "Content-Type", "Holdfast-Namespace"])
async def test_a_header_that_decides_something_may_not_occur_twice(lone: Asked, name: str) -> None:
    """A proxy and the server could each believe another one."""
    answer = await lone.client.get("/v1/runs", headers=[(name, "localhost"), (name, "localhost")])
    assert (answer.status_code, answer.json()["place"]) == (400, name.lower())


@pytest.mark.parametrize(
    ("query", "status", "place"),
    [
        ("?wokflow=x", 422, "?wokflow"),
        ("?state=lost", 422, "?state"),
        ("?limit=0", 422, "?limit"),
        ("?limit=ten", 422, "?limit"),
        ("?limit=1&limit=2", 400, "?limit"),
        ("?since=yesterday", 422, "?since"),
        ("?since=1h&until=2h", 422, "?until"),
        ("?workflow=%ff", 400, "?"),
        ("?workflow=%00", 400, "?"),
        ("?cursor=abc", 400, "?cursor"),
        ("?tag.=x", 400, "?tag."),
    ],
)
async def test_a_query_that_cannot_be_meant_is_refused(
    lone: Asked, query: str, status: int, place: str
) -> None:
    """An unknown parameter is a typo, and a filter that is ignored would show too much."""
    answer = await lone.get(f"/v1/runs{query}")
    assert (answer.status_code, answer.json()["place"]) == (status, place)


@pytest.mark.parametrize(
    "path",
    [
        "/v1/runs/nobody",
        "/v1/runs/~",
        "/v1/runs/~b3JkZXI",  # an id that needs no other form
        "/v1/runs/~!!!",
        "/v1/runs/..%2f..%2fetc",
        "/v1/runs/%00",
        "/v1/runs/a%2Fb",
        "/v1/workflows/nothing",
        "/v1/runs/",
        "/v2/runs",
        "/v1/RUNS",
        "/v1/x/healthz",
    ],
)
async def test_what_does_not_exist_is_unknown_in_the_same_bytes(lone: Asked, path: str) -> None:
    """Every id has one form in paths. Any other form, and an address of nothing, is like an id of nothing."""
    answer = await lone.get(path)
    assert answer.status_code == 404
    assert answer.content == (await lone.get("/v1/runs/nobody")).content


async def test_ages_that_lead_out_of_the_calendar_are_refused(quiet: Asked) -> None:
    """On each store, with the place."""
    for name in ("since", "until"):
        for given in ("999999999w", "99999999.999999d"):
            for path in ("/v1/runs", "/v1/runs/counts"):
                answer = await quiet.get(f"{path}?{name}={given}")
                assert (answer.status_code, answer.json()["place"]) == (422, f"?{name}"), answer.text


async def test_a_method_that_an_address_does_not_have_is_refused(lone: Asked) -> None:
    """The answer says which it has."""
    answer = await lone.client.delete("/v1/runs")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")


async def test_wrong_states_and_conflicts_are_409(lone: Asked) -> None:
    """What is asked is right, and what is there does not allow it."""
    run = await lone.started(id="one")
    answer = await lone.post(f"/v1/runs/{run}/release")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:holdfast:problem:wrong-state")
    again = await lone.post("/v1/runs", {"workflow": "shop.count", "input": {"a": 2}, "id": "one"})
    assert (again.status_code, again.json()["type"]) == (409, "urn:holdfast:problem:conflict")


async def test_too_many_requests_are_throttled() -> None:
    """Each token has its own budget, and so has each address for bad tokens; good tokens are not affected."""
    config = msgspec.structs.replace(FAST, requests_per_s=0.001, requests_burst=3, sign_ins_per_min=2)
    async with asking("sqlite://:memory:", config=config) as asked:
        one = bearer(await made_token(asked.hf, "viewer"))
        other = bearer(await made_token(asked.hf, "viewer"))
        found = [(await asked.get("/v1/me", headers=one)).status_code for _ in range(5)]
        assert found == [200, 200, 200, 429, 429]
        bad = [await asked.get("/v1/me", headers=bearer("hf_x")) for _ in range(4)]
        assert [answer.status_code for answer in bad] == [401, 401, 429, 429]
        assert bad[-1].headers["retry-after"]
        assert (await asked.get("/v1/me", headers=other)).status_code == 200


async def test_agents_that_are_made_up_are_counted_together() -> None:
    """Those that are there count for themselves, so that many agents can share a token."""
    config = msgspec.structs.replace(FAST, requests_per_s=0.001, requests_burst=3)
    async with asking("sqlite://:memory:", config=config) as asked:
        viewer, agent = [bearer(await made_token(asked.hf, role)) for role in ("viewer", "agent")]
        answers = [await asked.post(f"/v1/agents/made-up-{n}/beat", headers=viewer) for n in range(5)]
        assert [answer.status_code for answer in answers] == [403, 403, 403, 429, 429]
        group = {"groups": [{"name": "g", "steps": ["shop.pay"]}]}
        known = [(await asked.post("/v1/agents", group, headers=agent)).json()["agent"] for _ in range(2)]
        for one in known:
            answers = [await asked.post(f"/v1/agents/{one}/beat", headers=agent) for _ in range(4)]
            assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        strange = [await asked.post(f"/v1/agents/{known[0]}/beat", headers=viewer) for _ in range(2)]
        assert [answer.status_code for answer in strange] == [429, 429]


async def test_a_store_that_is_gone_is_503_and_its_address_is_in_no_answer() -> None:
    """Readiness fails, liveness does not."""
    error = errors.StoreUnreachable("no connection to postgresql://me:secret@db/shop")
    found = problem_of(error)
    assert (found.status, found.type) == (503, "urn:holdfast:problem:unavailable")
    assert "secret" not in msgspec.json.encode(found).decode()


def test_every_error_is_a_problem() -> None:
    """The table names every class of error that a caller may get, by itself or by a base. None but a broken store is the
    server's fault."""
    for cls in vars(errors).values():
        if isinstance(cls, type) and issubclass(
            cls, errors.RunError | errors.AccessError | errors.StoreError
        ):
            made = cls.__new__(cls)
            kind = kind_of(made)
            assert kind in KINDS
            assert KINDS[kind].status < 500 or issubclass(cls, errors.StoreError), cls
    assert set(FROM.values()) <= set(KINDS)


async def test_a_fault_of_the_server_shows_an_id_and_nothing_else(store_url: str) -> None:
    """Somebody has removed a table. The log has the rest under the same id."""
    async with asking(store_url) as asked:
        schema = "" if store_url.startswith("sqlite") else "holdfast."
        run_sql(store_url, f"DROP TABLE {schema}holds")
        answer = await asked.get("/v1/holds")
        assert answer.status_code == 500
        assert "holds" not in answer.text
        assert answer.json()["instance"] == answer.headers["holdfast-request"]
        assert (await asked.get("/v1/runs")).status_code == 200
